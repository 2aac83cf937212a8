//! The state of an object after a write: pure functions, with a cache for applies.
//!
//! Thousands of simulated clusters have the same object and receive the same body, so the result is also the same. The key of
//! the cache contains all inputs of the result, so that clusters share their states.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::kinds::Handling;
use super::merge::{Manager, Operation, Owned, apply, update};
use super::object::{Digest, State, digest, managers_of, strip};
use super::request::Target;
use super::status::Refusal;
use super::validate;
use crate::locked;

/// Result of an apply.
type Outcome = Result<Arc<State>, Refusal>;

/// Cache of the results of applies.
#[derive(Debug, Default)]
pub(super) struct Memo(Mutex<HashMap<Digest, Outcome>>);

impl Memo {
    /// Returns the state of an object after an apply.
    pub(super) fn apply(
        &self,
        target: &Target,
        live: Option<&Arc<State>>,
        body: &[u8],
        (manager, force): (&str, bool),
    ) -> Outcome {
        let before = live.map_or([0; 16], |live| live.digest);
        let key = digest([
            &before[..],
            format!("{target:?} {manager:?} {force}").as_bytes(),
            body,
        ]);
        // Entries are complete even after a panic.
        if let Some(outcome) = locked(&self.0).get(&key) {
            return outcome.clone();
        }
        let outcome = merged(target, live, body, (manager, force)).map(|state| match live {
            Some(live) if live.digest == state.digest => Arc::clone(live),
            _ => Arc::new(state),
        });
        let mut known = locked(&self.0);
        if known.len() >= LARGEST {
            known.clear();
        }
        known.insert(key, outcome.clone());
        outcome
    }
}

fn merged(
    target: &Target,
    live: Option<&Arc<State>>,
    body: &[u8],
    (manager, force): (&str, bool),
) -> Result<State, Refusal> {
    let mut configuration = serde_json::from_slice(body)
        .ok()
        .or_else(|| serde_saphyr::from_slice(body).ok())
        .ok_or_else(|| Refusal::bad_request("error decoding YAML"))?;
    validate::shape(target, &configuration)?;
    validate::types(target, &configuration)?;
    strip(&mut configuration);
    validate::scope(target, &mut configuration);
    let live = live.map(|live| live.owned()).unwrap_or_default();
    let applier = Manager::of(manager, Operation::Apply, target);
    let mut next = apply(&live, &configuration, applier, force)
        .map_err(|conflicts| Refusal::field_conflicts(&conflicts))?;
    validate::defaults(target, &mut next.content);
    validate::object(target, &live.content, &next.content)?;
    validate::settle(target, &mut next.content);
    Ok(State::new(&next))
}

/// Returns the state of an object after a write other than an apply.
pub(super) fn edited(
    target: &Target,
    live: Option<&State>,
    mut object: Value,
    manager: &str,
) -> Result<State, Refusal> {
    let live = live.map(State::owned).unwrap_or_default();
    let managers = match object.pointer("/metadata/managedFields") {
        Some(_) => managers_of(&object),
        None => live.managers.clone(),
    };
    strip(&mut object);
    drop_empty_maps(target, &mut object);
    if target.status {
        let status = object["status"].take();
        object = live.content.clone();
        object["status"] = status;
    } else if target.kind.handling >= Handling::Status {
        validate::scope(target, &mut object);
        if let Some(status) = live.content.get("status") {
            object["status"] = status.clone();
        }
    }
    validate::types(target, &object)?;
    validate::defaults(target, &mut object);
    validate::object(target, &live.content, &object)?;
    let before = Owned {
        content: live.content,
        managers,
    };
    let writer = Manager::of(manager, Operation::Update, target);
    let custom = target.kind.handling == Handling::Custom;
    let mut next = update(&before, object, &writer, custom);
    validate::settle(target, &mut next.content);
    Ok(State::new(&next))
}

/// Removes empty maps, which the Go types omit.
fn drop_empty_maps(target: &Target, object: &mut Value) {
    if let Some(fields) = object
        .as_object_mut()
        .filter(|_| target.kind.handling != Handling::Custom)
    {
        let is_map = |field: &str| matches!(field, "binaryData" | "data" | "stringData");
        fields.retain(|field, value| !is_map(field) || *value != json!({}));
    }
}

/// Largest number of cached results. A rollout needs far fewer, even if each runtime has a different object.
const LARGEST: usize = 100_000;
