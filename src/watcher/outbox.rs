//! What KCP is still to be sent: a queue in memory, and a spool on the disk that survives `kill -9`.
//!
//! ```text
//! put ──> queue: the latest of each object, the oldest first ──> take ──> delivered, failed
//!           └──> handoff ──> spool: the thread that owns the files
//! ```
//!
//! What was put is delivered after its last change, or its manager is marked to need a resync: over crashes, torn and
//! damaged files, and for want of room. It may be delivered more than once. [`Outbox::put`] waits for the disk for a bounded
//! time, and nothing else does; memory and disk are bounded. A disk that fails, or does not answer, costs durability alone:
//! events are delivered from memory, and it is tried again. A spool on an `emptyDir` goes with its Pod.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use watcher_types::{PathSegment, WatchEvent};

pub use self::types::{
    Dropped, FsyncPolicy, ManagerReport, Options, Recovered, Report, ResyncMark,
};

use self::handoff::Shared;
pub(crate) use self::queue::managers::Receiver;
use self::queue::{DequeuedEvent, Limits, MonotonicTime, Ticket};
use self::spool::SpoolThread;
use self::state::Settings;
use self::storage::{LocalSpoolDir, SpoolDir};

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

/// Fewest bytes of the spool: room for a few of the largest events.
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

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stored {
    /// New, and on the disk.
    Spooled,
    /// KCP was to be told of this object anyway, and will be, after this change.
    Coalesced,
    /// In memory only, because the disk refuses or has not answered in time. It is delivered all the same, if the process
    /// lives.
    MemoryOnly,
    /// There is no room: nothing is kept but the mark that the manager needs a resync.
    Full,
    /// So many managers were named within a minute that nothing is kept for another one. If it is registered later, it is
    /// asked for a resync.
    TooManyManagers,
    /// Other managers are configured: nothing is kept, and KCP is not asked for a resync.
    NotConfigured,
}

impl Stored {
    /// `spooled`, `coalesced`, `memory_only`, `full`, `too_many_managers` or `not_configured`: a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spooled => "spooled",
            Self::Coalesced => "coalesced",
            Self::MemoryOnly => "memory_only",
            Self::Full => "full",
            Self::TooManyManagers => "too_many_managers",
            Self::NotConfigured => "not_configured",
        }
    }
}

/// An event under way. Each must come back, to [`Outbox::delivered`] or [`Outbox::failed`]: until then no other event of
/// its object is taken. One that does not come back is delivered in the process's next life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Who is told.
    pub manager: PathSegment,
    /// What.
    pub event: WatchEvent,
    /// Its number in this life, from 1, without gaps **of its manager**: a manager's listener sees only its own events,
    /// and would miss the others' numbers. Kept when it is tried again.
    pub sequence: u64,
    /// How often it has failed: 0 at its first try.
    pub attempt: u32,
    ticket: Ticket,
}

impl Outbox {
    /// Opens the spool, and reads what former lives have left. Blocks for as long as that takes, five seconds at most. Never
    /// fails: see [`Recovered::unusable`].
    #[must_use]
    pub fn open(options: Options, now: Instant) -> (Self, Recovered) {
        let settings = Settings {
            managers: options.managers,
            write_deadline: options.write_deadline,
            limits: Limits::WATCHER,
            max_bytes: options.max_bytes,
            fsync: options.fsync,
            follow_up_delay: options.follow_up_delay,
        };
        Self::on(Box::new(LocalSpoolDir(options.folder)), settings, now)
    }

    fn on(dir: Box<dyn SpoolDir>, mut settings: Settings, now: Instant) -> (Self, Recovered) {
        settings.max_bytes = settings.max_bytes.max(FEWEST_BYTES);
        let configured = settings.managers.iter().cloned().collect();
        let (shared, fsync) = (Arc::new(Shared::new(&settings)), settings.fsync);
        let thread = SpoolThread::start(Arc::clone(&shared), dir, settings);
        shared.opened(OPEN_TIMEOUT);
        let state = shared.lock();
        let (torn_bytes, newer_version) = state.handoff.damage;
        let recovered = Recovered {
            items: state.queue.len(),
            dropped: state.dropped.total(),
            torn_bytes,
            newer_version,
            resync: state.queue.managers().any_lost(),
            unusable: state.handoff.trouble.clone(),
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
    /// [`Options::write_deadline`], and not at all where the disk takes longer than that already; then it is delivered from
    /// memory, and written when the disk answers.
    pub fn put(&self, manager: &PathSegment, event: &WatchEvent, now: Instant) -> Stored {
        let now = self.monotonic(now);
        let stored = self.shared.put(manager, event, now);
        self.shared.changed.notify_one();
        stored
    }

    /// Whether events for `manager` may be kept: no managers are configured, or it is one of them. Takes no lock.
    #[must_use]
    pub fn admits(&self, manager: &PathSegment) -> bool {
        self.configured.is_empty() || self.configured.contains(manager)
    }

    /// `manager` has taken an event that was never in the outbox: from now on it is sent heartbeats.
    pub fn took(&self, manager: &PathSegment, now: Instant) {
        let now = self.monotonic(now);
        self.shared.lock().queue.managers_mut().took(manager, now);
    }

    /// Takes the event that is due longest, of the managers that `permit` lets through: it is given their names, and whether
    /// they are configured or have taken an event. None is taken of an object that is under way. `now` may lie ahead, for a
    /// last round before the end: a confirmation that is delivered too early stays, for the next life.
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
        match taken {
            Ok((taken, permit)) => Ok((item(taken).ok_or(None)?, permit)),
            Err(again) => {
                Err(again.and_then(|at| self.epoch.checked_add(Duration::from_nanos(at.0))))
            }
        }
    }

    /// KCP has it. If the object has changed meanwhile it is due again at once, else for its confirmation.
    pub fn delivered(&self, item: &Item, now: Instant) {
        let now = self.monotonic(now);
        self.shared
            .change(now, |state| state.delivered(item.ticket, now));
    }

    /// KCP has it not: it is due again at `retry_at`, and not before, whatever its object does.
    pub fn failed(&self, item: &Item, retry_at: Instant) {
        let retry_at = self.monotonic(retry_at);
        self.shared.lock().queue.failed(item.ticket, retry_at);
    }

    /// KCP will never take it: it is dropped, and its manager is asked for a resync.
    pub fn rejected(&self, item: &Item, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, |state| state.rejected(item.ticket));
    }

    /// Nothing takes the events of `manager`: all of them are dropped, those under way included, and it is asked for a
    /// resync.
    pub fn all_rejected(&self, manager: &PathSegment, now: Instant) {
        let now = self.monotonic(now);
        self.shared.change(now, |state| state.all_rejected(manager));
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
            undelivered: queue.managers().undelivered(),
            oldest_age: queue.oldest_due(now).map(|since| since.until(now)),
            resync_needed: queue.managers().any_lost(),
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
        let managers = queue.managers();
        let counts = managers.counts(manager);
        let place = managers.place(manager);
        let oldest = place.and_then(|place| queue.oldest_undelivered(place));
        ManagerReport {
            sequence: counts.sequence,
            spool_depth: counts.undelivered,
            follow_up_depth: counts.follow_ups,
            oldest_age: oldest.map(|since| since.until(now)),
            resync: managers.lost(manager),
        }
    }

    /// The managers that heartbeats are sent to: those that are configured, that have taken an event in this life, or that
    /// have lost one and do not know.
    pub(crate) fn receivers(&self) -> Vec<Receiver> {
        self.shared.lock().queue.managers().receivers().collect()
    }

    /// How often a manager was evicted in this life.
    pub(crate) fn evictions(&self) -> u64 {
        self.shared.lock().queue.managers().evictions()
    }

    /// Whether `manager` is configured, or has taken an event in this life: its name is not a client's invention.
    pub(crate) fn is_known(&self, manager: &PathSegment) -> bool {
        let state = self.shared.lock();
        let managers = state.queue.managers();
        let place = managers.place(manager);
        place.is_some_and(|place| managers.is_known(place))
    }

    /// Whether `manager` is registered.
    pub(crate) fn is_registered(&self, manager: &PathSegment) -> bool {
        self.shared.lock().queue.managers().place(manager).is_some()
    }

    /// `manager` has acknowledged a heartbeat that carried `mark`. A later loss keeps its mark.
    pub fn resync_told(&self, manager: &PathSegment, mark: ResyncMark, now: Instant) {
        let now = self.monotonic(now);
        self.shared
            .change(now, |state| state.resync_told(manager, mark, now));
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

fn item(taken: DequeuedEvent) -> Option<Item> {
    let DequeuedEvent {
        key,
        number,
        attempt,
        ticket,
    } = taken;
    // Every key in the queue was encoded, or decoded once.
    let (manager, event) = key::decode(&key)?;
    Some(Item {
        manager,
        event,
        sequence: number,
        attempt,
        ticket,
    })
}

#[cfg(test)]
mod tests;
