//! One stored object.
//!
//! A simulator of thousands of clusters keeps hundreds of thousands of them, so what clusters have in common is held once:
//! a [`State`] never changes and is shared by every cluster that has the same; what differs (uid, versions, times,
//! counters) is numbers.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::behaviour::Behaviour;
use super::fields;
use super::kinds::Kind;
use super::merge::{Manager, Operation, Owned};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: &'static Kind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

/// Content and owners.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Of the object.
    pub(super) digest: Digest,
    /// Of what is neither metadata nor status.
    pub(super) content: Digest,
    /// The object with its owners, without what the server writes itself.
    pub(super) object: Value,
}

/// Enough of SHA-256 that two contents never meet.
pub(super) type Digest = [u8; 16];

impl State {
    pub(super) fn new(owned: &Owned) -> Self {
        let mut spec = owned.content.clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| {
                !matches!(
                    field.as_str(),
                    "apiVersion" | "kind" | "metadata" | "status"
                )
            });
        }
        let mut object = owned.content.clone();
        if !owned.managers.is_empty() {
            object["metadata"]["managedFields"] = owned.managers.iter().map(entry_of).collect();
        }
        Self {
            digest: digest([object.to_string()]),
            content: digest([spec.to_string()]),
            object,
        }
    }

    /// The object again, to be merged with something.
    pub(super) fn owned(&self) -> Owned {
        let managers = managers_of(&self.object);
        let mut content = self.object.clone();
        strip(&mut content);
        Owned { content, managers }
    }

    /// Whether finalizers keep the object.
    pub(super) fn is_held(&self) -> bool {
        let finalizers = self.object["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|it| !it.is_empty())
    }
}

/// One object of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Absent once it was deleted; the counters stay.
    pub(super) state: Option<Arc<State>>,
    pub(super) uid: Uid,
    pub(super) version: u64,
    pub(super) generation: u32,
    /// Since the start of the server, like the times below.
    pub(super) created: Duration,
    pub(super) changed: Duration,
    /// When what is neither metadata nor status changed last.
    pub(super) respecified: Duration,
    /// When its deletion was asked for, while finalizers keep it: whole seconds.
    pub(super) deleted: Option<Timestamp>,
    /// Server-side applies that changed nothing.
    pub(super) idle_applies: u32,
}

/// A uid: the number of the cluster and that of the object in it, or one that a test has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Uid {
    Numbered { cluster: u32, object: u32 },
    Chosen(Arc<str>),
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Numbered { cluster, object } => {
                write!(f, "{cluster:08x}-0000-4000-8000-{object:012x}")
            }
            Self::Chosen(uid) => f.write_str(uid),
        }
    }
}

/// What a rendering depends on besides the object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    /// When the server started, for times that people read.
    pub(super) start: Timestamp,
    /// Since then.
    pub(super) now: Duration,
    pub(super) behaviour: &'a Behaviour,
}

impl Scene<'_> {
    fn time(&self, since_start: Duration) -> Value {
        let seconds = i64::try_from(since_start.as_secs()).unwrap_or_default();
        let time = Timestamp::from_second(self.start.as_second() + seconds);
        json!(time.unwrap_or(self.start).to_string())
    }
}

impl Stored {
    /// The object as the API server would give it; `None` once it is deleted.
    pub(super) fn render(&self, key: &Key, scene: Scene<'_>) -> Option<Value> {
        let mut object = self.state.as_ref()?.object.clone();
        object["apiVersion"] = json!(key.kind.api_version());
        object["kind"] = json!(key.kind.name);
        let metadata = &mut object["metadata"];
        let is_kube_system = key.kind.resource == "namespaces" && &*key.name == "kube-system";
        let identity = scene.behaviour.identity.clone().filter(|_| is_kube_system);
        metadata["name"] = json!(&*key.name);
        metadata["uid"] = json!(identity.unwrap_or_else(|| self.uid.to_string()));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["creationTimestamp"] = scene.time(self.created);
        if !key.namespace.is_empty() {
            metadata["namespace"] = json!(&*key.namespace);
        }
        if let Some(deleted) = self.deleted {
            metadata["deletionTimestamp"] = json!(deleted.to_string());
        }
        if key.kind.generation {
            metadata["generation"] = json!(self.generation);
        }
        for entry in metadata["managedFields"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            entry["time"] = scene.time(self.changed);
        }
        if key.kind.resource == "deployments" && object["status"].is_null() {
            let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
            object["status"] = self.deployment_status(replicas, scene);
        }
        Some(object)
    }

    /// What the Deployment controller would write: computed, so that a rollout needs no timer and no write.
    fn deployment_status(&self, replicas: u64, scene: Scene<'_>) -> Value {
        let takes = scene.behaviour.rollout.time();
        let done = takes.is_some_and(|takes| scene.now >= self.respecified + takes);
        // Pods beyond the wanted ones during a rolling update: a quarter, which is the default.
        let surge = replicas.div_ceil(4);
        // While Pods of a new template do not become ready, a rolling update keeps those of the earlier one beside them.
        let (all, updated, ready) = match (done, self.generation) {
            (true, _) => (replicas, replicas, replicas),
            (false, ..=1) => (replicas, replicas, 0),
            (false, _) => (replicas + surge, surge, replicas),
        };
        let time = scene.time(self.respecified);
        let condition = |kind: &str, is_so: bool, reasons: [&str; 2]| {
            let status = if is_so { "True" } else { "False" };
            json!({"type": kind, "status": status, "reason": reasons[usize::from(!is_so)],
                "lastUpdateTime": time, "lastTransitionTime": time})
        };
        let minimum = ["MinimumReplicasAvailable", "MinimumReplicasUnavailable"];
        let mut progressing = condition("Progressing", true, ["ReplicaSetUpdated", ""]);
        if done {
            progressing["reason"] = json!("NewReplicaSetAvailable");
        }
        json!({
            "observedGeneration": self.generation,
            "replicas": all, "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": all - ready,
            "conditions": [condition("Available", ready == replicas, minimum), progressing],
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

/// `managedFields` of an object that a client sent back.
pub(super) fn managers_of(object: &Value) -> Vec<Manager> {
    let entries = object["metadata"]["managedFields"].as_array();
    let manager = |entry: &Value| {
        Some(Manager {
            name: entry["manager"].as_str()?.to_owned(),
            operation: match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                _ => Operation::Update,
            },
            status: entry["subresource"] == "status",
            api_version: entry["apiVersion"].as_str()?.to_owned(),
            fields: fields::from_json(&entry["fieldsV1"]),
        })
    };
    entries.into_iter().flatten().filter_map(manager).collect()
}

/// The entry of a manager in `managedFields`, without the time.
fn entry_of(manager: &Manager) -> Value {
    let mut entry = json!({
        "manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version,
        "fieldsType": "FieldsV1", "fieldsV1": fields::to_json(&manager.fields),
    });
    if manager.status {
        entry["subresource"] = json!("status");
    }
    entry
}

/// Removes what the store keeps beside the content.
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

/// Fields of `metadata` that the API server writes itself: they have no owner and are not part of the content.
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
