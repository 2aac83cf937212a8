//! Liveness of runtimes: which runtimes are responsive, which events are missing, and when a resync is required.
//!
//! Watchers number their events and send heartbeats. Times are measured by this process, and ages in heartbeats are
//! relative, so clocks of runtimes are irrelevant. A watcher is *unheard* after three intervals without a heartbeat or
//! event. The last heartbeat of a watcher determines the result:
//!
//! | last heartbeat | result |
//! |---|---|
//! | `ending`, nothing spooled | the watcher is removed at once, no resync; if all have ended, one resync when a new one is heard that was ready after they began to terminate: no watcher reviewed the changes in between. One that does not say since when it is ready: heard more than half an interval later |
//! | `ending`, events spooled or a resync requested | removed at once, one resync |
//! | not `ending`, events or follow-ups spooled | one resync: the spool may be gone with its Pod. Also if it requested one |
//! | not `ending`, nothing spooled, another watcher started meanwhile | it was replaced: removed, one resync, since it may have answered reviews after that heartbeat; none for an old release |
//! | not `ending`, nothing spooled, no other one started | it is kept, and the runtime is unresponsive until it is heard or replaced; one resync if another watcher of the runtime is heard, and one if a new watcher starts before it is heard again: it may have seen changes that it could not send |
//!
//! Old releases never send `ending`, and count follow-ups as spooled; of those, a watcher that started up to three intervals
//! *before* the last heartbeat also counts as the replacement (rolling updates start the new Pod first). A resync is also
//! required when event numbers leap absurdly, when numbered events cannot arrive any more, when reviews arrive again, when the
//! webhook entries of the manager were written (again), also while the listener starts, and when the first heartbeat of a
//! runtime arrives later than three intervals after the start of the listener: the operator's first reconcile may precede
//! the webhook there.
//!
//! Invariant: [`Options::runtimes`](crate::Options::runtimes) limits the memory, with four watchers per runtime, of at most
//! 16 KiB each. A runtime causes at most one resync per interval. Nothing is persisted, so operators reconcile all objects
//! at start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use watcher_types::{BootId, Heartbeat};

pub(crate) use self::runtime::Runtime;
use crate::certificate::RuntimeId;
use crate::queue::{EnqueueResult, Sender, UnresponsiveReason};

mod runtime;
mod sequences;
mod watcher;

/// Part of the limit that is evicted at once. The oldest runtimes are found by reading all, under the lock of all requests,
/// which would cost each of many new runtimes more than the verification of its certificate.
const EVICTED_SHARE: usize = 100;

/// Liveness of all runtimes. Clones share the state.
#[derive(Clone, Debug)]
pub struct Liveness {
    runtimes: Arc<Mutex<Runtimes>>,
}

/// Current state of one runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeLiveness {
    /// ID of the runtime.
    pub runtime_id: RuntimeId,
    /// Whether a heartbeat has been due for three intervals.
    pub silent: bool,
    /// Reason of the last unresponsive notification to the operator; `None` if the runtime is responsive.
    pub unresponsive: Option<UnresponsiveReason>,
    /// Time since the last heartbeat; `None` if there was none.
    pub since_heartbeat: Option<Duration>,
    /// Time since the last event; `None` if there was none.
    pub since_event: Option<Duration>,
    /// Time since the last admission review that the watchers report; `None` if they report none.
    pub since_review: Option<Duration>,
    /// Number of events that are missing by their sequence numbers, of all watchers since the runtime is known.
    pub missing_events: u64,
    /// Number of resync notifications to the operator.
    pub resyncs_required: u64,
    /// Last rejected request that claimed to be of this runtime. The claim is not verified.
    pub last_rejection: Option<LastRejection>,
    /// Watchers of the runtime: one for each replica that has not ended, and watchers that are unheard.
    pub watchers: Vec<WatcherLiveness>,
}

/// One process of a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatcherLiveness {
    /// Boot ID of the process.
    pub boot_id: BootId,
    /// Whether a heartbeat has been due for three intervals after an earlier heartbeat: the watcher cannot reach KCP, or
    /// its Pod is deleted.
    pub silent: bool,
    /// Time since the last heartbeat; `None` if there was none.
    pub since_heartbeat: Option<Duration>,
    /// Highest known sequence number of an event.
    pub sequence: u64,
    /// Number of events that are missing by their sequence numbers.
    pub missing_events: u64,
    /// Last heartbeat, if there was one.
    pub heartbeat: Option<Heartbeat>,
}

/// A rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRejection {
    /// Time since the rejection.
    pub since: Duration,
    /// Reason of the rejection, as in the response.
    pub reason: String,
}

/// Sums over all runtimes. The last three include runtimes that are not stored anymore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Number of stored runtimes.
    pub known: usize,
    /// Number of these runtimes without heartbeats or admission reviews.
    pub unresponsive: usize,
    /// Number of runtimes that were evicted because the limit was reached.
    pub evicted: u64,
    /// Number of missing events that cannot arrive anymore.
    pub missing_events: u64,
    /// Number of resync notifications to the operator.
    pub resyncs_required: u64,
}

#[derive(Debug)]
struct Runtimes {
    limit: usize,
    interval: Duration,
    /// When the listener started to serve.
    started: Option<Instant>,
    known: HashMap<RuntimeId, Runtime>,
    /// Runtimes that the operator removed, with the time of the removal. Their watchers may still send heartbeats.
    forgotten: HashMap<RuntimeId, Instant>,
    /// Counts of runtimes that are not stored anymore.
    removed: Totals,
}

impl Liveness {
    /// Stores at most `limit` runtimes, whose watchers send a heartbeat each `interval`.
    pub(crate) fn new(limit: usize, interval: Duration) -> Self {
        let runtimes = Runtimes {
            limit,
            // Sums of extreme intervals and times would overflow.
            interval: interval.clamp(Duration::from_millis(10), Duration::from_hours(24)),
            started: None,
            known: HashMap::new(),
            forgotten: HashMap::new(),
            removed: Totals::default(),
        };
        Self {
            runtimes: Arc::new(Mutex::new(runtimes)),
        }
    }

    /// Returns all stored runtimes, in the order of their IDs.
    #[must_use]
    pub fn snapshot(&self) -> Vec<RuntimeLiveness> {
        let mut snapshot = self.each(|id, runtime, now| runtime.seen(id, now));
        snapshot.sort_by(|one, other| one.runtime_id.cmp(&other.runtime_id));
        snapshot
    }

    /// Returns one runtime, if it is stored.
    #[must_use]
    pub fn runtime(&self, id: &RuntimeId) -> Option<RuntimeLiveness> {
        let runtimes = self.runtimes();
        let runtime = runtimes.known.get(id)?;
        Some(runtime.seen(id, Instant::now()))
    }

    /// Expects heartbeats of `runtime` from now on, so that a runtime that never sends a heartbeat also becomes
    /// unresponsive. Call it for each known runtime after a start of the operator. Only the first call has an effect.
    pub fn expect(&self, runtime: &RuntimeId) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.forgotten.remove(runtime);
        runtimes.entry(runtime).expected.get_or_insert(now);
    }

    /// Expects an admission review from `runtime`. Call it after a write to an object on the runtime that a Watcher covers.
    /// If no watcher reports a review within three heartbeats, the runtime becomes unresponsive. A review in the interval
    /// before the call counts, because a review precedes the end of its write.
    pub fn expect_review(&self, runtime: &RuntimeId) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.forgotten.remove(runtime);
        runtimes.entry(runtime).expect_review(now);
    }

    /// Removes `runtime`, which is deleted, so that it does not become unresponsive. Its watchers may continue to send
    /// heartbeats and events. After three intervals without them, the runtime is removed again. A call of
    /// [`expect`](Self::expect) or [`expect_review`](Self::expect_review) adds it again permanently.
    pub fn forget(&self, runtime: &RuntimeId) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.forgotten.insert(runtime.clone(), now);
        runtimes.remove(runtime);
    }

    /// Returns the interval of [`check`](Self::check).
    pub(crate) fn check_interval(&self) -> Duration {
        self.runtimes().interval / 10
    }

    /// Notifies the operator of changes that result from elapsed time. If the queue has no capacity for a notification, the
    /// next check retries it.
    pub(crate) fn check(&self, queue: &Sender) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.started.get_or_insert(now);
        for id in runtimes.forgotten_and_silent(now) {
            runtimes.forgotten.remove(&id);
            runtimes.remove(&id);
        }
        for (id, runtime) in &mut runtimes.known {
            runtime.check(id, now, queue);
        }
    }

    /// Records a heartbeat. Only after a success response the sender may consider a requested resync delivered.
    pub(crate) fn heartbeat(
        &self,
        id: &RuntimeId,
        heartbeat: Heartbeat,
        queue: &Sender,
    ) -> EnqueueResult {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        let started = runtimes.started(id);
        let runtime = runtimes.entry(id);
        let resync_needed = heartbeat.resync_needed;
        runtime.heartbeat(heartbeat, now, started);
        if resync_needed {
            runtime.require_resync(id, now, queue)
        } else {
            EnqueueResult::Accepted
        }
    }

    /// Records an event. `number` contains its boot ID and sequence number.
    pub(crate) fn event(&self, id: &RuntimeId, number: Option<(BootId, u64)>) {
        let now = Instant::now();
        self.runtimes().entry(id).event(number, now);
    }

    /// Records a rejected request that claims to be of the runtime `claimed`.
    pub(crate) fn rejected(&self, claimed: &str, reason: String) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        let id = RuntimeId::parse(claimed);
        if let Some(runtime) = id.and_then(|id| runtimes.known.get_mut(&id)) {
            runtime.rejection = Some((now, reason));
        }
    }

    /// Returns sums over all runtimes.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let now = Instant::now();
        let runtimes = self.runtimes();
        let mut totals = runtimes.removed;
        for runtime in runtimes.known.values() {
            let reason = runtime.unresponsive;
            let is_known = reason.is_some_and(|it| it != UnresponsiveReason::HeartbeatMissing);
            let unresponsive = runtime.lacks_heartbeats(now) || is_known;
            totals.known += 1;
            totals.unresponsive += usize::from(unresponsive);
            totals.add(runtime);
        }
        totals
    }

    /// Returns the result of `read` for each runtime.
    pub(crate) fn each<T>(&self, read: impl Fn(&RuntimeId, &Runtime, Instant) -> T) -> Vec<T> {
        let now = Instant::now();
        let runtimes = self.runtimes();
        let known = runtimes.known.iter();
        known.map(|(id, runtime)| read(id, runtime, now)).collect()
    }

    fn runtimes(&self) -> MutexGuard<'_, Runtimes> {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn add(&mut self, runtime: &Runtime) {
        self.missing_events = self.missing_events.saturating_add(runtime.lost_events());
        self.resyncs_required += runtime.resyncs;
    }
}

impl Runtimes {
    /// Returns the runtime `id`. At the limit, runtimes are evicted.
    fn entry(&mut self, id: &RuntimeId) -> &mut Runtime {
        if self.known.len() >= self.limit && !self.known.contains_key(id) {
            self.evict();
        }
        let interval = self.interval;
        let runtime = self.known.entry(id.clone());
        runtime.or_insert_with(|| Runtime::new(interval))
    }

    /// Removes the runtimes with the oldest heartbeats and events.
    fn evict(&mut self) {
        let known = self.known.iter();
        let mut oldest: Vec<_> = known.map(|(id, it)| (it.heard(), id.clone())).collect();
        let count = (self.limit / EVICTED_SHARE).max(1);
        if count < oldest.len() {
            oldest.select_nth_unstable(count);
            oldest.truncate(count);
        }
        for (_, id) in oldest {
            self.remove(&id);
            self.removed.evicted += 1;
        }
    }

    /// Returns when the listener started. `None` if the runtime `id` is deleted, or if runtimes were evicted, whose next heartbeat
    /// also is a first one.
    fn started(&self, id: &RuntimeId) -> Option<Instant> {
        let is_known = self.removed.evicted == 0 && !self.forgotten.contains_key(id);
        self.started.filter(|_| is_known)
    }

    /// Returns the removed runtimes without heartbeats and events for three intervals.
    fn forgotten_and_silent(&self, now: Instant) -> Vec<RuntimeId> {
        let silent = self.forgotten.iter().filter(|(id, forgotten)| {
            let heard = self.known.get(*id).and_then(Runtime::heard);
            now - heard.unwrap_or(**forgotten) >= runtime::MISSED * self.interval
        });
        silent.map(|(id, _)| id.clone()).collect()
    }

    fn remove(&mut self, id: &RuntimeId) {
        if let Some(runtime) = self.known.remove(id) {
            self.removed.add(&runtime);
        }
    }
}

#[cfg(test)]
mod tests;
