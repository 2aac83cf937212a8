//! Objects by their paths: how the stage talks to API servers.

use api::names::{CONFIG_MAP, PULL_SECRET};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::world::{Dialogue, bundle};

/// An object, if it is there.
pub(super) async fn found(dialogue: &Dialogue, path: &str) -> anyhow::Result<Option<Value>> {
    let answer = dialogue.ask(Method::GET, path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(answer.good()?.object))
}

/// Deletes an object, if it is there.
pub(super) async fn delete(dialogue: &Dialogue, path: &str) -> anyhow::Result<()> {
    let answer = dialogue.ask(Method::DELETE, path, None).await?;
    if answer.status != StatusCode::NOT_FOUND {
        answer.good()?;
    }
    Ok(())
}

/// Writes an object by server-side apply, as whom it says.
pub(super) async fn apply(
    dialogue: &Dialogue,
    path: &str,
    object: &Value,
) -> anyhow::Result<Value> {
    apply_as(dialogue, path, object, "harness").await
}

/// The same by another field manager.
pub(super) async fn apply_as(
    dialogue: &Dialogue,
    path: &str,
    object: &Value,
    manager: &str,
) -> anyhow::Result<Value> {
    let path = format!("{path}?fieldManager={manager}&force=true");
    let body = object.to_string().into_bytes();
    let answer = dialogue
        .send(Method::PATCH, &path, "application/apply-patch+yaml", body)
        .await?;
    Ok(answer.good()?.object)
}

/// The path of an object of ours that has a counterpart on the other side.
pub(super) fn secret(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{PULL_SECRET}")
}

pub(super) fn config_map(namespace: &str) -> String {
    named_config_map(namespace, CONFIG_MAP)
}

pub(super) fn named_config_map(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

pub(super) fn trust_bundle(_: &str) -> String {
    bundle::PATH.to_owned()
}
