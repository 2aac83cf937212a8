//! What is asked: reviews in three sizes, in the shape in which an API server sends them.
//!
//! Invariant: the same bytes in every run. Real shapes: what the API server has added by the time of admission is
//! there (defaults, the service account's volume, `managedFields` of every field), the images are of registries that
//! the configuration replaces, and an init container is a native sidecar. Sizes: performance reference B3.

use serde_json::{Map, Value, json};

/// In the place of each review's own uid; the load generator knows it.
const UID: &str = "00000000-0000-4000-8000-000000000000";

/// A Namespace that opts in to everything.
pub(super) const OPTED_IN: &str = "orders";
/// A Namespace that does not.
pub(super) const PLAIN: &str = "plain";
/// What the images' registries become.
pub(super) const MIRROR: &str = "registry.landscape.example";

/// How large a Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// One container: about 3.5 kB.
    Small,
    /// Two containers and a native sidecar: about 9.8 kB.
    Typical,
    /// Eight containers and two native sidecars with 60 variables each: about 82 kB.
    Large,
}

impl Size {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Typical => "typical",
            Self::Large => "large",
        }
    }

    /// Containers, init containers, variables of each.
    fn counts(self) -> (usize, usize, usize) {
        match self {
            Self::Small => (1, 0, 2),
            Self::Typical => (2, 1, 6),
            Self::Large => (8, 2, 60),
        }
    }
}

/// The Pod of a ReplicaSet, before its creation.
pub(super) fn pod(size: Size, namespace: &str) -> Value {
    let (containers, sidecars, variables) = size.counts();
    let detailed = size != Size::Small;
    let containers: Vec<Value> = (0..containers)
        .map(|number| container(&format!("service-{number}"), variables, detailed))
        .collect();
    let sidecars: Vec<Value> = (0..sidecars)
        .map(|number| {
            let mut sidecar = container(&format!("sidecar-{number}"), variables, detailed);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        })
        .collect();
    let mut spec = spec();
    let mut fields = Map::new();
    for (list, members) in [("containers", containers), ("initContainers", sidecars)] {
        if !members.is_empty() {
            fields.insert(format!("f:{list}"), fields_of_list(&members));
            spec[list] = json!(members);
        }
    }
    let mut metadata = metadata(namespace);
    metadata["managedFields"] = managed(fields);
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}})
}

/// The review of its creation.
pub(super) fn review(pod: &Value, namespace: &str) -> String {
    let user = json!({
        "username": "system:serviceaccount:kube-system:replicaset-controller",
        "uid": "2b7b7e2c-2f4c-4c39-8a4b-6b8a0a4d6c11",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=6d2a3c9e-57d0-4f0e-9a53-0f5c2b6f4d21"]},
    });
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    // The order is the API server's.
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","kind":{kind},"resource":{resource},"requestKind":{kind},"requestResource":{resource},"namespace":"{namespace}","operation":"CREATE","userInfo":{user},"object":{pod},"oldObject":null,"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
}

fn metadata(namespace: &str) -> Value {
    json!({
        "generateName": "orders-7c9d8f6b5-",
        "namespace": namespace,
        "creationTimestamp": null,
        "labels": {
            "app.kubernetes.io/name": "orders",
            "app.kubernetes.io/part-of": "shop",
            "pod-template-hash": "7c9d8f6b5",
        },
        "annotations": {"kubectl.kubernetes.io/restartedAt": "2026-11-02T09:12:44Z"},
        "ownerReferences": [{
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "orders-7c9d8f6b5",
            "uid": "5f1c6a0b-8d0e-4a53-bf8e-2f3f5c1f7a90",
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

fn spec() -> Value {
    let tolerations: Vec<Value> = ["not-ready", "unreachable"]
        .into_iter()
        .map(|taint| {
            json!({
                "key": format!("node.kubernetes.io/{taint}"),
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            })
        })
        .collect();
    json!({
        "volumes": [{"name": TOKEN, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{
                "path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            }]}},
        ]}}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": tolerations,
        "priority": 0,
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

fn container(name: &str, variables: usize, detailed: bool) -> Value {
    let env: Vec<Value> = (0..variables)
        .map(|number| {
            json!({"name": format!("SETTING_{number:02}"), "value": format!("value-{number:02}")})
        })
        .collect();
    let mut container = json!({
        "name": name,
        "image": format!("{SOURCE}/kyma-project/prod/{name}:1.42.{variables}"),
        "env": env,
        "resources": {},
        "volumeMounts": [{
            "name": TOKEN,
            "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        }],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    });
    if detailed {
        container["args"] = json!(["serve", "--webhook-bind-address=:8080", "--log-format=json"]);
        container["ports"] = json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}]);
        container["resources"] = json!({
            "limits": {"memory": "256Mi"},
            "requests": {"cpu": "50m", "memory": "128Mi"},
        });
        container["securityContext"] = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true,
        });
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
            container[probe] = json!({
                "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            });
        }
    }
    container
}

fn managed(mut fields: Map<String, Value>) -> Value {
    for field in [
        "f:dnsPolicy",
        "f:enableServiceLinks",
        "f:restartPolicy",
        "f:schedulerName",
        "f:securityContext",
        "f:terminationGracePeriodSeconds",
    ] {
        fields.insert(field.to_owned(), json!({}));
    }
    json!([{
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-02T09:12:45Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {
                "f:annotations": {".": {}, "f:kubectl.kubernetes.io/restartedAt": {}},
                "f:generateName": {},
                "f:labels": {
                    ".": {},
                    "f:app.kubernetes.io/name": {},
                    "f:app.kubernetes.io/part-of": {},
                    "f:pod-template-hash": {},
                },
                "f:ownerReferences": {
                    ".": {},
                    "k:{\"uid\":\"5f1c6a0b-8d0e-4a53-bf8e-2f3f5c1f7a90\"}": {},
                },
            },
            "f:spec": fields,
        },
    }])
}

/// A list whose members are found by their names.
fn fields_of_list(members: &[Value]) -> Value {
    let fields: Map<String, Value> = members
        .iter()
        .filter(|member| member["name"] != TOKEN)
        .map(|member| {
            let key = format!("k:{}", json!({"name": member["name"]}));
            (key, fields_of(member))
        })
        .collect();
    Value::Object(fields)
}

fn fields_of(value: &Value) -> Value {
    let mut fields = Map::from_iter([(".".to_owned(), json!({}))]);
    for (name, value) in value.as_object().into_iter().flatten() {
        let below = match (name.as_str(), value) {
            // The service account's mount came after the manager's fields were taken.
            ("volumeMounts", _) => continue,
            ("env", Value::Array(members)) => fields_of_list(members),
            (_, Value::Object(_)) => fields_of(value),
            _ => json!({}),
        };
        fields.insert(format!("f:{name}"), below);
    }
    Value::Object(fields)
}

/// The registry that the configuration replaces.
pub(super) const SOURCE: &str = "europe-docker.pkg.dev";
const TOKEN: &str = "kube-api-access-x7k2p";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_its_size_and_is_the_same_every_time() {
        let sizes = [Size::Small, Size::Typical, Size::Large]
            .map(|size| review(&pod(size, OPTED_IN), OPTED_IN).len());
        let wanted = [3_500, 9_800, 82_000];
        assert!(
            sizes
                .iter()
                .zip(wanted)
                .all(|(size, wanted)| size.abs_diff(wanted) <= wanted / 20),
            "{sizes:?} bytes, not about {wanted:?}"
        );
        let again = || review(&pod(Size::Typical, OPTED_IN), OPTED_IN);
        assert_eq!(again(), again());
    }

    #[test]
    fn a_review_has_the_shape_of_an_api_servers() {
        let text = review(&pod(Size::Typical, PLAIN), PLAIN);
        let review: Value = serde_json::from_str(&text).unwrap();
        let pod = &review["request"]["object"];
        let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).unwrap();
        let spec = typed.spec.unwrap();
        assert_eq!(spec.containers.len(), 2);
        assert_eq!(
            spec.init_containers.unwrap()[0].restart_policy.as_deref(),
            Some("Always")
        );
        assert_eq!(typed.metadata.managed_fields.unwrap().len(), 1);
        assert_eq!(text.matches(UID).count(), 1);
    }
}
