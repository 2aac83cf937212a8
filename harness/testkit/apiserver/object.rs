//! One stored object.
//!
//! A simulator of thousands of clusters stores hundreds of thousands of objects, so common data is stored once. A [`State`] is
//! immutable and shared by all clusters with an equal object. The fields that differ (UID, versions, times, counters) are
//! mostly numbers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::behavior::Behavior;
use super::kinds::{Handling, Kind};
use super::merge::{Manager, Owned};
use super::store::Common;

/// Location of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: &'static Kind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl fmt::Display for Key {
    /// Writes the name of the object as in messages: `secrets "a"`, `deployments.apps "a"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { resource, .. } = self.kind;
        match self.kind.group() {
            "" => write!(f, "{resource} \"{}\"", self.name),
            group => write!(f, "{resource}.{group} \"{}\"", self.name),
        }
    }
}

/// Content and owners of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Digest of the object.
    pub(super) digest: Digest,
    /// Digest of the fields other than metadata and status.
    pub(super) content: Digest,
    /// The object with its owners, without the fields that the server writes itself.
    pub(super) object: Value,
}

/// A prefix of a SHA-256 hash that is long enough to avoid collisions.
pub(super) type Digest = [u8; 16];

impl State {
    pub(super) fn new(owned: &Owned) -> Self {
        let mut spec = owned.content.clone();
        if let Some(spec) = spec.as_object_mut() {
            let around = ["apiVersion", "kind", "metadata", "status"];
            spec.retain(|field, _| !around.contains(&field.as_str()));
        }
        let mut object = owned.content.clone();
        if !owned.managers.is_empty() {
            object["metadata"]["managedFields"] = json!(owned.managers);
        }
        Self {
            digest: digest([object.to_string()]),
            content: digest([spec.to_string()]),
            object,
        }
    }

    /// Returns the content and the owners as input for a merge.
    pub(super) fn owned(&self) -> Owned {
        let managers = managers_of(&self.object);
        let mut content = self.object.clone();
        strip(&mut content);
        Owned { content, managers }
    }

    /// Whether the object has finalizers.
    pub(super) fn is_held(&self) -> bool {
        let finalizers = self.object["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|it| !it.is_empty())
    }
}

/// One object of one cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    /// Content and owners; absent after the object was deleted. The counters stay.
    pub(super) state: Option<Arc<State>>,
    pub(super) uid: Arc<str>,
    pub(super) version: u64,
    pub(super) generation: u32,
    /// Time of the creation since the start of the server, like the times below.
    pub(super) created: Duration,
    pub(super) changed: Duration,
    /// Time of the last change outside of metadata and status.
    pub(super) respecified: Duration,
    /// Time of the deletion in whole seconds, while finalizers keep the object.
    pub(super) deleted: Option<Timestamp>,
    /// Number of server-side applies that changed nothing.
    pub(super) idle_applies: u32,
}

impl Stored {
    /// Returns the object as in a response of the API server; `None` after it was deleted.
    pub(super) fn render(&self, key: &Key, common: &Common, behavior: &Behavior) -> Option<Value> {
        let mut object = self.state.as_ref()?.object.clone();
        object["apiVersion"] = json!(key.kind.api_version);
        object["kind"] = json!(key.kind.name);
        let metadata = &mut object["metadata"];
        let is_kube_system = key.kind.resource == "namespaces" && &*key.name == "kube-system";
        let identity = behavior.identity.as_deref().filter(|_| is_kube_system);
        metadata["name"] = json!(&*key.name);
        metadata["uid"] = json!(identity.unwrap_or(&self.uid));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["creationTimestamp"] = json!(common.time(self.created).to_string());
        if !key.namespace.is_empty() {
            metadata["namespace"] = json!(&*key.namespace);
        }
        if let Some(deleted) = self.deleted {
            metadata["deletionTimestamp"] = json!(deleted.to_string());
        }
        if key.kind.handling >= Handling::Generation {
            metadata["generation"] = json!(self.generation);
        }
        // Indexing would add an absent field.
        let managers = metadata
            .get_mut("managedFields")
            .and_then(Value::as_array_mut);
        for entry in managers.into_iter().flatten() {
            entry["time"] = json!(common.time(self.changed).to_string());
        }
        if key.kind.resource == "deployments" && object["status"].is_null() {
            let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
            object["status"] = self.deployment_status(replicas, common, !behavior.stuck);
        }
        Some(object)
    }

    /// Returns the status that the Deployment controller would write. It is computed, so that a rollout needs no timer and no
    /// write.
    fn deployment_status(&self, replicas: u64, common: &Common, done: bool) -> Value {
        // Number of additional Pods during a rolling update: a quarter, which is the default.
        let surge = replicas.div_ceil(4);
        // While Pods of a new template are not ready, a rolling update keeps the earlier Pods.
        let (all, updated, ready) = match (done, self.generation) {
            (true, _) => (replicas, replicas, replicas),
            (false, ..=1) => (replicas, replicas, 0),
            (false, _) => (replicas + surge, surge, replicas),
        };
        let time = common.time(self.respecified).to_string();
        let condition = |kind: &str, is_so: bool, reason: &str| {
            let status = if is_so { "True" } else { "False" };
            json!({"type": kind, "status": status, "reason": reason,
                "lastUpdateTime": time, "lastTransitionTime": time})
        };
        let (minimum, progress) = match (ready == replicas, done) {
            (true, true) => ("MinimumReplicasAvailable", "NewReplicaSetAvailable"),
            (true, false) => ("MinimumReplicasAvailable", "ReplicaSetUpdated"),
            (false, _) => ("MinimumReplicasUnavailable", "ReplicaSetUpdated"),
        };
        json!({
            "observedGeneration": self.generation,
            "replicas": all, "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": all - ready,
            "conditions": [
                condition("Available", ready == replicas, minimum),
                condition("Progressing", true, progress),
            ],
        })
    }
}

pub(super) fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update("\n");
    }
    let full = hash.finalize();
    std::array::from_fn(|index| full[index])
}

/// Returns the `managedFields` of an object that a client sent.
pub(super) fn managers_of(object: &Value) -> Vec<Manager> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|it| Manager::deserialize(it).ok())
        .collect()
}

/// Removes the fields that the store keeps separately from the content.
pub(super) fn strip(object: &mut Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|field, value| {
            !KEPT_APART.contains(&field.as_str()) && !value.as_object().is_some_and(Map::is_empty)
        });
    }
}

/// Fields of `metadata` that the API server writes itself. They have no owner and are not part of the content.
pub(super) const KEPT_APART: [&str; 9] = [
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];
