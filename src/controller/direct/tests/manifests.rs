//! The manifests of the webhook in these tests.

use api::bootstrapper::WebhookSettings;
use serde_json::{Value, json};

use super::adoption::public::{REAL, real};

/// A version of the webhook with one more object.
pub(super) const OLD_VERSION: &str = "0.0.8";

/// A version of the webhook with a match condition.
pub(super) const VERSION_WITH_CONDITION: &str = "0.0.7";

/// Returns the manifests of the version in the tag of the image. The version `broken` has none.
pub(super) fn manifests(
    settings: &WebhookSettings,
    named_secret: Option<&str>,
) -> Result<Vec<Value>, String> {
    let image = settings.image.as_deref().unwrap();
    let version = image.rsplit(':').next().unwrap();
    if version == "broken" {
        return Err("no such image".to_owned());
    }
    if version == REAL {
        return Ok(real());
    }
    let labels = json!({"app": "rt-bootstrapper"});
    let mut container = json!({"name": "manager", "image": image});
    if let Some(landscape) = &settings.landscape {
        container["args"] = json!([format!("--landscape={landscape}")]);
    }
    let role = named_secret.map(|name| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "rt-bootstrapper"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [name]}],
        })
    });
    let mut all: Vec<Value> = role.into_iter().collect();
    if version == OLD_VERSION {
        all.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rt-bootstrapper-legacy", "namespace": "kyma-system"},
        }));
    }
    let mut entry = json!({
        "name": "pods.example",
        "clientConfig": {"service": {"name": "webhook", "namespace": "kyma-system"}},
    });
    if version == VERSION_WITH_CONDITION {
        entry["matchConditions"] = json!([{"name": "earlier", "expression": "true"}]);
    }
    all.extend([
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rt-bootstrapper", "namespace": "kyma-system"},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "rt-bootstrapper"},
            "webhooks": [entry],
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "rt-bootstrapper-controller-manager", "namespace": "kyma-system",
                "labels": {"app.kubernetes.io/version": version},
            },
            "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container]},
                },
            },
        }),
    ]);
    // The order is that of the released manifests: additional namespaces are last.
    let namespaces = settings.pod_restart_namespaces.iter();
    all.extend(namespaces.flatten().map(|it| restarter(it)));
    Ok(all)
}

fn restarter(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "rt-bootstrapper-pod-restarter-rolebinding", "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "rt-bootstrapper-pod-restarter-role",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "rt-bootstrapper", "namespace": "kyma-system"}],
    })
}
