//! Client for objects of any kind on one cluster; the kinds are discovered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Client, Config};
use serde_json::{Value, json};
use testkit::json::{items, text};
use tokio::sync::Mutex;

/// A client for objects of any kind; clones share the discovered kinds.
#[derive(Clone)]
pub struct Objects {
    pub(crate) client: Client,
    kinds: Arc<Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>>,
}

impl Objects {
    /// Creates a client for objects from an existing client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Arc::default(),
        }
    }

    /// Creates a client for the cluster of a kubeconfig, of which `text` is the YAML.
    pub async fn of_kubeconfig(text: &str) -> Result<Self> {
        let kubeconfig = Kubeconfig::from_yaml(text)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        // A request to a deleted cluster must not block a worker.
        (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
        // The limit counts from the request, and not from the time since which a pooled connection is idle.
        config.reset_reader_on_write = true;
        Ok(Self::new(Client::try_from(config)?))
    }

    /// Returns the API of the object's kind and namespace, and the object's name. An object of a namespaced kind without a
    /// namespace is in `default`.
    async fn api(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let version = text("/apiVersion").context("an object without apiVersion")?;
        let kind = text("/kind").context("an object without kind")?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let mut kinds = self.kinds.lock().await;
        if !kinds.contains_key(&kind) {
            let found = pinned_kind(&self.client, &kind).await;
            let found = found.with_context(|| format!("{kind:?} is not served"))?;
            kinds.insert(kind.clone(), found);
        }
        let (resource, capabilities) = &kinds[&kind];
        let client = self.client.clone();
        let api = match capabilities.scope {
            Scope::Cluster => Api::all_with(client, resource),
            Scope::Namespaced => {
                let namespace = text("/metadata/namespace").unwrap_or("default");
                Api::namespaced_with(client, namespace, resource)
            }
        };
        let name = text("/metadata/name").context("an object without a name")?;
        Ok((api, name.to_owned()))
    }

    /// Returns the object with the kind, namespace and name of `object`; null if it does not exist.
    pub async fn find(&self, object: &Value) -> Result<Value> {
        let (api, name) = self.api(object).await?;
        let found = api.get_opt(&name).await;
        let found = found.with_context(|| format!("get {}", label(object)))?;
        Ok(serde_json::to_value(found)?)
    }

    /// Creates an object, with the client's default field manager.
    pub async fn create(&self, object: &Value) -> Result<()> {
        let (api, _) = self.api(object).await?;
        let typed = serde_json::from_value(object.clone())?;
        let created = api.create(&PostParams::default(), &typed).await;
        created.with_context(|| format!("create {}", label(object)))?;
        Ok(())
    }

    /// Applies an object with server-side apply and force.
    pub async fn apply(&self, manager: &str, object: &Value) -> Result<Value> {
        let (api, name) = self.api(object).await?;
        let params = PatchParams::apply(manager).force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        let applied = applied.with_context(|| format!("apply {}", label(object)))?;
        Ok(serde_json::to_value(applied)?)
    }

    /// Sends a JSON merge patch. A patch of the status is sent to the subresource `status`.
    pub async fn merge(&self, object: &Value, change: &Value) -> Result<()> {
        let (api, name) = self.api(object).await?;
        let (params, patch) = (PatchParams::default(), Patch::Merge(change));
        let patched = if change.get("status").is_some() {
            api.patch_status(&name, &params, &patch).await
        } else {
            api.patch(&name, &params, &patch).await
        };
        patched.with_context(|| format!("patch {}", label(object)))?;
        Ok(())
    }

    /// Deletes an object. An object that does not exist is not an error.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api(object).await?;
        match api.delete(&name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other
                .map(drop)
                .with_context(|| format!("delete {}", label(object))),
        }
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
