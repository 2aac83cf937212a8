//! Client for objects of any kind on one cluster; the kinds are discovered.

use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use serde_json::{Value, json};
use testkit::client::{Client, Write};
use testkit::json::{items, text};

/// A client for objects of any kind; clones share the discovered kinds.
#[derive(Clone)]
pub struct Objects(Client);

impl Objects {
    /// Creates a client for objects from an existing client.
    pub fn new(client: kube::Client) -> Self {
        Self(Client::new(client))
    }

    /// Creates a client for the cluster of a kubeconfig, of which `text` is the YAML.
    pub async fn of_kubeconfig(text: &str) -> Result<Self> {
        let mut config = testkit::client_config(text).await?;
        config.default_retry = true;
        // A request to a deleted cluster must not block a worker.
        (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
        Ok(Self::new(kube::Client::try_from(config)?))
    }

    /// Returns the object with the kind, namespace and name of `object`; null if it does not exist.
    pub async fn find(&self, object: &Value) -> Result<Value> {
        self.0.find(&self.0.path(object).await?).await
    }

    /// Returns the objects at a path.
    pub(crate) async fn items(&self, path: &str) -> Result<Vec<Value>> {
        self.0.items(path).await
    }

    /// Creates an object, with the client's default field manager.
    pub async fn create(&self, object: &Value) -> Result<()> {
        let created = self.0.write(Write::Create, object).await?;
        let created = created.good().map(drop);
        created.with_context(|| format!("create {}", label(object)))
    }

    /// Applies an object with server-side apply and force.
    pub async fn apply(&self, manager: &str, object: &Value) -> Result<Value> {
        self.0.apply(manager, object).await
    }

    /// Sends a JSON merge patch. A patch of the status is sent to the subresource `status`.
    pub async fn merge(&self, object: &Value, change: &Value) -> Result<()> {
        let status = change.get("status").map_or("", |_| "/status");
        let path = format!("{}{status}", self.0.path(object).await?);
        let patched = self.0.ask(Method::PATCH, &path, Some(change)).await?;
        let patched = patched.good().map(drop);
        patched.with_context(|| format!("patch {}", label(object)))
    }

    /// Deletes an object. An object that does not exist is not an error.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        let path = self.0.path(object).await?;
        let path = format!("{path}?propagationPolicy=Background");
        self.0.delete(&path).await
    }
}

/// Returns a reference to an object, which the methods of [`Objects`] accept.
pub(crate) fn reference(version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": { "name": name, "namespace": namespace },
    })
}

/// Returns the decoded text under a key of a Secret, for example a kubeconfig.
pub(crate) fn secret_text(secret: &Value, key: &str) -> Result<String> {
    let value = secret["data"][key].as_str();
    let value = value.with_context(|| format!("the Secret has no key {key}"))?;
    Ok(String::from_utf8(BASE64.decode(value)?)?)
}

/// Returns a condition. It keeps the time of the last transition of an earlier condition with the same status.
pub(crate) fn condition(
    earlier: &Value,
    (kind, status): (&str, &str),
    reason: &str,
    message: &str,
) -> Value {
    let same = |it: &&Value| it["type"] == kind && it["status"] == status;
    let since = items(earlier)
        .find(same)
        .map(|it| &it["lastTransitionTime"]);
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.cloned().unwrap_or_else(|| json!(now)),
    })
}

/// Returns the conditions after `condition` replaced the one of its type or was added.
pub(crate) fn with_condition(conditions: &Value, condition: Value) -> Value {
    let mut all = conditions.as_array().cloned().unwrap_or_default();
    match all.iter_mut().find(|it| it["type"] == condition["type"]) {
        Some(found) => *found = condition,
        None => all.push(condition),
    }
    Value::Array(all)
}

fn label(object: &Value) -> String {
    let metadata = &object["metadata"];
    let (kind, namespace) = (text(&object["kind"]), text(&metadata["namespace"]));
    format!("{kind} {namespace}/{}", text(&metadata["name"]))
}

const TIMEOUT: Duration = Duration::from_secs(10);
