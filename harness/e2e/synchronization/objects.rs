//! Objects of the synchronization by their paths in the Kubernetes API.

use api::names::{CONFIG_MAP, PULL_SECRET};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::admission::cluster::TRUST_BUNDLE;
use crate::client::Client;

/// An object, if it exists.
pub(crate) async fn get_opt(api: &Client, path: &str) -> anyhow::Result<Option<Value>> {
    let answer = api.ask(Method::GET, path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(answer.good()?.object))
}

/// Deletes an object, if it exists.
pub(crate) async fn delete(api: &Client, path: &str) -> anyhow::Result<()> {
    let answer = api.ask(Method::DELETE, path, None).await?;
    if answer.status != StatusCode::NOT_FOUND {
        answer.good()?;
    }
    Ok(())
}

/// Writes an object by a forced server-side apply of the field manager `harness`.
pub(crate) async fn apply(api: &Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    apply_as("harness", api, path, object).await
}

/// The same by another field manager.
pub(crate) async fn apply_as(
    manager: &str,
    api: &Client,
    path: &str,
    object: &Value,
) -> anyhow::Result<Value> {
    let path = format!("{path}?fieldManager={manager}&force=true");
    let body = object.to_string().into_bytes();
    let answer = api
        .send(Method::PATCH, &path, "application/apply-patch+yaml", body)
        .await?;
    Ok(answer.good()?.object)
}

pub(crate) fn secret(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{PULL_SECRET}")
}

pub(crate) fn config_map(namespace: &str) -> String {
    named_config_map(namespace, CONFIG_MAP)
}

pub(crate) fn named_config_map(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

pub(crate) fn trust_bundle(_: &str) -> String {
    format!("/apis/certificates.k8s.io/v1beta1/clustertrustbundles/{TRUST_BUNDLE}")
}
