//! One stored object.
//!
//! A simulator of thousands of clusters keeps hundreds of thousands of them, so what clusters have in common is held once:
//! a [`State`] is text that is never changed, shared by every cluster that has the same; what differs (uid, versions,
//! times, counters) is numbers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::behaviour::Behaviour;
use super::fields::Fields;
use super::kinds::Kind;
use super::merge::{Manager, Operation, Owned};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: &'static Kind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

/// Content and owners, as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Of everything below.
    pub(super) digest: Digest,
    /// Of what is neither metadata nor status.
    pub(super) content: Digest,
    /// The inside of `metadata`.
    metadata: Box<str>,
    /// The inside of the object, but for `metadata`.
    rest: Box<str>,
    managers: Vec<(Manager, Box<str>)>,
    /// `spec.replicas`, which is 1 unless said.
    replicas: u32,
    /// Whether finalizers keep the object.
    pub(super) held: bool,
    /// Whether it has a status of its own, beside what controllers would write.
    has_status: bool,
}

/// Enough of SHA-256 that two contents never meet.
pub(super) type Digest = [u8; 16];

impl State {
    pub(super) fn new(owned: &Owned) -> Self {
        let mut rest = owned.content.as_object().cloned().unwrap_or_default();
        let metadata = rest.remove("metadata").unwrap_or_default();
        // What the kind says already.
        rest.remove("apiVersion");
        rest.remove("kind");
        let managers: Vec<(Manager, Box<str>)> = owned
            .managers
            .iter()
            .map(|manager| {
                let fields = manager.fields.to_json().to_string();
                (manager.clone(), fields.into_boxed_str())
            })
            .collect();
        let mut spec = rest.clone();
        let has_status = spec.remove("status").is_some();
        let replicas = owned
            .content
            .pointer("/spec/replicas")
            .and_then(Value::as_u64);
        let finalizers = metadata["finalizers"].as_array();
        let held = finalizers.is_some_and(|it| !it.is_empty());
        let (metadata, rest) = (inside(&metadata), inside(&Value::Object(rest)));
        let mut all = Sha256::new();
        all.update(format!("{metadata}\n{rest}"));
        for (manager, fields) in &managers {
            let Manager {
                name,
                operation,
                api_version,
                status,
                ..
            } = manager;
            let operation = operation.name();
            all.update(format!(
                "\n{name}\n{operation}\n{api_version}\n{status}\n{fields}"
            ));
        }
        Self {
            digest: short(all),
            content: digest(Value::Object(spec).to_string().as_bytes()),
            metadata,
            rest,
            managers,
            replicas: replicas.and_then(|it| u32::try_from(it).ok()).unwrap_or(1),
            held,
            has_status,
        }
    }

    /// The object again, to be merged with something.
    pub(super) fn owned(&self) -> Owned {
        // Both were written by `new`.
        let read =
            |inside: &str| serde_json::from_str(&format!("{{{inside}}}")).unwrap_or_default();
        let mut content: Value = read(&self.rest);
        content["metadata"] = read(&self.metadata);
        Owned {
            content,
            managers: self.managers.iter().map(|(it, _)| it.clone()).collect(),
        }
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
    pub(super) applies: Applies,
}

/// Server-side applies of one object that were accepted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applies {
    pub(super) changing: u32,
    pub(super) idle: u32,
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
    fn time(&self, since_start: Duration) -> String {
        let seconds = i64::try_from(since_start.as_secs()).unwrap_or_default();
        let time = Timestamp::from_second(self.start.as_second() + seconds);
        time.unwrap_or(self.start).to_string()
    }
}

impl Stored {
    /// The object as the API server would give it; `None` once it is deleted.
    pub(super) fn render(&self, key: &Key, scene: Scene<'_>) -> Option<String> {
        let (api_version, kind) = (key.kind.api_version(), key.kind.name);
        let item = self.render_item(key, scene)?;
        Some(format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",{}",
            &item[1..]
        ))
    }

    /// The same as part of a list, where objects do not say their kind.
    pub(super) fn render_item(&self, key: &Key, scene: Scene<'_>) -> Option<String> {
        let state = self.state.as_ref()?;
        let mut text = String::with_capacity(state.rest.len() + state.metadata.len() + 1024);
        let uid = match &scene.behaviour.identity {
            Some(identity) if is_kube_system(key) => identity.clone(),
            _ => self.uid.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{{{}{}\"metadata\":{{{}{}\"name\":{},\"uid\":\"{uid}\",\"resourceVersion\":\"{}\",\"creationTimestamp\":\"{}\"",
            state.rest,
            if state.rest.is_empty() { "" } else { "," },
            state.metadata,
            if state.metadata.is_empty() { "" } else { "," },
            Value::from(&*key.name),
            self.version,
            scene.time(self.created),
        );
        if !key.namespace.is_empty() {
            let _ = write!(text, ",\"namespace\":{}", Value::from(&*key.namespace));
        }
        if let Some(deleted) = self.deleted {
            let _ = write!(text, ",\"deletionTimestamp\":\"{deleted}\"");
        }
        if key.kind.generation {
            let _ = write!(text, ",\"generation\":{}", self.generation);
        }
        self.render_managers(&mut text, &state.managers, scene);
        text.push('}');
        if key.kind.resource == "deployments" && !state.has_status {
            let status = self.deployment_status(state.replicas, scene);
            let _ = write!(text, ",\"status\":{status}");
        }
        text.push('}');
        Some(text)
    }

    fn render_managers(
        &self,
        text: &mut String,
        managers: &[(Manager, Box<str>)],
        scene: Scene<'_>,
    ) {
        if managers.is_empty() {
            return;
        }
        let time = scene.time(self.changed);
        let entries: Vec<String> = managers
            .iter()
            .map(|(manager, fields)| {
                let part = if manager.status { ",\"subresource\":\"status\"" } else { "" };
                format!(
                    "{{\"manager\":{},\"operation\":\"{}\",\"apiVersion\":\"{}\",\"time\":\"{time}\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{fields}{part}}}",
                    Value::from(manager.name.as_str()),
                    manager.operation.name(),
                    manager.api_version,
                )
            })
            .collect();
        let _ = write!(text, ",\"managedFields\":[{}]", entries.join(","));
    }

    /// What the Deployment controller would write: computed, so that a rollout needs no timer and no write.
    fn deployment_status(&self, replicas: u32, scene: Scene<'_>) -> Value {
        let takes = scene.behaviour.rollout.time();
        let done = takes.is_some_and(|takes| scene.now >= self.respecified + takes);
        let condition = |kind: &str, status: bool, reason: &str| {
            let status = if status { "True" } else { "False" };
            json!({"type": kind, "status": status, "reason": reason,
                "lastUpdateTime": scene.time(self.respecified),
                "lastTransitionTime": scene.time(self.respecified)})
        };
        // While Pods of a new template do not become ready, a rolling update keeps those of the earlier one beside them.
        let (all, updated, ready) = match (done, self.generation) {
            (true, _) => (replicas, replicas, replicas),
            (false, ..=1) => (replicas, replicas, 0),
            (false, _) => (replicas + surge(replicas), surge(replicas), replicas),
        };
        let available = if ready == replicas {
            "MinimumReplicasAvailable"
        } else {
            "MinimumReplicasUnavailable"
        };
        let progressing = if done {
            "NewReplicaSetAvailable"
        } else {
            "ReplicaSetUpdated"
        };
        json!({
            "observedGeneration": self.generation,
            "replicas": all, "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": all - ready,
            "conditions": [
                condition("Available", ready == replicas, available), condition("Progressing", true, progressing),
            ],
        })
    }
}

/// Pods beyond the wanted ones during a rolling update: a quarter, which is the default.
fn surge(replicas: u32) -> u32 {
    replicas.div_ceil(4)
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    short(Sha256::new_with_prefix(bytes))
}

pub(super) fn short(hash: Sha256) -> Digest {
    let full = hash.finalize();
    std::array::from_fn(|index| full[index])
}

fn is_kube_system(key: &Key) -> bool {
    key.kind.resource == "namespaces" && &*key.name == "kube-system"
}

/// The text of an object without its braces.
fn inside(value: &Value) -> Box<str> {
    let text = value.to_string();
    let inside = text.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    inside.unwrap_or_default().into()
}

/// `managedFields` of an object that a client sent back.
pub(super) fn managers_of(object: &Value) -> Vec<Manager> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let manager = |entry: &Value| {
        Some(Manager {
            name: entry["manager"].as_str()?.to_owned(),
            operation: match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                _ => Operation::Update,
            },
            status: entry["subresource"] == "status",
            api_version: entry["apiVersion"].as_str()?.to_owned(),
            fields: Fields::from_json(&entry["fieldsV1"]),
        })
    };
    entries.into_iter().flatten().filter_map(manager).collect()
}

/// Takes away what the store keeps beside the content.
pub(super) fn strip(object: &mut Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let metadata = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        for field in KEPT_APART {
            metadata.remove(field);
        }
        metadata.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
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
