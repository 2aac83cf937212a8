//! Events that must be sent to KCP: a queue in memory, and a spool on the disk that survives `kill -9`.
//!
//! ```text
//! put ──> queue: the latest of each object, the oldest first ──> take ──> settle
//!           └──> handoff ──> spool: the thread that owns the files
//! ```
//!
//! An event that was put is delivered after its last change, or its manager is marked to need a resync. This guarantee also
//! covers crashes, torn and damaged files, and lack of capacity. An event may be delivered more than once. Only puts wait
//! for the disk, for a limited time. Memory and disk usage are limited. If the disk fails or does not respond, only
//! durability is lost: events are delivered from memory, and writing is retried. A spool on an `emptyDir` is deleted with
//! its Pod.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use watcher_types::{PathSegment, WatchEvent};

pub use self::types::{
    Dropped, FsyncPolicy, Item, ManagerReport, Options, Recovered, Report, ResyncMark, Settlement,
    Stored,
};

use self::handoff::Shared;
pub(crate) use self::queue::managers::{Managers, Receiver};
use self::queue::{Limits, MonotonicTime};
use self::record::Kind;
use self::spool::SpoolThread;
use self::storage::{OpenSpool, open_local};
use self::types::TimeLimits;

mod handoff;
mod key;
mod queue;
mod record;
mod segment;
mod segments;
mod spool;
mod state;
mod storage;
mod types;

/// Interval at which the spool checks for due work, and time limit of this work at shutdown.
const TICK: Duration = Duration::from_secs(1);

/// Minimum size of the spool in bytes, which is sufficient for a few of the largest events.
const FEWEST_BYTES: u64 = 256 << 10;

/// Outbox of the watcher. Clones share the outbox.
#[derive(Clone, Debug)]
pub struct Outbox {
    shared: Arc<Shared>,
    /// The thread ends with the last clone.
    _thread: Arc<SpoolThread>,
    fsync: FsyncPolicy,
    /// When the outbox was opened.
    epoch: Instant,
    /// Managers whose events are accepted; empty means any manager.
    configured: Arc<HashSet<PathSegment>>,
}

impl Outbox {
    /// Opens the spool, and reads the events of earlier processes. Blocks for at most five seconds. Never fails: see
    /// [`Recovered::unusable`].
    #[must_use]
    pub fn open(options: Options, now: Instant) -> (Self, Recovered) {
        let folder = options.folder.clone();
        let dir = Box::new(move || open_local(&folder));
        Self::on(dir, options, Limits::WATCHER, TimeLimits::default(), now)
    }

    fn on(
        dir: OpenSpool,
        mut options: Options,
        limits: Limits,
        time_limits: TimeLimits,
        now: Instant,
    ) -> (Self, Recovered) {
        options.max_bytes = options.max_bytes.max(FEWEST_BYTES);
        let configured = options.managers.iter().cloned().collect();
        let shared = Arc::new(Shared::new(&options, limits, time_limits));
        let fsync = options.fsync;
        let thread = SpoolThread::start(Arc::clone(&shared), dir, options);
        shared.opened();
        let state = shared.lock();
        let (torn_bytes, newer_version) = state.handoff.damage;
        let recovered = Recovered {
            items: state.queue.len(),
            dropped: state.dropped.total(),
            torn_bytes,
            newer_version,
            resync: state.queue.managers.any_lost(),
            unusable: state.handoff.failure.clone(),
        };
        drop(state);
        let outbox = Self {
            shared,
            _thread: Arc::new(thread),
            fsync,
            epoch: now,
            configured: Arc::new(configured),
        };
        (outbox, recovered)
    }

    /// Stores `event` for `manager` until it is delivered. Blocks until the event is on the disk, for at most
    /// [`Options::write_deadline`]. Does not block if the disk is already slower than that, or under
    /// [`FsyncPolicy::Always`]. The event is then delivered from memory, and written when the disk responds.
    pub fn put(&self, manager: &PathSegment, event: &WatchEvent, now: Instant) -> Stored {
        let (stored, unwritten) = self.shared.put(manager, event, self.monotonic(now));
        unwritten.map_or(stored, |_| Stored::MemoryOnly)
    }

    /// Stores an event as [`Self::put`] does. Under [`FsyncPolicy::Always`] waits until the event is on the disk, for at
    /// most a second, without blocking the thread. If the caller drops the future, the event stays in the outbox.
    pub async fn put_forced(
        &self,
        manager: &PathSegment,
        event: &WatchEvent,
        now: Instant,
    ) -> Stored {
        let (stored, unwritten) = self.shared.put(manager, event, self.monotonic(now));
        let waits = self.fsync == FsyncPolicy::Always;
        match unwritten {
            Some(number) if !waits || !self.shared.forced(number).await => Stored::MemoryOnly,
            _ => stored,
        }
    }

    /// Returns whether events for `manager` are accepted: no managers are configured, or `manager` is configured. Takes no lock.
    #[must_use]
    pub fn admits(&self, manager: &PathSegment) -> bool {
        self.configured.is_empty() || self.configured.contains(manager)
    }

    /// Records that `manager` has accepted an event that was never in the outbox. From now on the manager gets heartbeats.
    pub fn took(&self, manager: &PathSegment, now: Instant) {
        let now = self.monotonic(now);
        self.shared.lock().queue.managers.took(manager, now);
    }

    /// Takes the event that has been due longest, of the managers that `permit` accepts. `permit` gets the name of a
    /// manager, and whether it is configured or has accepted an event. An object that already has an event in progress is
    /// skipped. `now` may be in the future, for a last round before the end. A follow-up event that is delivered too early
    /// stays in the outbox for the next process.
    ///
    /// # Errors
    /// No event is available. The error is the time of the next attempt, unless something changes before.
    pub fn take_permitted<P>(
        &self,
        now: Instant,
        mut permit: impl FnMut(&PathSegment, bool) -> Result<P, Option<Instant>>,
    ) -> Result<(Item, P), Option<Instant>> {
        let permit = |manager: &_, known| {
            let permit = permit(manager, known);
            permit.map_err(|until| until.map(|until| self.monotonic(until)))
        };
        let taken = self.shared.lock().queue.take(self.monotonic(now), permit);
        let instant = |at: MonotonicTime| self.epoch.checked_add(Duration::from_nanos(at.0));
        let (taken, permit) = taken.map_err(|again| again.and_then(instant))?;
        // Each key in the queue was encoded, or decoded once before.
        let (manager, event) = key::decode(&taken.key).ok_or(None)?;
        let item = Item {
            manager,
            event,
            sequence: taken.number,
            attempt: taken.attempt,
            ticket: taken.ticket,
        };
        Ok((item, permit))
    }

    /// Ends the attempt to deliver an event.
    pub fn settle(&self, item: &Item, settlement: Settlement, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, |state| match settlement {
            Settlement::Delivered => {
                if let Some(key) = state.queue.delivered(item.ticket, now) {
                    state.handoff.record(Kind::Delivered, &key);
                }
            }
            Settlement::Retry(at) => state.queue.failed(item.ticket, self.monotonic(at)),
            Settlement::Drop => state.rejected(item.ticket, now),
            Settlement::DropAll => state.all_rejected(&item.manager, now),
        });
    }

    /// Returns when an event was put, or was found on a disk that was unavailable before. Supports one waiter. A change
    /// between two calls is not missed.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Returns whether events survive the end of the process.
    #[must_use]
    pub fn is_spool_writable(&self) -> bool {
        self.shared.lock().handoff.is_writable()
    }

    /// Returns the state of the outbox for metrics.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let now = self.monotonic(now);
        let mut state = self.shared.lock();
        let on_disk = state.handoff.is_writable();
        let queue = &state.queue;
        Report {
            depth: queue.len(),
            undelivered: queue.undelivered(),
            oldest_age: queue.oldest_due(now).map(|since| since.until(now)),
            resync_needed: queue.managers.any_lost(),
            spool_bytes: state.handoff.bytes,
            on_disk,
            disk_failures: state.handoff.failures,
            memory_bytes: queue.usage().memory(),
            dropped: state.dropped,
        }
    }

    /// Returns the values for a heartbeat to `manager`.
    #[must_use]
    pub fn manager_report(&self, manager: &PathSegment, now: Instant) -> ManagerReport {
        let now = self.monotonic(now);
        self.shared.lock().queue.report(manager, now)
    }

    /// Returns the result of `ask` for the registry of managers.
    pub(crate) fn managers<R>(&self, ask: impl FnOnce(&Managers) -> R) -> R {
        ask(&self.shared.lock().queue.managers)
    }

    /// Only the managers `names` have a Watcher. A request for a resync of another one, which cannot be acknowledged, is not reported
    /// as pending any more. One that is added by a later call is asked for a resync, because changes before its webhook have had no
    /// review.
    pub(crate) fn set_watching(&self, names: &[PathSegment], now: Instant) {
        let now = self.monotonic(now);
        self.shared
            .change(now, |state| state.set_watching(names, now));
    }

    /// Returns when all changes that were lost are stored at the latest, so that a resync sees them; `None` if nothing was lost.
    pub(crate) fn lost_stored_by(&self) -> Option<Instant> {
        let at = self.shared.lock().queue.managers.stored_by()?;
        self.epoch.checked_add(Duration::from_nanos(at.0))
    }

    /// `manager` has acknowledged a heartbeat that carried `mark` and was sent at `sent`. A later loss keeps its mark, and so
    /// does a change that may not have been stored at that time, because its admission had just ended.
    pub fn resync_reported(&self, manager: &PathSegment, mark: ResyncMark, sent: Instant) {
        let sent = self.monotonic(sent);
        self.shared.change(sent, |state| {
            let is_stored = mark.stored_by <= sent;
            if is_stored && state.queue.managers.resync_reported(manager, mark) {
                let name = manager.as_str().as_bytes();
                state.handoff.record(Kind::ResyncReported, name);
            }
        });
    }

    /// A review for `manager` was not read or not understood, so a change may have been missed: a manager that is
    /// configured, has a Watcher, or has accepted an event, is asked for a resync.
    pub fn mark_unread(&self, manager: &PathSegment, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, |state| state.unread(manager, now));
    }

    /// Changes were not seen: each manager, also one of which nothing is known yet, is to be asked for a resync.
    pub fn mark_all_lost(&self, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, state::State::mark_all_lost);
    }

    /// Triggers the due work of the spool until `cancel`, and once more after it: fsync by the policy, and a retry after a
    /// failure of the disk. Spawn it together with the sender, and cancel it after the sender.
    pub async fn run(self, cancel: CancellationToken) {
        let period = match self.fsync {
            FsyncPolicy::EachBatch(period) => period.clamp(Duration::from_millis(1), TICK),
            FsyncPolicy::Never | FsyncPolicy::Always => TICK,
        };
        while !cancel.is_cancelled() {
            self.shared.tick(self.monotonic(Instant::now()));
            cancel.run_until_cancelled(tokio::time::sleep(period)).await;
        }
        let last = tokio::task::spawn_blocking(move || self.keep_up(Instant::now(), TICK));
        // An error means that the async runtime is shutting down.
        let _ = last.await;
    }

    /// Triggers the due work of the spool, and waits for it. Returns whether it finished in time.
    fn keep_up(&self, now: Instant, limit: Duration) -> bool {
        let tick = self.shared.tick(self.monotonic(now));
        self.shared.ticked(tick, limit)
    }

    fn monotonic(&self, at: Instant) -> MonotonicTime {
        MonotonicTime::default().after(at.saturating_duration_since(self.epoch))
    }
}

#[cfg(test)]
mod tests;
