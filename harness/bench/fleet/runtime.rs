//! One runtime: its objects, what was done to them, and what it is like to deal with.
//!
//! Invariant: one lock a runtime, never held over an await. Every accepted write that changes something moves the
//! runtime's `resourceVersion`; one that changes nothing moves nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::runtimes::{OWNER_MARKER, OWNER_RUNTIME_ID};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::conditions::Conditions;
use super::identity::Accepted;
use super::ledger::Counts;
use super::memo::Memo;
use super::merge::Applier;
use super::object::{Applies, Key, Scene, State, Stored, Uid};
use super::path::{Query, Target};
use super::status::Refusal;
use super::validate;
use clusters::control_plane::runtime_id;

mod edit;
mod read;

pub(super) use edit::founding;
use edit::{edited, expected, no_manager};
pub(super) use read::{Change, Watch, selects};

/// What all runtimes share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) start: Timestamp,
    pub(super) clock: std::time::Instant,
    pub(super) memo: Memo,
    /// What a runtime has from the start.
    pub(super) founding: Vec<(Key, Arc<State>)>,
}

/// One runtime.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) id: String,
    pub(super) number: usize,
    common: Arc<Common>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) objects: BTreeMap<Key, Stored>,
    version: u64,
    /// Objects ever made.
    made: u32,
    pub(super) conditions: Arc<Conditions>,
    pub(super) accepted: Accepted,
    pub(super) counts: Counts,
    /// Only where somebody watches.
    changes: Option<broadcast::Sender<Change>>,
}

/// A write that was carried out: the status of the answer and its body.
pub(super) type Written = Result<(StatusCode, String), Refusal>;

/// A JSON patch, or an object to be made: what is not an apply.
pub(super) struct Edit<'a> {
    pub(super) body: &'a [u8],
    pub(super) manager: &'a str,
}

impl Runtime {
    /// A new cluster, with what every new one has.
    pub(super) fn new(common: Arc<Common>, number: usize, conditions: Arc<Conditions>) -> Self {
        let runtime = Self {
            id: runtime_id(number),
            number,
            common,
            inner: Mutex::new(Inner {
                objects: BTreeMap::new(),
                version: 1,
                made: 0,
                conditions: Arc::default(),
                accepted: Accepted::default(),
                counts: Counts::default(),
                changes: None,
            }),
        };
        let mut inner = runtime.inner();
        for (key, state) in &runtime.common.founding {
            runtime.store(&mut inner, key, Arc::clone(state), true);
        }
        inner.counts = Counts::default();
        inner.conditions = conditions;
        drop(inner);
        runtime
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        // Changes are made in one step, so a panic leaves whole objects behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Server-side apply.
    pub(super) fn apply(&self, target: &Target, query: &Query, body: &[u8]) -> Written {
        let manager = query.field_manager.as_deref().ok_or_else(no_manager)?;
        let api_version = target.kind.api_version();
        let applier = Applier {
            name: manager,
            api_version: &api_version,
            force: query.force,
        };
        let mut inner = self.inner();
        let key = target.key();
        let live = inner.live(&key);
        inner.admit(target, live.is_none())?;
        let state = self
            .common
            .memo
            .apply(target, live.as_ref(), body, applier)?;
        let changing = live.as_ref().is_none_or(|live| live.digest != state.digest);
        let status = if live.is_none() {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        self.store(&mut inner, &key, state, changing);
        if let Some(stored) = inner.objects.get_mut(&key) {
            let Applies {
                changing: yes,
                idle,
            } = &mut stored.applies;
            *if changing { yes } else { idle } += 1;
        }
        Ok((status, inner.render(&key, self.scene(&inner.conditions))))
    }

    /// JSON patch.
    pub(super) fn patch(&self, target: &Target, edit: &Edit<'_>) -> Written {
        let operations: json_patch::Patch = serde_json::from_slice(edit.body)
            .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
        let mut inner = self.inner();
        let key = target.key();
        let (Some(live), Some(stored)) = (inner.live(&key), inner.objects.get(&key)) else {
            return Err(Refusal::not_found(target.kind, &target.name));
        };
        inner.admit(target, false)?;
        let version = stored.version.to_string();
        let text = inner.render(&key, self.scene(&inner.conditions));
        let mut object: Value = serde_json::from_str(&text).unwrap_or_default();
        json_patch::patch(&mut object, &operations)
            .map_err(|error| Refusal::unprocessable(&error.to_string()))?;
        let named = object.pointer("/metadata/resourceVersion");
        if named.is_some_and(|named| *named != json!(version)) {
            return Err(Refusal::modified(target.kind, &target.name));
        }
        let state = edited(target, Some(&live), object, edit.manager)?;
        let changing = live.digest != state.digest;
        self.store(&mut inner, &key, Arc::new(state), changing);
        Ok((
            StatusCode::OK,
            inner.render(&key, self.scene(&inner.conditions)),
        ))
    }

    /// POST of an object to its collection.
    pub(super) fn create(&self, target: &Target, edit: &Edit<'_>) -> Written {
        let object: Value = serde_json::from_slice(edit.body)
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let mut target = target.clone();
        object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .clone_into(&mut target.name);
        validate::shape(&target, &object)?;
        let mut inner = self.inner();
        let key = target.key();
        inner.admit(&target, true)?;
        if inner.live(&key).is_some() {
            return Err(Refusal::already_exists(target.kind, &target.name));
        }
        let state = edited(&target, None, object, edit.manager)?;
        self.store(&mut inner, &key, Arc::new(state), true);
        Ok((
            StatusCode::CREATED,
            inner.render(&key, self.scene(&inner.conditions)),
        ))
    }

    /// DELETE of one object.
    pub(super) fn delete(&self, target: &Target, options: &[u8]) -> Written {
        let mut inner = self.inner();
        let key = target.key();
        if inner.live(&key).is_none() {
            return Err(Refusal::not_found(target.kind, &target.name));
        }
        inner.admit(target, false)?;
        let Some(stored) = inner.objects.get(&key) else {
            return Err(Refusal::not_found(target.kind, &target.name));
        };
        expected(target, stored, options)?;
        let uid = stored.uid;
        let last = inner.render(&key, self.scene(&inner.conditions));
        let now = self.common.clock.elapsed();
        inner.version += 1;
        let version = inner.version;
        if let Some(stored) = inner.objects.get_mut(&key) {
            stored.state = None;
            stored.version = version;
            stored.changed = now;
        }
        inner.counts.writes += 1;
        inner.tell(&key, "DELETED", &last);
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {
                "name": target.name, "group": target.kind.group,
                "kind": target.kind.resource, "uid": uid.to_string(),
            },
        });
        Ok((StatusCode::OK, status.to_string()))
    }

    fn store(&self, inner: &mut Inner, key: &Key, state: Arc<State>, changing: bool) {
        if !changing {
            return;
        }
        let now = self.common.clock.elapsed();
        inner.version += 1;
        inner.counts.writes += 1;
        if inner.conditions.identity.is_some() || self.is_foreign_marker(key, &state) {
            inner.counts.foreign_writes += 1;
        }
        let version = inner.version;
        let is_new = inner.live(key).is_none();
        if is_new {
            inner.made += 1;
        }
        let uid = Uid {
            runtime: u32::try_from(self.number).unwrap_or(u32::MAX),
            object: inner.made,
        };
        let stored = inner.objects.entry(key.clone()).or_insert_with(|| Stored {
            state: None,
            uid,
            version,
            generation: 0,
            created: now,
            changed: now,
            respecified: now,
            applies: Applies::default(),
        });
        let before = stored.state.as_ref().map(|state| state.content);
        if is_new {
            (stored.uid, stored.created, stored.generation) = (uid, now, 0);
        }
        if before != Some(state.content) {
            stored.generation += 1;
            stored.respecified = now;
        }
        stored.state = Some(state);
        stored.version = version;
        stored.changed = now;
        if inner.changes.is_some() {
            let text = inner.render(key, self.scene(&inner.conditions));
            inner.tell(key, if is_new { "ADDED" } else { "MODIFIED" }, &text);
        }
    }

    /// Whether somebody marks this runtime as another one: the mark of a write that went astray.
    fn is_foreign_marker(&self, key: &Key, state: &State) -> bool {
        key.kind().resource == "configmaps"
            && &*key.name == OWNER_MARKER
            && state.owned().content["data"][OWNER_RUNTIME_ID] != json!(self.id)
    }

    pub(super) fn scene<'a>(&self, conditions: &'a Conditions) -> Scene<'a> {
        Scene {
            start: self.common.start,
            now: self.common.clock.elapsed(),
            rollout: conditions.rollout.time(),
            identity: conditions.identity.as_deref(),
        }
    }
}
