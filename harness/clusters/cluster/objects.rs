//! Objects of any kind: applied and deleted as YAML, found through discovery.
//!
//! Every write is a server-side apply by the field manager [`MANAGER`], with force, so that applying twice is applying
//! once. A kind that is not served *yet* (its CRD was applied a moment ago) is waited for.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, LogParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Client, ResourceExt as _};
use tokio::sync::Mutex;

use super::Cluster;
use super::node::PodTarget;
use testkit::until::{TooLate, until};

/// The field manager of what the harness applied.
pub const MANAGER: &str = "harness";

/// The kinds that the API server serves, as far as they were asked for.
pub(super) struct Kinds {
    client: Client,
    known: Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>,
}

impl Kinds {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    async fn api(
        &self,
        object: &DynamicObject,
        namespace: &str,
        patience: Duration,
    ) -> anyhow::Result<Result<Api<DynamicObject>, TooLate>> {
        let kind = kind_of(object)?;
        let mut known = self.known.lock().await;
        if !known.contains_key(&kind) {
            let what = format!("the API server serves {kind:?}");
            match until(&what, patience, || pinned_kind(&self.client, &kind)).await {
                Ok(found) => known.insert(kind.clone(), found),
                Err(late) => return Ok(Err(late)),
            };
        }
        let (resource, capabilities) = &known[&kind];
        let namespace = object.metadata.namespace.as_deref().unwrap_or(namespace);
        Ok(Ok(match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, resource),
            Scope::Cluster => Api::all_with(self.client.clone(), resource),
        }))
    }
}

impl Cluster {
    /// Applies a YAML stream of objects of any kind; those that name no namespace go to `default`.
    ///
    /// Gives the objects as the API server stored them, in the order of the stream.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
        self.apply_in("default", yaml).await
    }

    /// The same, but those that name no namespace go to `namespace`.
    pub async fn apply_in(
        &self,
        namespace: &str,
        yaml: &str,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let params = PatchParams::apply(MANAGER).force();
        let mut stored = Vec::new();
        for object in parse(yaml)? {
            let api = self.kinds.api(&object, namespace, KIND_PATIENCE).await??;
            let (name, patch) = (object.name_any(), Patch::Apply(&object));
            let applied = api.patch(&name, &params, &patch).await;
            stored.push(applied.with_context(|| format!("apply {}", label(&object)))?);
        }
        Ok(stored)
    }

    /// Deletes what a YAML stream names, last first; what is gone already, or of a kind that is not served, is no error.
    pub async fn delete(&self, yaml: &str) -> anyhow::Result<()> {
        self.delete_in("default", yaml).await
    }

    /// The same, but those that name no namespace are looked for in `namespace`.
    pub async fn delete_in(&self, namespace: &str, yaml: &str) -> anyhow::Result<()> {
        for object in parse(yaml)?.into_iter().rev() {
            let Ok(api) = self.kinds.api(&object, namespace, GONE_PATIENCE).await? else {
                continue;
            };
            let deleted = api
                .delete(&object.name_any(), &DeleteParams::background())
                .await;
            match deleted {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error).context(format!("delete {}", label(&object))),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The log of a Pod's container.
    pub async fn pod_logs(&self, target: PodTarget<'_>) -> anyhow::Result<String> {
        let params = LogParams {
            container: target.container.map(str::to_owned),
            ..LogParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client(), target.namespace);
        let what = format!("read the log of Pod {}/{}", target.namespace, target.pod);
        pods.logs(target.pod, &params).await.context(what)
    }
}

fn parse(yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(yaml).context("not a YAML stream")?;
    // A document of comments only is null.
    let objects = documents.into_iter().filter(|document| !document.is_null());
    let objects = objects
        .map(serde_json::from_value)
        .collect::<Result<_, _>>();
    objects.context("not a Kubernetes object")
}

fn kind_of(object: &DynamicObject) -> anyhow::Result<GroupVersionKind> {
    let types = object.types.as_ref();
    let types = types.with_context(|| format!("{}: no apiVersion and kind", object.name_any()))?;
    Ok(GroupVersionKind::try_from(types)?)
}

fn label(object: &DynamicObject) -> String {
    let kind = object
        .types
        .as_ref()
        .map_or("object", |types| types.kind.as_str());
    match object.namespace() {
        Some(namespace) => format!("{kind} {namespace}/{}", object.name_any()),
        None => format!("{kind} {}", object.name_any()),
    }
}

const KIND_PATIENCE: Duration = Duration::from_secs(15);

/// How long to ask for a kind whose objects are to be deleted: an answer takes milliseconds, and where the kind is gone
/// its objects are as well.
const GONE_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_in_order_without_its_empty_documents() {
        let objects = parse(
            "# only a comment\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: a}\ndata: {x: 'true'}\n",
        )
        .unwrap();
        let labels: Vec<_> = objects.iter().map(label).collect();
        assert_eq!(labels, ["Namespace a", "ConfigMap a/b"]);
        assert_eq!(objects[1].data["data"]["x"], "true");
    }

    #[test]
    fn what_is_not_an_object_is_an_error() {
        assert!(parse("a: [").is_err());
        assert!(parse("- list").is_err());
        let nameless = parse("metadata: {name: x}").unwrap();
        assert!(kind_of(&nameless[0]).is_err());
    }
}
