//! Objects of any kind, which are discovered, applied and deleted as YAML, and the evidence of a cluster after a failure.
//!
//! Every write is a server-side apply by the field manager [`MANAGER`], with force, and therefore idempotent. If a kind is not
//! served yet, because its CRD was applied shortly before, the harness waits for it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use testkit::until::{TooLate, until};

use super::Cluster;
use crate::docker;
use crate::evidence::Evidence;

/// Field manager of the objects that the harness applies.
pub const MANAGER: &str = "harness";

pub(super) type Kinds = HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>;

impl Cluster {
    async fn api(
        &self,
        (kind, object): (&GroupVersionKind, &DynamicObject),
        namespace: &str,
        patience: Duration,
    ) -> Result<Api<DynamicObject>, TooLate> {
        let mut known = self.kinds.lock().await;
        if !known.contains_key(kind) {
            let what = format!("the API server serves {kind:?}");
            let found = until(&what, patience, || pinned_kind(&self.client, kind)).await?;
            known.insert(kind.clone(), found);
        }
        let (resource, capabilities) = &known[kind];
        let namespace = object.metadata.namespace.as_deref().unwrap_or(namespace);
        Ok(match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(self.client(), namespace, resource),
            Scope::Cluster => Api::all_with(self.client(), resource),
        })
    }

    /// Applies a YAML stream of objects of any kind. The namespace of an object without one is `default`. Returns the objects
    /// as the API server stored them.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
        self.apply_in("default", yaml).await
    }

    /// Applies a YAML stream as [`Self::apply`] does. The namespace of an object without one is `namespace`.
    pub async fn apply_in(
        &self,
        namespace: &str,
        yaml: &str,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let params = PatchParams::apply(MANAGER).force();
        let mut stored = Vec::new();
        for (kind, object) in parse(yaml)? {
            let api = self.api((&kind, &object), namespace, KIND_PATIENCE);
            let api = api.await?;
            let (name, patch) = (object.name_any(), Patch::Apply(&object));
            let applied = api.patch(&name, &params, &patch).await;
            stored.push(applied.with_context(|| format!("apply {}", label(&object)))?);
        }
        Ok(stored)
    }

    /// Deletes the objects of a YAML stream in reverse order. It ignores objects that do not exist and kinds that are not
    /// served. The namespace of an object without one is `default`.
    pub async fn delete(&self, yaml: &str) -> anyhow::Result<()> {
        for (kind, object) in parse(yaml)?.into_iter().rev() {
            let api = self.api((&kind, &object), "default", GONE_PATIENCE);
            let Ok(api) = api.await else {
                continue;
            };
            let (name, params) = (object.name_any(), DeleteParams::background());
            match api.delete(&name, &params).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => drop(deleted.with_context(|| format!("delete {}", label(&object)))?),
            }
        }
        Ok(())
    }

    /// Collects diagnostics of a failure into a folder named after the cluster: objects except Secrets, Events, logs of Pods
    /// and of the processes of the node. It never fails; the evidence names data that could not be read.
    pub async fn collect_evidence(&self, evidence: &Evidence) {
        let name = &self.name;
        evidence.keep(&format!("{name}/provider.txt"), &self.provider);
        for kind in ["pods", "events", "nodes", "namespaces", "configmaps"] {
            let found = ["get", kind, "--all-namespaces", "--output=yaml"];
            evidence.keep_result(&format!("{name}/{kind}.yaml"), self.kubectl(&found).await);
        }
        let pods = ["get", "pods", "--all-namespaces", "--no-headers"];
        let pods = self.kubectl(&pods).await.unwrap_or_default();
        // The list is sorted by namespace: namespaces of components precede those of scenarios, which can have a thousand Pods.
        for pod in pods.lines().take(MOST_LOGS) {
            let mut columns = pod.split_whitespace();
            let (namespace, pod) = (columns.next(), columns.next());
            let (namespace, pod) = (namespace.unwrap_or_default(), pod.unwrap_or_default());
            let all = ["--all-containers", "--prefix", "--ignore-errors"];
            let log = [&["logs", "--namespace", namespace, pod], &all[..]].concat();
            let file = format!("{name}/logs/{namespace}/{pod}.log");
            evidence.keep_result(&file, self.kubectl(&log).await);
        }
        let id = self.node.id();
        let log = docker::must(&["logs", "--tail=5000", id]).await;
        let log = log.map(|log| log.stdout + &log.stderr);
        evidence.keep_result(&format!("{name}/container.log"), log);
        let folder = evidence.folder.join(name).join("node");
        let (from, to) = (format!("{id}:{NODE_LOGS}"), folder.display().to_string());
        if let Err(error) = docker::must(&["cp", &from, &to]).await {
            evidence.keep_result(&format!("{name}{NODE_LOGS}"), Err::<&str, _>(error));
        }
    }
}

fn parse(yaml: &str) -> anyhow::Result<Vec<(GroupVersionKind, DynamicObject)>> {
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(yaml).context("not a YAML stream")?;
    // A document that contains only comments is null.
    let objects = documents.into_iter().filter(|document| !document.is_null());
    let objects = objects.map(|document| {
        let object: DynamicObject =
            serde_json::from_value(document).context("not a Kubernetes object")?;
        let types = object.types.as_ref();
        let types = types.with_context(|| format!("{}: no kind", object.name_any()))?;
        Ok((GroupVersionKind::try_from(types)?, object))
    });
    objects.collect()
}

fn label(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("object", |it| &it.kind);
    let namespace = object.namespace().map(|it| it + "/");
    format!(
        "{kind} {}{}",
        namespace.unwrap_or_default(),
        object.name_any()
    )
}

/// Largest number of Pods whose logs are collected.
const MOST_LOGS: usize = 100;
/// Folder with the logs of the node's processes, in its container.
const NODE_LOGS: &str = "/var/log/kube";
const KIND_PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for the discovery of a kind whose objects are deleted. A response takes milliseconds, and if the kind is not
/// served, its objects do not exist.
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
        let labels: Vec<_> = objects.iter().map(|(_, it)| label(it)).collect();
        assert_eq!(labels, ["Namespace a", "ConfigMap a/b"]);
        assert_eq!(objects[1].1.data["data"]["x"], "true");
    }

    #[test]
    fn what_is_not_an_object_is_an_error() {
        assert!(parse("a: [").is_err());
        assert!(parse("- list").is_err());
        assert!(parse("metadata: {name: x}").is_err());
    }
}
