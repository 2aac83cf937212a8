//! The objects of one API server, their writes, and their history.
//!
//! One lock protects the objects and is never held across an await. Every accepted write that changes an object increments
//! `resourceVersion`; other writes do not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::behavior::Behavior;
use super::change::Memo;
use super::kinds::Kind;
use super::merge::Owned;
use super::object::{Key, State, Stored, managers_of, strip};
use super::place;
use super::validate;
use super::watch::Log;
use crate::{Place, locked};

/// Data that servers share: a clock, which is tokio's, and the cache of applies.
#[derive(Debug)]
pub struct Common {
    start: Timestamp,
    clock: Instant,
    pub(super) memo: Memo,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            start: Timestamp::now(),
            clock: Instant::now(),
            memo: Memo::default(),
        }
    }
}

impl Common {
    /// Returns a clock that is ahead of that of this process.
    pub(super) fn ahead_by(difference: SignedDuration) -> Self {
        let common = Self::default();
        Self {
            start: common.start + difference,
            ..common
        }
    }

    /// Returns the time since the creation of the clock. The times of [`Seen`] are relative to the same moment.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Returns a time of this clock in whole seconds.
    pub(super) fn time(&self, since_start: Duration) -> Timestamp {
        let time = self.start.checked_add(since_start);
        whole_seconds(time.unwrap_or(self.start))
    }
}

/// State of one object of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Digest of the fields other than metadata and status; absent if the object does not exist.
    pub content: Option<[u8; 16]>,
    /// Time of the last change of any field; zero if the object never existed.
    pub changed: Duration,
}

/// The objects of one API server.
#[derive(Debug)]
pub struct Store {
    pub(super) common: Arc<Common>,
    number: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) objects: BTreeMap<Key, Stored>,
    pub(super) version: u64,
    pub(super) created: u32,
    pub(super) behavior: Arc<Behavior>,
    pub(super) log: Option<Log>,
}

impl Store {
    /// Returns a server with the namespaces `default` and `kube-system`. The number is a part of its UIDs, so that they are
    /// unique among servers.
    pub fn new(common: Arc<Common>, number: u32, behavior: Arc<Behavior>) -> Self {
        let inner = Inner {
            version: 1,
            behavior,
            ..Inner::default()
        };
        let store = Self {
            common,
            number,
            inner: Mutex::new(inner),
        };
        for name in ["default", "kube-system"] {
            let labels =
                json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}});
            store.put(&json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "managedFields": [{
                    "manager": "apiserver", "operation": "Update", "apiVersion": "v1", "fieldsV1": labels,
                }]},
            }));
        }
        store
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change is one step, so a panic leaves complete objects.
        locked(&self.inner)
    }

    /// Returns the behavior of the cluster.
    pub fn behavior(&self) -> Arc<Behavior> {
        Arc::clone(&self.inner().behavior)
    }

    /// Sets the behavior from the next request on.
    pub fn behave(&self, behavior: Arc<Behavior>) {
        self.inner().behavior = behavior;
    }

    /// Keeps all changes from now on, so that a watch may start at any later version.
    pub fn keep_history(&self) {
        let mut inner = self.inner();
        let version = inner.version;
        inner.log.get_or_insert_with(|| Log::since(version));
    }

    /// Clears the history: every watch that has not received all changes expires.
    pub fn expire_watches(&self) {
        let mut inner = self.inner();
        inner.version += 1;
        let version = inner.version;
        if let Some(log) = &mut inner.log {
            log.changes.clear();
            log.forgotten = version;
            log.told.send_replace(version);
        }
    }

    /// Sets the resource version to that of a backup; the objects stay.
    pub fn restore_version(&self, version: u64) {
        self.inner().version = version;
    }

    /// Creates or replaces an object as given, including status, UID and finalizers.
    pub fn put(&self, object: &Value) -> Option<Value> {
        let mut inner = self.inner();
        let key = inner.key_of(object)?;
        let mut content = object.clone();
        let metadata = &object["metadata"];
        let now = self.common.time(self.common.elapsed());
        let deleted = metadata["deletionTimestamp"].as_str();
        let deleted = deleted.map(|time| whole_seconds(time.parse().unwrap_or(now)));
        strip(&mut content);
        validate::defaults(&key, &mut content);
        validate::settle(&key, &mut content);
        let mut managers = managers_of(object);
        if let (Some(live), true) = (inner.live(&key), managers.is_empty()) {
            managers = live.owned().managers;
        }
        let state = Arc::new(State::new(&Owned { content, managers }));
        self.store(&mut inner, &key, state, deleted);
        if let (Some(uid), Some(stored)) = (metadata["uid"].as_str(), inner.objects.get_mut(&key)) {
            stored.uid = uid.into();
        }
        self.render(&inner, &key)
    }

    /// Returns an object as in a response.
    pub fn object(&self, place: &Place) -> Option<Value> {
        let inner = self.inner();
        self.render(&inner, &inner.key(place)?)
    }

    /// Removes an object, even if it has finalizers.
    pub fn remove(&self, place: &Place) {
        let mut inner = self.inner();
        let key = inner.key(place).filter(|key| inner.live(key).is_some());
        if let Some(key) = &key {
            self.drop_object(&mut inner, key);
        }
    }

    /// Deletes an object as a client does: an object with finalizers stays.
    pub fn delete_object(&self, place: &Place) {
        let key = self.inner().key(place);
        // An object that does not exist is already deleted.
        let _ = key.map(|key| self.delete(&key, b""));
    }

    /// Returns the sorted locations of all objects.
    pub fn places(&self) -> Vec<Place> {
        let inner = self.inner();
        let live = inner.objects.iter().filter(|(_, it)| it.state.is_some());
        let places = live.map(|(key, _)| place(key.kind.resource, &key.namespace, &key.name));
        places.collect()
    }

    /// Returns the state of an object.
    pub fn seen(&self, place: &Place) -> Seen {
        let inner = self.inner();
        let stored = inner.key(place).and_then(|key| inner.objects.get(&key));
        stored.map_or_else(Seen::default, |stored| Seen {
            content: stored.state.as_ref().map(|state| state.content),
            changed: stored.changed,
        })
    }

    /// Returns the largest number of applies of one object that changed nothing.
    pub fn most_idle_applies(&self) -> u32 {
        let inner = self.inner();
        let idle = inner.objects.values().map(|stored| stored.idle_applies);
        idle.max().unwrap_or_default()
    }

    /// Resets the counters of applies that changed nothing.
    pub fn reset_counts(&self) {
        let mut inner = self.inner();
        let stored = inner.objects.values_mut();
        stored.for_each(|stored| stored.idle_applies = 0);
    }

    pub(super) fn drop_object(&self, inner: &mut Inner, key: &Key) {
        inner.version += 1;
        let version = inner.version;
        let Some(stored) = inner.objects.get_mut(key) else {
            return;
        };
        stored.version = version;
        stored.changed = self.common.elapsed();
        let before = stored.state.take();
        let last = stored.clone();
        stored.deleted = None;
        inner.tell(key, last, before);
        let home = inner.namespace_key(&key.namespace);
        if let Some(home) = home.filter(|home| inner.is_released(home)) {
            self.drop_object(inner, &home);
        }
    }

    /// Stores the next state of an object, and the time of its deletion. Returns whether the object changes.
    pub(super) fn store(
        &self,
        inner: &mut Inner,
        key: &Key,
        state: Arc<State>,
        deleted: Option<Timestamp>,
    ) -> bool {
        let stored = inner.objects.entry(key.clone()).or_default();
        let is_new = stored.state.is_none();
        let digest = stored.state.as_ref().map(|state| state.digest);
        if digest == Some(state.digest) && stored.deleted == deleted {
            return false;
        }
        let is_last_finalizer = !is_new && deleted.is_some() && !state.is_held();
        if is_last_finalizer && key.kind.resource != "namespaces" {
            // This is a deletion and not a write.
            stored.state = Some(state);
            return true;
        }
        inner.version += 1;
        inner.created += u32::from(is_new);
        let now = self.common.elapsed();
        if is_new {
            let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.number, inner.created);
            *stored = Stored {
                uid: uid.into(),
                created: now,
                idle_applies: stored.idle_applies,
                ..Stored::default()
            };
        } else if stored.deleted.is_none() && deleted.is_some() {
            stored.generation += 1;
        }
        let before = stored.state.replace(Arc::clone(&state));
        if before.as_ref().map(|before| before.content) != Some(state.content) {
            stored.generation += 1;
            stored.respecified = now;
        }
        (stored.version, stored.changed, stored.deleted) = (inner.version, now, deleted);
        let stored = stored.clone();
        inner.tell(key, stored, before);
        true
    }

    /// Returns an object as in a response; `None` if it does not exist.
    pub(super) fn render(&self, inner: &Inner, key: &Key) -> Option<Value> {
        let stored = inner.objects.get(key)?;
        stored.render(key, &self.common, &inner.behavior)
    }
}

impl Inner {
    pub(super) fn live(&self, key: &Key) -> Option<Arc<State>> {
        self.objects.get(key)?.state.clone()
    }

    /// Returns the key of the Namespace object; `None` for an empty name.
    pub(super) fn namespace_key(&self, name: &str) -> Option<Key> {
        (!name.is_empty()).then(|| self.key(&place("namespaces", "", name)))?
    }

    /// Whether an object that is being deleted can be removed.
    pub(super) fn is_released(&self, key: &Key) -> bool {
        let stored = self.objects.get(key).filter(|it| it.deleted.is_some());
        let free = stored
            .and_then(|it| it.state.as_ref())
            .is_some_and(|it| !it.is_held());
        free && (key.kind.resource != "namespaces" || self.inside(&key.name).next().is_none())
    }

    pub(super) fn inside(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Stored)> {
        let objects = self.objects.iter().filter(|(_, it)| it.state.is_some());
        objects.filter(move |(key, _)| *key.namespace == *namespace)
    }

    fn key(&self, place: &Place) -> Option<Key> {
        let mut kinds = self.behavior.kinds.iter();
        let kind = kinds.find(|kind| kind.resource == place.resource)?;
        Some(Key {
            kind,
            namespace: place.namespace.as_str().into(),
            name: place.name.as_str().into(),
        })
    }

    /// Returns the location of an object from its own fields.
    fn key_of(&self, object: &Value) -> Option<Key> {
        let is_it =
            |it: &&&Kind| object["kind"] == it.name && object["apiVersion"] == it.api_version;
        let kind = self.behavior.kinds.iter().find(is_it)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        Some(Key {
            kind,
            namespace: text("namespace").into(),
            name: text("name").into(),
        })
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
