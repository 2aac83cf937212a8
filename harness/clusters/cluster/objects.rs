//! Objects of any kind: applied and deleted as YAML, found through discovery.
//!
//! Invariant: every write is a server-side apply by the field manager [`MANAGER`], with force, so that applying twice
//! is applying once. A kind that is not served *yet* (its CRD was applied a moment ago) is waited for. Deliberately
//! absent: typed objects; use [`Cluster::client`] for those.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, LogParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Client, ResourceExt as _};
use tokio::sync::Mutex;

use super::node::PodTarget;
use super::{Cluster, ClusterError};
use testkit::until::until;

/// Who the API server says wrote what the harness applied.
pub const MANAGER: &str = "harness";

/// What the API server said about kinds, remembered.
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

    async fn find(
        &self,
        kind: &GroupVersionKind,
        patience: Duration,
    ) -> Result<(ApiResource, bool), ClusterError> {
        let mut known = self.known.lock().await;
        if !known.contains_key(kind) {
            let what = format!(
                "the API server serves {}/{} {}",
                kind.group, kind.version, kind.kind
            );
            let found = until(&what, patience, || pinned_kind(&self.client, kind))
                .await
                .map_err(ClusterError::NotReady)?;
            known.insert(kind.clone(), found);
        }
        let (resource, capabilities) = &known[kind];
        Ok((resource.clone(), capabilities.scope == Scope::Namespaced))
    }

    async fn api(
        &self,
        object: &DynamicObject,
        namespace: &str,
        patience: Duration,
    ) -> Result<Api<DynamicObject>, ClusterError> {
        let (resource, namespaced) = self.find(&kind_of(object)?, patience).await?;
        let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
        Ok(if namespaced {
            Api::namespaced_with(self.client.clone(), &namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        })
    }
}

impl Cluster {
    /// Applies a YAML stream of objects of any kind; those that name no namespace go to `default`.
    ///
    /// Gives the objects as the API server stored them, in the order of the stream.
    ///
    /// # Errors
    /// When the text is no manifest, a kind is not served, or the API server refuses an object.
    pub async fn apply(&self, yaml: &str) -> Result<Vec<DynamicObject>, ClusterError> {
        self.apply_in("default", yaml).await
    }

    /// The same, but those that name no namespace go to `namespace`.
    ///
    /// # Errors
    /// As [`Cluster::apply`].
    pub async fn apply_in(
        &self,
        namespace: &str,
        yaml: &str,
    ) -> Result<Vec<DynamicObject>, ClusterError> {
        let params = PatchParams::apply(MANAGER).force();
        let mut stored = Vec::new();
        for object in parse(yaml)? {
            let api = self.kinds.api(&object, namespace, KIND_PATIENCE).await?;
            let applied = api
                .patch(&object.name_any(), &params, &Patch::Apply(&object))
                .await;
            stored.push(applied.map_err(ClusterError::api(format!("apply {}", label(&object))))?);
        }
        Ok(stored)
    }

    /// Deletes what a YAML stream names, last first; what is gone already, or of a kind that is not served, is no error.
    ///
    /// # Errors
    /// When the text is no manifest or the API server refuses.
    pub async fn delete(&self, yaml: &str) -> Result<(), ClusterError> {
        self.delete_in("default", yaml).await
    }

    /// The same, but those that name no namespace are looked for in `namespace`.
    ///
    /// # Errors
    /// As [`Cluster::delete`].
    pub async fn delete_in(&self, namespace: &str, yaml: &str) -> Result<(), ClusterError> {
        for object in parse(yaml)?.into_iter().rev() {
            let api = match self.kinds.api(&object, namespace, GONE_PATIENCE).await {
                Err(ClusterError::NotReady(_)) => continue,
                found => found?,
            };
            match api
                .delete(&object.name_any(), &DeleteParams::background())
                .await
            {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => {
                    return Err(ClusterError::api(format!("delete {}", label(&object)))(
                        error,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The log of a Pod's container.
    ///
    /// # Errors
    /// When there is none yet.
    pub async fn pod_logs(&self, target: PodTarget<'_>) -> Result<String, ClusterError> {
        let params = LogParams {
            container: target.container.map(str::to_owned),
            ..LogParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client(), target.namespace);
        let what = format!("read the log of Pod {}/{}", target.namespace, target.pod);
        pods.logs(target.pod, &params)
            .await
            .map_err(ClusterError::api(what))
    }
}

fn parse(yaml: &str) -> Result<Vec<DynamicObject>, ClusterError> {
    let odd = |reason: String| ClusterError::Manifest { reason };
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| odd(error.to_string()))?;
    documents
        .into_iter()
        // A document of comments only.
        .filter(|document| !document.is_null())
        .map(|document| serde_json::from_value(document).map_err(|error| odd(error.to_string())))
        .collect()
}

fn kind_of(object: &DynamicObject) -> Result<GroupVersionKind, ClusterError> {
    let types = object
        .types
        .as_ref()
        .ok_or_else(|| ClusterError::Manifest {
            reason: format!("{} has no apiVersion and kind", object.name_any()),
        })?;
    GroupVersionKind::try_from(types).map_err(|error| ClusterError::Manifest {
        reason: error.to_string(),
    })
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
    fn what_is_no_object_is_refused() {
        assert!(matches!(
            parse("a: [").unwrap_err(),
            ClusterError::Manifest { .. }
        ));
        assert!(matches!(
            parse("- list").unwrap_err(),
            ClusterError::Manifest { .. }
        ));
        let nameless = parse("metadata: {name: x}").unwrap();
        assert!(matches!(
            kind_of(&nameless[0]).unwrap_err(),
            ClusterError::Manifest { .. }
        ));
    }
}
