//! Objects of any kind on one cluster: found through discovery, read, created, applied, deleted.

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

/// A client for objects of any kind; clones share what is known of the kinds.
#[derive(Clone)]
pub struct Objects {
    pub(crate) client: Client,
    kinds: Arc<Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>>,
}

impl Objects {
    /// The same over an existing client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Arc::default(),
        }
    }

    /// A client of the cluster to which the text of a kubeconfig leads.
    pub async fn of_kubeconfig(text: &str) -> Result<Self> {
        let kubeconfig = Kubeconfig::from_yaml(text)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        // A cluster that is gone must not hold a worker.
        (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
        Ok(Self::new(Client::try_from(config)?))
    }

    /// Where objects of this kind and namespace are; an object of a namespaced kind without a namespace is in `default`.
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

    /// The object of this kind, namespace and name; null when it does not exist.
    pub async fn find(&self, object: &Value) -> Result<Value> {
        let (api, name) = self.api(object).await?;
        let found = api.get_opt(&name).await;
        let found = found.with_context(|| format!("get {}", label(object)))?;
        Ok(serde_json::to_value(found)?)
    }

    /// A plain create, by the client's default field manager.
    pub async fn create(&self, object: &Value) -> Result<()> {
        let (api, _) = self.api(object).await?;
        let typed = serde_json::from_value(object.clone())?;
        let created = api.create(&PostParams::default(), &typed).await;
        created.with_context(|| format!("create {}", label(object)))?;
        Ok(())
    }

    /// A server-side apply with force.
    pub async fn apply(&self, manager: &str, object: &Value) -> Result<Value> {
        let (api, name) = self.api(object).await?;
        let params = PatchParams::apply(manager).force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        let applied = applied.with_context(|| format!("apply {}", label(object)))?;
        Ok(serde_json::to_value(applied)?)
    }

    /// A JSON merge patch; of the subresource `status`, where it is one of the status.
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

    /// Deletes an object; one that does not exist is no error.
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

/// A reference to an object, for the functions above.
pub(crate) fn reference(version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": { "name": name, "namespace": namespace },
    })
}

/// The Secret of a kubeconfig, and in general one with a text under a key.
pub(crate) fn secret_text(secret: &Value, key: &str) -> Result<String> {
    let value = secret["data"][key].as_str();
    let value = value.with_context(|| format!("the Secret has no key {key}"))?;
    Ok(String::from_utf8(BASE64.decode(value)?)?)
}

/// A condition; the time of its last transition is that of the earlier one of the same status.
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

/// The conditions with one of them replaced or added.
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
