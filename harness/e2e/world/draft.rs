//! A plain Pod.

use serde_json::{Value, json};

use crate::definitions::pod::plain;

/// The text of a Pod.
#[derive(Debug, Clone)]
pub(crate) struct Draft(pub Value);

impl Draft {
    /// A Pod with one container `app` of the probe.
    pub(crate) fn plain(name: &str) -> Self {
        let mut pod = plain();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"] = json!({ "app": name });
        Self(pod)
    }
}
