//! A cache of server-side applies.
//!
//! Thousands of simulated clusters hold the same object and are sent the same body; the result is the same too. The key
//! has everything that the result depends on, so the cache changes no answer; through it clusters share their states.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::merge::{Applier, Owned, apply};
use super::object::{Digest, State, short, strip};
use super::request::Target;
use super::status::Refusal;
use super::validate;

/// What an apply leads to.
type Outcome = Result<Arc<State>, Refusal>;

#[derive(Debug, Default)]
pub(super) struct Memo(Mutex<HashMap<Digest, Outcome>>);

impl Memo {
    /// What becomes of an object by an apply.
    pub(super) fn apply(
        &self,
        target: &Target,
        live: Option<&Arc<State>>,
        body: &[u8],
        applier: Applier<'_>,
    ) -> Outcome {
        let key = key(target, live, body, applier);
        let known = self.known().get(&key).cloned();
        if let Some(outcome) = known {
            return outcome;
        }
        let outcome = merged(target, live, body, applier).map(|state| match live {
            Some(live) if live.digest == state.digest => Arc::clone(live),
            _ => Arc::new(state),
        });
        let mut known = self.known();
        if known.len() >= LARGEST {
            known.clear();
        }
        known.insert(key, outcome.clone());
        outcome
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Outcome>> {
        // Entries are inserted whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(target: &Target, live: Option<&Arc<State>>, body: &[u8], applier: Applier<'_>) -> Digest {
    let Target {
        kind,
        namespace,
        name,
        status,
    } = target;
    let mut hash = Sha256::new();
    hash.update(live.map_or([0; 16], |live| live.digest));
    hash.update(format!(
        "{}\n{}\n{namespace}\n{name}\n{status}\n{}\n{}\n{}\n",
        kind.resource, kind.group, applier.name, applier.api_version, applier.force
    ));
    hash.update(body);
    short(hash)
}

fn merged(
    target: &Target,
    live: Option<&Arc<State>>,
    body: &[u8],
    applier: Applier<'_>,
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
    let mut next: Owned =
        apply(&live, &configuration, applier).map_err(|it| Refusal::field_conflicts(&it))?;
    validate::defaults(target, &mut next.content);
    validate::object(target, &live.content, &next.content)?;
    validate::settle(target, &mut next.content);
    Ok(State::new(&next))
}

/// Many more than one pass needs, also where each runtime has an object of its own.
const LARGEST: usize = 100_000;
