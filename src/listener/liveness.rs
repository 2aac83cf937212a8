//! Which runtimes are responsive, which events did not arrive, and when a resync is required.
//!
//! Watchers number their events and send heartbeats. Times are those of this process, and ages in heartbeats are relative, so
//! clocks of runtimes do not matter. A watcher is *unheard* after three intervals without a heartbeat or event. What follows
//! when it is, by its last heartbeat:
//!
//! | last heartbeat | result |
//! |---|---|
//! | `ending`, nothing spooled | the watcher is removed at once, no resync; if all have ended, one resync when a new one is heard more than half an interval later: no watcher reviewed the changes in between |
//! | `ending`, events spooled or a resync requested | removed at once, one resync |
//! | not `ending`, events or follow-ups spooled | one resync: the spool may be gone with its Pod. Also if it requested one |
//! | not `ending`, nothing spooled, another watcher started meanwhile | it was replaced: removed, one resync, since it may have answered reviews after that heartbeat; none for an old release |
//! | not `ending`, nothing spooled, no other one started | it is kept, and the runtime is unresponsive until it is heard or replaced; if a new watcher starts before it is heard again, one resync: it may have seen changes that it could not send |
//!
//! Old releases never send `ending`, and count follow-ups as spooled; of those, a watcher that started up to three intervals
//! *before* the last heartbeat also counts as the replacement (rolling updates start the new Pod first). A resync is also
//! required when event numbers leap absurdly, when numbered events cannot arrive any more, when reviews arrive again, and when
//! the webhook entries of the manager were written again.
//!
//! Invariant: memory is bounded by [`Options::runtimes`](crate::Options::runtimes) and four watchers each, of at most 16 KiB;
//! a runtime causes at most one resync per interval. Nothing is persisted, so operators reconcile everything at start.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
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

/// What is known of each runtime. Clones share it.
#[derive(Clone, Debug)]
pub struct Liveness {
    runtimes: Arc<Mutex<Runtimes>>,
}

/// One runtime, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeLiveness {
    /// Its ID.
    pub runtime_id: RuntimeId,
    /// Whether a heartbeat has been due for three intervals.
    pub silent: bool,
    /// Why the runtime is unresponsive, as the operator was last notified; `None` if it is responsive.
    pub unresponsive: Option<UnresponsiveReason>,
    /// Time since its last heartbeat; `None` if there was none.
    pub since_heartbeat: Option<Duration>,
    /// Time since its last event; `None` if there was none.
    pub since_event: Option<Duration>,
    /// Time since its last admission review, as its watchers report it; `None` if none does.
    pub since_review: Option<Duration>,
    /// Numbered events that should have arrived and have not, over all its watchers since it is known.
    pub missing_events: u64,
    /// Number of resyncs of which the operator was notified.
    pub resyncs_required: u64,
    /// The last rejected request that claimed to come from this runtime. The claim is not verified.
    pub last_rejection: Option<LastRejection>,
    /// Its watchers: one for each replica that has not ended, and those that are not heard.
    pub watchers: Vec<WatcherLiveness>,
}

/// One process start of a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatcherLiveness {
    /// Its boot ID.
    pub boot_id: BootId,
    /// Whether it had heartbeats, and the next has been due for three intervals: it cannot reach KCP, or its Pod is gone.
    pub silent: bool,
    /// Time since its last heartbeat; `None` if there was none.
    pub since_heartbeat: Option<Duration>,
    /// The highest event number that is known.
    pub sequence: u64,
    /// Numbered events that should have arrived and have not.
    pub missing_events: u64,
    /// Its last heartbeat, if there was one.
    pub heartbeat: Option<Heartbeat>,
}

/// A rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRejection {
    /// Time since it was rejected.
    pub since: Duration,
    /// Why, as in the response.
    pub reason: String,
}

/// Sums over all runtimes; the last three include those that are not known any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Runtimes that are known.
    pub known: usize,
    /// Runtimes without heartbeats or admission reviews among them.
    pub unresponsive: usize,
    /// Runtimes that were evicted because there were too many.
    pub evicted: u64,
    /// Numbered events that cannot arrive any more.
    pub missing_events: u64,
    /// Resyncs of which the operator was notified.
    pub resyncs_required: u64,
}

#[derive(Debug)]
struct Runtimes {
    limit: usize,
    interval: Duration,
    known: HashMap<RuntimeId, Runtime>,
    /// Each known runtime once, with a time at or before that at which it was last heard.
    by_time: BinaryHeap<Reverse<(Option<Instant>, RuntimeId)>>,
    /// Those that the operator forgot, whose watchers may still be heard, and when it did.
    forgotten: HashMap<RuntimeId, Instant>,
    /// What runtimes that are not known any more have added.
    removed: Totals,
}

impl Liveness {
    /// Remembers at most `limit` runtimes, whose watchers send a heartbeat each `interval`.
    pub(crate) fn new(limit: usize, interval: Duration) -> Self {
        let runtimes = Runtimes {
            limit,
            // Sums of absurd intervals and points in time would overflow.
            interval: interval.clamp(Duration::from_millis(10), Duration::from_hours(24)),
            known: HashMap::new(),
            by_time: BinaryHeap::new(),
            forgotten: HashMap::new(),
            removed: Totals::default(),
        };
        Self {
            runtimes: Arc::new(Mutex::new(runtimes)),
        }
    }

    /// All runtimes that are known, in the order of their IDs.
    #[must_use]
    pub fn snapshot(&self) -> Vec<RuntimeLiveness> {
        let mut snapshot = self.each(|id, runtime, now| runtime.seen(id, now));
        snapshot.sort_by(|one, other| one.runtime_id.cmp(&other.runtime_id));
        snapshot
    }

    /// One runtime, if it is known.
    #[must_use]
    pub fn runtime(&self, id: &RuntimeId) -> Option<RuntimeLiveness> {
        let runtimes = self.runtimes();
        let runtime = runtimes.known.get(id)?;
        Some(runtime.seen(id, Instant::now()))
    }

    /// Expects heartbeats of `runtime` from now on, so that a runtime that never sends one becomes unresponsive, too. To be
    /// called for each known runtime after a start of the operator; the first call counts.
    pub fn expect(&self, runtime: &RuntimeId) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.forgotten.remove(runtime);
        runtimes.entry(runtime).expected.get_or_insert(now);
    }

    /// Expects an admission review from `runtime`, to be called after a write to an object on it that a Watcher covers. If
    /// no watcher reports a review within three heartbeats, the runtime becomes unresponsive. A review of the interval
    /// before the call counts, since a review precedes the end of its write.
    pub fn expect_review(&self, runtime: &RuntimeId) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.forgotten.remove(runtime);
        runtimes.entry(runtime).expect_review(now);
    }

    /// Forgets `runtime`, which is deleted, so that it does not become unresponsive. Its watchers may send heartbeats and
    /// events for some more time; once they have not for three intervals, the runtime is forgotten again. It is known again
    /// for good by [`expect`](Self::expect) or [`expect_review`](Self::expect_review).
    pub fn forget(&self, runtime: &RuntimeId) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        runtimes.forgotten.insert(runtime.clone(), now);
        runtimes.forget(runtime);
    }

    /// How often [`check`](Self::check) is due.
    pub(crate) fn check_interval(&self) -> Duration {
        self.runtimes().interval / 10
    }

    /// Notifies the operator of what the passing of time has changed. What does not fit into the queue is tried again at the
    /// next check.
    pub(crate) fn check(&self, queue: &Sender) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        for id in runtimes.forgotten_and_silent(now) {
            runtimes.forgotten.remove(&id);
            runtimes.forget(&id);
        }
        for (id, runtime) in &mut runtimes.known {
            runtime.check(id, now, queue);
        }
    }

    /// A heartbeat has arrived. Only if the result is a success, its sender may consider a requested resync delivered.
    pub(crate) fn heartbeat(
        &self,
        id: &RuntimeId,
        heartbeat: Heartbeat,
        queue: &Sender,
    ) -> EnqueueResult {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        let runtime = runtimes.entry(id);
        let resync_needed = heartbeat.resync_needed;
        runtime.heartbeat(heartbeat, now);
        if resync_needed {
            runtime.require_resync(id, now, queue)
        } else {
            EnqueueResult::Accepted
        }
    }

    /// An event has arrived; `number` is its boot ID and sequence number.
    pub(crate) fn event(&self, id: &RuntimeId, number: Option<(BootId, u64)>) {
        let now = Instant::now();
        self.runtimes().entry(id).event(number, now);
    }

    /// A request that claims to come from the runtime of that name was rejected.
    pub(crate) fn rejected(&self, claimed: &str, reason: String) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        let id = RuntimeId::parse(claimed);
        if let Some(runtime) = id.and_then(|id| runtimes.known.get_mut(&id)) {
            runtime.rejection = Some((now, reason));
        }
    }

    /// Sums over all runtimes.
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

    /// What `read` gives for each runtime.
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
    /// The runtime `id`. If it is one too many, the one that was heard longest ago is evicted.
    fn entry(&mut self, id: &RuntimeId) -> &mut Runtime {
        if !self.known.contains_key(id) {
            while self.known.len() >= self.limit
                && let Some(Reverse((time, quietest))) = self.by_time.pop()
            {
                let heard = self.known.get(&quietest).and_then(Runtime::heard);
                if heard == time {
                    self.remove(&quietest);
                    self.removed.evicted += 1;
                } else {
                    self.by_time.push(Reverse((heard, quietest)));
                }
            }
            self.by_time.push(Reverse((None, id.clone())));
        }
        let interval = self.interval;
        let runtime = self.known.entry(id.clone());
        runtime.or_insert_with(|| Runtime::new(interval))
    }

    /// The forgotten ones that were not heard for three intervals.
    fn forgotten_and_silent(&self, now: Instant) -> Vec<RuntimeId> {
        let silent = self.forgotten.iter().filter(|(id, forgotten)| {
            let heard = self.known.get(*id).and_then(Runtime::heard);
            now - heard.unwrap_or(**forgotten) >= runtime::MISSED * self.interval
        });
        silent.map(|(id, _)| id.clone()).collect()
    }

    fn forget(&mut self, id: &RuntimeId) {
        self.remove(id);
        self.by_time.retain(|Reverse((_, known))| known != id);
    }

    fn remove(&mut self, id: &RuntimeId) {
        if let Some(runtime) = self.known.remove(id) {
            self.removed.add(&runtime);
        }
    }
}

#[cfg(test)]
mod tests;
