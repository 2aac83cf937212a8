//! What KCP is still to be told: a queue in memory, and beside it a spool on the disk that survives `kill -9`.
//!
//! ```text
//! put ──> state ┬─> queue: the latest of each object, the oldest first ──> take ──> delivered, failed
//!               └─> spool ──> journal ──> writer: segments, in its thread    upkeep: fsync, compaction, a disk that refused
//! ```
//!
//! The public watcher drops what it cannot deliver at once.
//! Invariants:
//! - What was put is delivered after its last change, or its manager is marked to need a resync: over crashes, torn and
//!   damaged files, and for want of room. It may be delivered more than once.
//! - [`Outbox::put`] waits for the disk for a bounded time, and nothing else does; memory and disk are bounded.
//! - A disk that refuses, or does not answer, takes nothing but survival: events are delivered from memory, and it is tried again.
//!
//! Deliberately absent: the network, and when to send (`delivery`). A spool on an `emptyDir` goes with its Pod; so do
//! events that are put while the disk refuses if the process then dies, which the spool notes where it can.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use api::event::{PathSegment, WatchEvent};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use self::options::{FsyncPolicy, Options};
pub use self::report::{Dropped, ManagerReport, Recovered, Report, ResyncMark};

use self::error::SpoolError;
use self::folder::Disk;
use self::folder::local::LocalDisk;
use self::moment::Moment;
pub(crate) use self::queue::managers::Receiver;
use self::queue::{Limits, Taken, Ticket};
use self::recovery::Found;
use self::state::{Settings, State};
use self::upkeep::Store;

mod checksum;
mod error;
mod folder;
mod journal;
mod key;
mod moment;
mod names;
mod options;
mod queue;
mod record;
mod recovery;
mod report;
mod segment;
mod spool;
mod state;
mod upkeep;
mod writer;

/// How long a start waits for the disk.
const OPENING: Duration = Duration::from_secs(5);

/// The outbox. Clones share it.
#[derive(Clone, Debug)]
pub struct Outbox {
    store: Arc<Store>,
    changed: Arc<Notify>,
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
        let Options {
            folder,
            max_bytes,
            fsync,
            confirm_after,
            managers,
            write_deadline,
        } = options;
        let settings = Settings {
            managers,
            write_deadline,
            limits: Limits::WATCHER,
            max_bytes,
            fsync,
            confirm_after,
        };
        Self::on(Box::new(LocalDisk(folder)), settings, now)
    }

    fn on(disk: Box<dyn Disk>, settings: Settings, now: Instant) -> (Self, Recovered) {
        let configured = settings.managers.iter().cloned().collect();
        let outbox = Self {
            store: Arc::new(Store::new(settings, disk)),
            changed: Arc::default(),
            epoch: now,
            configured: Arc::new(configured),
        };
        let found = outbox.attach().unwrap_or_default();
        let state = outbox.store.lock();
        let recovered = Recovered {
            items: state.queue.len(),
            dropped: state.dropped.total(),
            torn_bytes: found.bad_bytes,
            newer_version: found.foreign,
            resync: state.queue.managers().any_lost(),
            unusable: state.spool.trouble().map(str::to_owned),
        };
        drop(state);
        (outbox, recovered)
    }

    /// Opens the disk, in a thread of its own, so that a process starts on a disk that does not answer; what is found later
    /// is taken over then.
    fn attach(&self) -> Option<Found> {
        let (send, attached) = mpsc::channel();
        let (store, changed) = (Arc::clone(&self.store), Arc::clone(&self.changed));
        let attach = move || {
            let found = store.attach_first();
            drop(store);
            // Nobody waits any more if it took too long.
            let _unless_late = send.send(found);
            changed.notify_one();
        };
        let thread = thread::Builder::new().name("spool-open".to_owned());
        let trouble = match thread.spawn(attach) {
            Ok(_detached) => match attached.recv_timeout(OPENING) {
                Ok(found) => return found,
                Err(_late) => SpoolError::Stalled,
            },
            Err(error) => SpoolError::Thread(error),
        };
        let mut state = self.store.lock();
        if !state.spool.in_use() {
            state.spool.give_up(&trouble, Moment::default());
        }
        None
    }

    /// Keeps `event` for `manager` until it is delivered. Blocks until the disk has it, at most for
    /// [`Options::write_deadline`]; then it is delivered from memory, and written when the disk answers.
    pub fn put(&self, manager: &PathSegment, event: &WatchEvent, now: Instant) -> Stored {
        let now = self.moment(now);
        let stored = self.store.put(manager, event, now);
        self.changed.notify_one();
        stored
    }

    /// Whether events for `manager` may be kept: no managers are configured, or it is one of them. Takes no lock.
    #[must_use]
    pub fn admits(&self, manager: &PathSegment) -> bool {
        self.configured.is_empty() || self.configured.contains(manager)
    }

    /// `manager` has taken an event that was never in the outbox: from now on it is sent heartbeats.
    pub fn took(&self, manager: &PathSegment, now: Instant) {
        let now = self.moment(now);
        self.store.lock().queue.managers_mut().took(manager, now);
    }

    /// At most `limit` events that are due, the oldest first; none of an object that is under way. `now` may lie ahead, for
    /// a last round before the end: a confirmation that is delivered too early stays, for the next life.
    #[must_use]
    pub fn take(&self, now: Instant, limit: usize) -> Vec<Item> {
        let now = self.moment(now);
        let taken = self.store.lock().queue.take(now, limit);
        taken.into_iter().filter_map(item).collect()
    }

    /// KCP has it. If the object has changed meanwhile it is due again at once, else for its confirmation.
    pub fn delivered(&self, item: &Item, now: Instant) {
        let now = self.moment(now);
        self.store.lock().delivered(item.ticket, now);
    }

    /// KCP has it not: it is due again at `retry_at`, and not before, whatever its object does.
    pub fn failed(&self, item: &Item, retry_at: Instant) {
        let retry_at = self.moment(retry_at);
        self.store.lock().queue.failed(item.ticket, retry_at);
    }

    /// KCP will never take it: it is dropped, and its manager is asked for a resync.
    pub fn rejected(&self, item: &Item, now: Instant) {
        let now = self.moment(now);
        self.store.lock().rejected(item.ticket, now);
    }

    /// Nothing takes the events of `manager`: all of them are dropped, those under way included, and it is asked for a
    /// resync.
    pub fn all_rejected(&self, manager: &PathSegment, now: Instant) {
        let now = self.moment(now);
        self.store.lock().all_rejected(manager, now);
    }

    /// When the earliest event that is not under way becomes due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.store.lock().queue.next_due()?;
        self.epoch.checked_add(Duration::from_nanos(due.0))
    }

    /// Returns when something was put, or found on a disk that had refused. For one waiter; what comes between two calls is
    /// not missed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The whole, for metrics. Looks at every object: a millisecond where there are 100,000.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let now = self.moment(now);
        let State {
            queue,
            spool,
            dropped,
            ..
        } = &mut *self.store.lock();
        spool.check(now);
        Report {
            depth: queue.len(),
            oldest_age: queue.oldest(now, None).map(|since| since.until(now)),
            resync_needed: queue.managers().any_lost(),
            spool_bytes: spool.bytes(),
            on_disk: spool.in_use(),
            disk_failures: spool.failures,
            memory_bytes: queue.memory(),
            dropped: *dropped,
        }
    }

    /// What a heartbeat to `manager` says. As slow as [`Self::report`].
    #[must_use]
    pub fn manager_report(&self, manager: &PathSegment, now: Instant) -> ManagerReport {
        let now = self.moment(now);
        let queue = &self.store.lock().queue;
        let (sequence, spool_depth) = queue.managers().standing(manager);
        let place = queue.managers().place(manager);
        let oldest = place.and_then(|place| queue.oldest(now, Some(place)));
        ManagerReport {
            sequence,
            spool_depth,
            oldest_age: oldest.map(|since| since.until(now)),
            resync: queue.managers().lost(manager),
        }
    }

    /// The managers that heartbeats are sent to: those that are configured, that have taken an event in this life, or that
    /// have lost one and do not know.
    pub(crate) fn receivers(&self) -> Vec<Receiver> {
        self.store.lock().queue.managers().receivers().collect()
    }

    /// How often a manager was evicted in this life.
    pub(crate) fn evictions(&self) -> u64 {
        self.store.lock().queue.managers().evictions()
    }

    /// Whether `manager` is configured, or has taken an event in this life: its name is not a client's invention.
    pub(crate) fn is_known(&self, manager: &PathSegment) -> bool {
        let queue = &self.store.lock().queue;
        queue.managers().is_known(manager)
    }

    /// Whether `manager` is registered.
    pub(crate) fn is_registered(&self, manager: &PathSegment) -> bool {
        self.store.lock().queue.managers().place(manager).is_some()
    }

    /// `manager` has acknowledged a heartbeat that carried `mark`. A later loss keeps its mark.
    pub fn resync_told(&self, manager: &PathSegment, mark: ResyncMark, now: Instant) {
        let now = self.moment(now);
        self.store.lock().resync_told(manager, mark, now);
    }

    /// Does the upkeep until `cancel`, and once more then: fsync by the policy, compaction, another try of a disk that has
    /// refused. To be spawned beside the sender, and cancelled after it.
    pub async fn run(self, cancel: CancellationToken) {
        loop {
            let ending = cancel.is_cancelled();
            let outbox = self.clone();
            let upkeep = tokio::task::spawn_blocking(move || outbox.keep_up(Instant::now()));
            // An error: the runtime is ending.
            let Ok(pause) = upkeep.await else { return };
            if ending {
                return;
            }
            cancel.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Blocks for as long as the disk does; how long until the next time.
    fn keep_up(&self, now: Instant) -> Duration {
        let due = self.next_due();
        let pause = self.store.keep_up(self.moment(now));
        if self.next_due() != due {
            // A folder that was opened only now has brought events.
            self.changed.notify_one();
        }
        pause
    }

    fn moment(&self, at: Instant) -> Moment {
        Moment::default().after(at.saturating_duration_since(self.epoch))
    }
}

fn item(taken: Taken) -> Option<Item> {
    let Taken {
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
