//! When an event that KCP rejects is given up, instead of being retried for as long as the process runs.
//!
//! Two things can be wrong. An event can be one that its listener never takes (400, 413, 431 …): it is given up after
//! [`ATTEMPTS`]. Or nothing is there that takes events of the manager: no route (404), or a listener that rejects whatever
//! it gets. A route may come minutes after its Watcher, so all events of the manager are given up when it has done nothing
//! but reject for [`REJECTION_TIMEOUT`]; from then on each further rejection gives up what has been put since.
//!
//! Only an unbroken series of rejections counts. Any other answer of the manager, and any failure on the way to KCP, begins
//! it anew.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use watcher_types::PathSegment;

use crate::delivery::error::{FailureScope, PostError};
use crate::outbox::{Item, Settlement};

/// How often an event is posted that its listener rejects: for two and a half to five minutes, by the sender's back-off.
const ATTEMPTS: u32 = 12;

/// How long a manager may reject everything before its events are given up.
const REJECTION_TIMEOUT: Duration = Duration::from_hours(1);

/// Events of a manager that are rejected without one taken between, from which on the listener is at fault and not the
/// events. Fewer do not delay the manager's other events.
const DISTINCT: usize = 16;

/// The managers that have done nothing but reject since when.
pub(super) type Rejections = HashMap<PathSegment, Rejecting>;

pub(super) struct Rejecting {
    since: Instant,
    /// Numbers of the events that were rejected for themselves, up to [`DISTINCT`].
    events: HashSet<u64>,
}

/// Notes how a post failed; what is given up, and which failure it is: a listener that rejects all events fails itself.
pub(super) fn note(
    rejections: &mut Rejections,
    item: &Item,
    error: &PostError,
    now: Instant,
) -> (Option<Settlement>, FailureScope) {
    let manager = &item.manager;
    let scope = error.scope();
    if !error.is_permanent() {
        if scope == FailureScope::All {
            rejections.clear();
        } else {
            rejections.remove(manager);
        }
        return (None, scope);
    }
    let rejecting = rejections.entry(manager.clone()).or_insert(Rejecting {
        since: now,
        events: HashSet::new(),
    });
    if now.saturating_duration_since(rejecting.since) >= REJECTION_TIMEOUT {
        return (Some(Settlement::DropAll), FailureScope::Manager);
    }
    if scope != FailureScope::Event {
        return (None, scope);
    }
    if rejecting.events.len() < DISTINCT {
        rejecting.events.insert(item.sequence);
    }
    let scope = if rejecting.events.len() < DISTINCT {
        FailureScope::Event
    } else {
        FailureScope::Manager
    };
    if item.attempt + 1 < ATTEMPTS {
        return (None, scope);
    }
    if scope == FailureScope::Event {
        rejections.remove(manager);
    }
    (Some(Settlement::Drop), scope)
}
