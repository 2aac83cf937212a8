//! Decision when an event that KCP rejects is dropped, instead of being retried until the process ends.
//!
//! There are two cases. In the first case a listener never accepts one specific event (400, 413, 431 …). Such an event is
//! dropped after [`ATTEMPTS`]. In the second case no listener accepts events of the manager: there is no route (404), or
//! the listener rejects all events. A route may be created minutes after its Watcher. Therefore all events of the manager
//! are dropped when the manager has only rejected events for [`REJECTION_TIMEOUT`]. From then on each further rejection
//! drops the events that were put since.
//!
//! Only an uninterrupted series of rejections counts. Any other response of the manager, and any failure on the way to KCP,
//! restarts the series.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use watcher_types::PathSegment;

use crate::delivery::error::{FailureScope, PostError};
use crate::outbox::{Item, Settlement};

/// Maximum number of requests for an event that its listener rejects. With the backoff of the sender, they take two and a
/// half to five minutes.
const ATTEMPTS: u32 = 12;

/// Time for which a manager may reject all events before its events are dropped.
const REJECTION_TIMEOUT: Duration = Duration::from_hours(1);

/// Number of different events of a manager that are rejected, without an accepted event in between, from which on the
/// failure concerns the listener and not the events. Fewer rejected events do not delay other events of the manager.
const DISTINCT: usize = 16;

/// Managers that have only rejected events, with the start of that time.
pub(super) type Rejections = HashMap<PathSegment, Rejecting>;

pub(super) struct Rejecting {
    since: Instant,
    /// Sequence numbers of the rejected events, at most [`DISTINCT`].
    events: HashSet<u64>,
}

/// Records a failed request. Returns what is dropped, and the scope of the failure. If a listener rejects all events, the
/// failure concerns the listener.
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
