//! One stored object: small, because there are hundreds of thousands of them.
//!
//! Invariant: what runtimes have in common is held once. A [`State`] is text that is never changed, shared by every
//! runtime that has the same; what differs (uid, versions, times, counters) is numbers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::kinds::{KINDS, Kind};
use super::merge::{Manager, Owned};

mod sent;

pub(super) use sent::{managers_of, strip};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Its number in the table of kinds.
    pub(super) kind: u8,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Key {
    pub(super) fn kind(&self) -> &'static Kind {
        &KINDS[usize::from(self.kind)]
    }
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
        spec.remove("status");
        let (metadata, rest) = (inside(&metadata), inside(&Value::Object(rest)));
        let mut all = Sha256::new();
        all.update(format!("{metadata}\n{rest}"));
        for (manager, fields) in &managers {
            let Manager {
                name,
                operation,
                api_version,
                ..
            } = manager;
            all.update(format!(
                "\n{name}\n{}\n{api_version}\n{fields}",
                operation.name()
            ));
        }
        Self {
            digest: short(all),
            content: digest(Value::Object(spec).to_string().as_bytes()),
            metadata,
            rest,
            managers,
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

/// One object of one runtime.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Absent once it was deleted; the counters stay.
    pub(super) state: Option<Arc<State>>,
    pub(super) uid: Uid,
    pub(super) version: u64,
    pub(super) generation: u32,
    /// Since the fleet's start.
    pub(super) created: Duration,
    pub(super) changed: Duration,
    /// When what is neither metadata nor status changed last.
    pub(super) respecified: Duration,
    pub(super) applies: Applies,
}

/// Server-side applies of one object that were accepted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applies {
    pub(super) changing: u32,
    pub(super) idle: u32,
}

/// A uid that says whose it is: the runtime, and the how-manieth object of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uid {
    pub(super) runtime: u32,
    pub(super) object: u32,
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:08x}-0000-4000-8000-{:012x}",
            self.runtime, self.object
        )
    }
}

/// What a rendering depends on besides the object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    /// When the fleet started, for times that people read.
    pub(super) start: Timestamp,
    /// Since then.
    pub(super) now: Duration,
    /// How long a Deployment takes; `None`: it never becomes available.
    pub(super) rollout: Option<Duration>,
    /// The uid that `kube-system` pretends to have.
    pub(super) identity: Option<&'a str>,
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
        let kind = key.kind();
        let (api_version, kind) = (kind.api_version(), kind.name);
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
        let uid = match scene.identity {
            Some(identity) if is_kube_system(key) => identity.to_owned(),
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
        if key.kind().generation {
            let _ = write!(text, ",\"generation\":{}", self.generation);
        }
        self.render_managers(&mut text, &state.managers, scene);
        text.push('}');
        if key.kind().resource == "deployments" {
            let _ = write!(text, ",\"status\":{}", self.deployment_status(scene));
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
                format!(
                    "{{\"manager\":{},\"operation\":\"{}\",\"apiVersion\":\"{}\",\"time\":\"{time}\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{fields}}}",
                    Value::from(manager.name.as_str()),
                    manager.operation.name(),
                    manager.api_version,
                )
            })
            .collect();
        let _ = write!(text, ",\"managedFields\":[{}]", entries.join(","));
    }

    /// Plays the Deployment's controller: nothing of it is stored, so a rollout needs no timer and no write.
    fn deployment_status(&self, scene: Scene<'_>) -> Value {
        let done = scene
            .rollout
            .is_some_and(|takes| scene.now >= self.respecified + takes);
        let condition = |kind: &str, status: bool, reason: &str| {
            let status = if status { "True" } else { "False" };
            json!({"type": kind, "status": status, "reason": reason,
                "lastUpdateTime": scene.time(self.respecified),
                "lastTransitionTime": scene.time(self.respecified)})
        };
        let (ready, available, progressing) = if done {
            let available = condition("Available", true, "MinimumReplicasAvailable");
            (
                2,
                available,
                condition("Progressing", true, "NewReplicaSetAvailable"),
            )
        } else {
            let available = condition("Available", false, "MinimumReplicasUnavailable");
            (
                0,
                available,
                condition("Progressing", true, "ReplicaSetUpdated"),
            )
        };
        json!({
            "observedGeneration": self.generation,
            "replicas": 2, "updatedReplicas": 2,
            "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": 2 - ready,
            "conditions": [available, progressing],
        })
    }
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    short(Sha256::new_with_prefix(bytes))
}

pub(super) fn short(hash: Sha256) -> Digest {
    let full = hash.finalize();
    std::array::from_fn(|index| full[index])
}

fn is_kube_system(key: &Key) -> bool {
    key.kind().resource == "namespaces" && &*key.name == "kube-system"
}

/// The text of an object without its braces.
fn inside(value: &Value) -> Box<str> {
    let text = value.to_string();
    let inside = text.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    inside.unwrap_or_default().into()
}
