//! Values that are added to Pods, as JSON that is serialized when the configuration is loaded. A review only copies them.

use serde_json::{Value, json};

/// An entry of a list in a Pod, or a map in a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry(String);

impl Entry {
    /// Returns an entry of `imagePullSecrets`.
    pub(super) fn pull_secret(name: &str) -> Self {
        Self::written(&json!({"name": name}))
    }

    /// Returns an entry of the `env` of a container.
    pub(super) fn variable(name: &str, value: &str) -> Self {
        Self::written(&json!({"name": name, "value": value}))
    }

    /// Returns an entry of the `volumeMounts` of a container.
    pub(super) fn mount(volume: &str, path: &str) -> Self {
        Self::written(&json!({"name": volume, "readOnly": true, "mountPath": path}))
    }

    /// Returns an entry of `volumes`: one file with the certificates of a ClusterTrustBundle.
    pub(super) fn volume(name: &str, bundle: &str, file: &str) -> Self {
        Self::written(&json!({
            "name": name,
            "projected": {
                "sources": [{"clusterTrustBundle": {"name": bundle, "path": file}}],
                // 0644. The field is written explicitly, because a default of the API server would make the result of
                //    a second review differ.
                "defaultMode": 0o644,
            },
        }))
    }

    /// Returns annotations with a single entry.
    pub(super) fn annotations(key: &str, value: &str) -> Self {
        Self::written(&json!({key: value}))
    }

    pub(super) fn json(&self) -> &str {
        &self.0
    }

    fn written(value: &Value) -> Self {
        Self(value.to_string())
    }
}
