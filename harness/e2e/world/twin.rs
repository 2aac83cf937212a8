//! What a Pod would be without us: its twin in a namespace that the webhook's rules leave out.
//!
//! Invariant: both went through the same API server, so every default and every other plugin's work is in both, and
//! what differs is ours.

use serde_json::Value;

use super::{Draft, World};

impl World {
    /// The Pod as it is stored where nobody intercepts it.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn twin(&self, draft: &Draft) -> anyhow::Result<Value> {
        let mut twin = draft.clone();
        if let Some(metadata) = twin.0["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let path = "/api/v1/namespaces/kube-system/pods?dryRun=All";
        let answer = self
            .landscape()
            .dialogue()
            .ask(http::Method::POST, path, Some(&twin.0))
            .await?
            .good()?;
        Ok(comparable(&answer.object))
    }
}

/// A Pod without what is never the same twice.
#[must_use]
pub fn comparable(pod: &Value) -> Value {
    let mut text = pod.clone();
    text["status"] = Value::Null;
    if let Some(metadata) = text["metadata"].as_object_mut() {
        for key in [
            "namespace",
            "uid",
            "creationTimestamp",
            "managedFields",
            "resourceVersion",
            "generation",
        ] {
            metadata.remove(key);
        }
        if metadata
            .get("annotations")
            .is_some_and(|annotations| annotations == &serde_json::json!({}))
        {
            metadata.remove("annotations");
        }
    }
    rename_token(&mut text);
    text
}

/// The volume of the service account's token has a name by chance.
fn rename_token(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("kube-api-access-") => {
            "kube-api-access".clone_into(text);
        }
        Value::Array(items) => items.iter_mut().for_each(rename_token),
        Value::Object(fields) => fields.values_mut().for_each(rename_token),
        _ => {}
    }
}
