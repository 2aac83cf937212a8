//! What is put into Pods, as JSON that is written when the configuration is understood: a review only copies it.

use serde_json::{Value, json};

/// One entry of a list in a Pod, or a map of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry(String);

impl Entry {
    /// Of `imagePullSecrets`.
    pub(super) fn pull_secret(name: &str) -> Self {
        Self::written(&json!({"name": name}))
    }

    /// Of a container's `env`.
    pub(super) fn variable(name: &str, value: &str) -> Self {
        Self::written(&json!({"name": name, "value": value}))
    }

    /// Of a container's `volumeMounts`.
    pub(super) fn mount(volume: &str, path: &str) -> Self {
        Self::written(&json!({"name": volume, "readOnly": true, "mountPath": path}))
    }

    /// Of `volumes`: one file with the certificates of a ClusterTrustBundle.
    pub(super) fn volume(name: &str, bundle: &str, file: &str) -> Self {
        Self::written(&json!({
            "name": name,
            "projected": {
                "sources": [{"clusterTrustBundle": {"name": bundle, "path": file}}],
                // 0644, written out as required: a server that defaults it would make the second pass differ.
                "defaultMode": 0o644,
            },
        }))
    }

    /// Annotations with a single one.
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
