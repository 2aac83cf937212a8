//! What KCP is still to be sent: a queue in memory, and a spool on the disk that survives `kill -9`.
//!
//! ```text
//! put ──> queue: the latest of each object, the oldest first ──> take ──> settle
//!           └──> handoff ──> spool: the thread that owns the files
//! ```
//!
//! What was put is delivered after its last change, or its manager is marked to need a resync: over crashes, torn and
//! damaged files, and for want of capacity. It may be delivered more than once. Only puts wait for the disk, for a bounded
//! time; memory and disk are bounded. A disk that fails, or does not answer, costs durability alone:
//! events are delivered from memory, and it is tried again. A spool on an `emptyDir` goes with its Pod.

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

/// How long a start waits for the disk.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the spool looks whether something is to be done, and how long the end waits for that.
const TICK: Duration = Duration::from_secs(1);

/// Fewest bytes of the spool: a few of the largest events fit.
const FEWEST_BYTES: u64 = 256 << 10;

/// The outbox. Clones share it.
#[derive(Clone, Debug)]
pub struct Outbox {
    shared: Arc<Shared>,
    /// Ends with the last clone.
    _thread: Arc<SpoolThread>,
    fsync: FsyncPolicy,
    /// When it was opened.
    epoch: Instant,
    /// The only managers that events are kept for; empty: any.
    configured: Arc<HashSet<PathSegment>>,
}

impl Outbox {
    /// Opens the spool, and reads what earlier processes have left. Blocks for as long as that takes, five seconds at most. Never
    /// fails: see [`Recovered::unusable`].
    #[must_use]
    pub fn open(options: Options, now: Instant) -> (Self, Recovered) {
        let folder = options.folder.clone();
        let dir = Box::new(move || open_local(&folder));
        Self::on(dir, options, Limits::WATCHER, now)
    }

    fn on(dir: OpenSpool, mut options: Options, limits: Limits, now: Instant) -> (Self, Recovered) {
        options.max_bytes = options.max_bytes.max(FEWEST_BYTES);
        let configured = options.managers.iter().cloned().collect();
        let (shared, fsync) = (Arc::new(Shared::new(&options, limits)), options.fsync);
        let thread = SpoolThread::start(Arc::clone(&shared), dir, options);
        shared.opened(OPEN_TIMEOUT);
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

    /// Keeps `event` for `manager` until it is delivered. Blocks until the disk has it, at most for
    /// [`Options::write_deadline`], and not at all where the disk takes longer than that already, or under
    /// [`FsyncPolicy::Always`]; then it is delivered from memory, and written when the disk responds.
    pub fn put(&self, manager: &PathSegment, event: &WatchEvent, now: Instant) -> Stored {
        let (stored, unwritten) = self.shared.put(manager, event, self.monotonic(now));
        unwritten.map_or(stored, |_| Stored::MemoryOnly)
    }

    /// As [`Self::put`]. Under [`FsyncPolicy::Always`] waits until the disk has the event, at most for a second; the thread is
    /// not blocked in that time. A caller that drops the future does not take the event back.
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

    /// Whether events for `manager` may be kept: no managers are configured, or it is one of them. Takes no lock.
    #[must_use]
    pub fn admits(&self, manager: &PathSegment) -> bool {
        self.configured.is_empty() || self.configured.contains(manager)
    }

    /// `manager` has taken an event that was never in the outbox: from now on it is sent heartbeats.
    pub fn took(&self, manager: &PathSegment, now: Instant) {
        let now = self.monotonic(now);
        self.shared.lock().queue.managers.took(manager, now);
    }

    /// Takes the event that is due longest, of the managers that `permit` lets through: it is given their names, and whether
    /// they are configured or have taken an event. None is taken of an object that is under way. `now` may lie ahead, for a
    /// last round before the end: a follow-up event that is delivered too early stays, for the next process.
    ///
    /// # Errors
    /// There is none; when to ask again, unless something changes before.
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
        // Every key in the queue was encoded, or decoded once.
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
            Settlement::Drop => state.rejected(item.ticket),
            Settlement::DropAll => state.all_rejected(&item.manager),
        });
    }

    /// Returns when something was put, or found on a disk that had refused. For one waiter; what comes between two calls is
    /// not missed.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Whether events survive the end of the process.
    #[must_use]
    pub fn is_spool_writable(&self) -> bool {
        self.shared.lock().handoff.is_writable()
    }

    /// The whole, for metrics.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let now = self.monotonic(now);
        let mut state = self.shared.lock();
        let on_disk = state.handoff.is_writable();
        let queue = &state.queue;
        Report {
            depth: queue.len(),
            undelivered: queue.managers.undelivered(),
            oldest_age: queue.oldest_due(now).map(|since| since.until(now)),
            resync_needed: queue.managers.any_lost(),
            spool_bytes: state.handoff.bytes,
            on_disk,
            disk_failures: state.handoff.failures,
            memory_bytes: queue.memory(),
            dropped: state.dropped,
        }
    }

    /// What a heartbeat to `manager` says.
    #[must_use]
    pub fn manager_report(&self, manager: &PathSegment, now: Instant) -> ManagerReport {
        let now = self.monotonic(now);
        let queue = &self.shared.lock().queue;
        let place = queue.managers.place(manager);
        let oldest = place.and_then(|place| queue.oldest_of(place, false));
        ManagerReport {
            oldest_age: oldest.map(|since| since.until(now)),
            ..queue.managers.report(manager)
        }
    }

    /// What `ask` wants to know of the managers.
    pub(crate) fn managers<R>(&self, ask: impl FnOnce(&Managers) -> R) -> R {
        ask(&self.shared.lock().queue.managers)
    }

    /// Only the managers `names` have a Watcher. A request for a resync of another one, which cannot be acknowledged, is not reported
    /// as pending any more.
    pub(crate) fn set_watching(&self, names: &[PathSegment]) {
        self.shared.lock().queue.managers.set_watching(names);
    }

    /// `manager` has acknowledged a heartbeat that carried `mark`. A later loss keeps its mark.
    pub fn resync_reported(&self, manager: &PathSegment, mark: ResyncMark, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, |state| {
            if state.queue.managers.resync_reported(manager, mark) {
                let name = manager.as_str().as_bytes();
                state.handoff.record(Kind::ResyncReported, name);
            }
        });
    }

    /// A review for `manager` was not read, so a change may have been missed: a manager that is configured, or has accepted an event,
    /// is asked for a resync.
    pub fn mark_unread(&self, manager: &PathSegment, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, |state| state.unread(manager));
    }

    /// Changes were not seen: each manager, also one of which nothing is known yet, is to be asked for a resync.
    pub fn mark_all_lost(&self, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, state::State::mark_all_lost);
    }

    /// Has the spool do what is due until `cancel`, and once more then: fsync by the policy, and another try of a disk that
    /// has failed. To be spawned beside the sender, and cancelled after it.
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
        // An error: the runtime is ending.
        let _ = last.await;
    }

    /// Has the spool do what is due, and waits for that; whether it was done in time.
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
