//! AdmissionReviews of Pods in three sizes, as an API server sends them.
//!
//! `pod.json` has what an API server has added before admission: defaults, the service account's volume,
//! `managedFields` of every field. Images are from a registry that the configuration replaces; init containers are native
//! sidecars. The bytes are the same in every run but for the uid, whose end is the number of the request.

use serde_json::{Map, Value, json};

use crate::load::PLACEHOLDER;

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
    /// Containers, init containers, variables of each.
    fn counts(self) -> (usize, usize, usize) {
        match self {
            Self::Small => (1, 0, 2),
            Self::Typical => (2, 1, 6),
            Self::Large => (8, 2, 60),
        }
    }
}

/// The Pod of a ReplicaSet before its creation.
pub(super) fn pod(size: Size, namespace: &str) -> anyhow::Result<Value> {
    let template: Value = serde_json::from_str(include_str!("pod.json"))?;
    let (containers, sidecars, variables) = size.counts();
    let list = |name: &str, count: usize| -> Vec<Value> {
        let member = |number| container(&template, &format!("{name}-{number}"), (size, variables));
        (0..count).map(member).collect()
    };
    let mut sidecars = list("sidecar", sidecars);
    for sidecar in &mut sidecars {
        sidecar["restartPolicy"] = json!("Always");
    }
    let (mut metadata, mut spec) = (template["metadata"].clone(), template["spec"].clone());
    metadata["namespace"] = json!(namespace);
    let fields = &mut metadata["managedFields"][0]["fieldsV1"]["f:spec"];
    for (field, members) in [
        ("containers", list("service", containers)),
        ("initContainers", sidecars),
    ] {
        if !members.is_empty() {
            fields[format!("f:{field}")] = fields_of_list(&members);
            spec[field] = json!(members);
        }
    }
    Ok(json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}))
}

/// The review of its creation.
pub(super) fn review(pod: &Value) -> String {
    let namespace = &pod["metadata"]["namespace"];
    let uid = format!("00000000-0000-4000-8000-{PLACEHOLDER}");
    let user = json!({
        "username": "system:serviceaccount:kube-system:replicaset-controller",
        "uid": "2b7b7e2c-2f4c-4c39-8a4b-6b8a0a4d6c11",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=6d2a3c9e-57d0-4f0e-9a53-0f5c2b6f4d21"]},
    });
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    // The order of the fields is the API server's.
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{uid}","kind":{kind},"resource":{resource},"requestKind":{kind},"requestResource":{resource},"namespace":{namespace},"operation":"CREATE","userInfo":{user},"object":{pod},"oldObject":null,"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
}

fn container(template: &Value, name: &str, (size, variables): (Size, usize)) -> Value {
    let mut container = template["container"].clone();
    if size != Size::Small {
        json_patch::merge(&mut container, &template["details"]);
    }
    container["name"] = json!(name);
    container["image"] = json!(format!(
        "{REGISTRY}/kyma-project/prod/{name}:1.42.{variables}"
    ));
    let variable = |number| json!({"name": format!("SETTING_{number:02}"), "value": format!("value-{number:02}")});
    container["env"] = (0..variables).map(variable).collect();
    container
}

/// The managed fields of a list whose members are identified by their names.
fn fields_of_list(members: &[Value]) -> Value {
    let field = |member: &Value| {
        let key = format!("k:{}", json!({"name": member["name"]}));
        (key, fields_of(member))
    };
    Value::Object(members.iter().map(field).collect())
}

fn fields_of(value: &Value) -> Value {
    let mut fields = Map::from_iter([(".".to_owned(), json!({}))]);
    for (name, value) in value.as_object().into_iter().flatten() {
        let below = match (name.as_str(), value) {
            // The service account's mount was added after the manager's fields were recorded.
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
pub(super) const REGISTRY: &str = "ghcr.io";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_has_the_size_that_is_published() {
        for (size, expected) in [
            (Size::Small, 3_500),
            (Size::Typical, 9_800),
            (Size::Large, 82_000_usize),
        ] {
            let length = review(&pod(size, "orders").unwrap()).len();
            assert!(
                length.abs_diff(expected) <= expected / 20,
                "{size:?}: {length} bytes"
            );
        }
    }

    #[test]
    fn review_has_the_shape_of_an_api_servers() {
        let text = review(&pod(Size::Typical, "orders").unwrap());
        let review: Value = serde_json::from_str(&text).unwrap();
        let pod = &review["request"]["object"];
        let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).unwrap();
        let spec = typed.spec.unwrap();
        assert_eq!(spec.containers.len(), 2);
        let sidecar = &spec.init_containers.unwrap()[0];
        assert_eq!(sidecar.restart_policy.as_deref(), Some("Always"));
        assert_eq!(typed.metadata.managed_fields.unwrap().len(), 1);
        assert_eq!(text.matches(PLACEHOLDER).count(), 1);
    }
}
