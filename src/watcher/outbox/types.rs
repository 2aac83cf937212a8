//! Options of an outbox, results of its operations, and its reports.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use watcher_types::{PathSegment, WatchEvent};

use super::queue::Ticket;

/// Options of an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the spool's files are. It must exist and be writable, or everything stays in memory.
    pub folder: PathBuf,
    /// Most bytes of the spool's segments together, the time of a compaction included; at least 256 KiB. A quarter of it
    /// is for events to be sent. Segments that are kept aside for a newer release are not counted.
    pub max_bytes: u64,
    /// When records are forced to the disk.
    pub fsync: FsyncPolicy,
    /// Delay of the follow-up event after the last change of an object: admission precedes storage, so KCP may have read the
    /// object too early. None is sent if the event itself was delivered that late. Zero: never.
    pub follow_up_delay: Duration,
    /// The only managers that events are kept for. Empty: any manager that is named, at most 32 at a time.
    pub managers: Vec<PathSegment>,
    /// How long [`put`](super::Outbox::put) blocks its thread for the disk; an event that is not written by then counts as in
    /// memory only. Default 2 ms. Not used under [`FsyncPolicy::Always`].
    pub write_deadline: Duration,
}

impl Options {
    /// 64 MiB in `folder`, forced to the disk every second; a second event after 5 s; no configured managers.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            max_bytes: 64 << 20,
            fsync: FsyncPolicy::EachBatch(Duration::from_secs(1)),
            follow_up_delay: Duration::from_secs(5),
            managers: Vec::new(),
            write_deadline: Duration::from_millis(2),
        }
    }
}

/// When records are forced to the disk. All of them survive the end of the process, `kill -9` included: what was written
/// is the kernel's, which keeps it. They differ in what survives the end of the machine (power, kernel, hypervisor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Never, but for compactions: the machine's end may take whatever was put since the last one. Right for a `tmpfs`,
    /// and for an `emptyDir` of a node that does not come back with its disk.
    Never,
    /// In batches, after so long, a second at most: the machine's end takes what was put since, or since a sync began that
    /// has not ended. No put waits for a sync.
    EachBatch(Duration),
    /// Before [`put_forced`](super::Outbox::put_forced) returns: the machine's end takes nothing. Every new object then waits for the disk,
    /// milliseconds instead of microseconds, and one for the other: the one policy under which admission is as slow as
    /// the disk.
    Always,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[must_use]
pub enum Stored {
    /// New, and on the disk.
    Spooled,
    /// An event of this object was to be sent anyway, and will be, after this change.
    Coalesced,
    /// In memory only, because the disk fails or has not responded in time. It is delivered all the same, unless the process
    /// ends before.
    MemoryOnly,
    /// There is no capacity: nothing is kept but the mark that the manager needs a resync.
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
        self.into()
    }
}

/// An event under way. Each must come back, to [`Outbox::settle`](super::Outbox::settle): until then no other event of
/// its object is taken. One that does not come back is delivered by the next process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The manager that it is sent to.
    pub manager: PathSegment,
    /// The event.
    pub event: WatchEvent,
    /// Its number in this process, from 1, without gaps **of its manager**: a manager's listener sees only its own events,
    /// and would miss the others' numbers. Kept when it is tried again.
    pub sequence: u64,
    /// How often it has failed: 0 at its first try.
    pub attempt: u32,
    pub(super) ticket: Ticket,
}

/// How the try of an event has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// KCP has it. If the object has changed meanwhile it is due again at once, else for its confirmation.
    Delivered,
    /// KCP has it not: it is due again then, and not before, whatever its object does.
    Retry(Instant),
    /// KCP will never take it: it is dropped, and its manager is asked for a resync.
    Drop,
    /// Nothing takes the events of its manager: all of them are dropped, those under way included, and it is asked for a
    /// resync.
    DropAll,
}

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Events of earlier processes that are still to be delivered.
    pub items: usize,
    /// Events of earlier processes that are dropped, because their managers are not configured, or because there are too many
    /// managers.
    pub dropped: u64,
    /// Bytes that belong to no intact record.
    pub torn_bytes: u64,
    /// Segments of another release, kept aside under another name.
    pub newer_version: usize,
    /// Whether events were lost, now or earlier, and a resync is not reported to each of their managers yet.
    pub resync: bool,
    /// Why everything stays in memory for now; `None`: it does not.
    pub unusable: Option<String>,
}

/// The outbox as it is now, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects with an event that is still to be sent, events under way and follow-ups included.
    pub depth: usize,
    /// Those of them that are not delivered: all but the objects that only wait for their follow-up event.
    pub undelivered: u64,
    /// How long the oldest event that is due has waited, under way or not; `None`: none is.
    pub oldest_age: Option<Duration>,
    /// Whether some manager needs a resync that is not reported yet.
    pub resync_needed: bool,
    /// Bytes of the spool's segments.
    pub spool_bytes: u64,
    /// Whether the disk is in use; otherwise everything is in memory only.
    pub on_disk: bool,
    /// How often the disk was given up.
    pub disk_failures: u64,
    /// Bytes of memory that the queue takes, estimated upwards.
    pub memory_bytes: usize,
    /// Events that were dropped, by reason.
    pub dropped: Dropped,
}

/// Events that were dropped before KCP took them, by reason. The managers of all but the first kind are asked for a resync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Found in the spool, for managers that are not configured.
    pub manager_not_configured: u64,
    /// Of managers that were evicted for others, or of managers that found no capacity.
    pub too_many_managers: u64,
    /// There was no capacity for them in the queue or in the spool.
    pub outbox_full: u64,
    /// KCP rejected them for too long: 404, 400, 413 and the like.
    pub rejected: u64,
}

impl Dropped {
    /// The sum over all reasons.
    #[must_use]
    pub fn total(self) -> u64 {
        let counts = self.by_reason().into_iter();
        counts.map(|(_, count)| count).sum()
    }

    /// Each reason as a metric's label, with its count.
    #[must_use]
    pub fn by_reason(self) -> [(&'static str, u64); 4] {
        [
            ("manager_not_configured", self.manager_not_configured),
            ("too_many_managers", self.too_many_managers),
            ("outbox_full", self.outbox_full),
            ("rejected", self.rejected),
        ]
    }
}

/// What a heartbeat to one manager says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagerReport {
    /// The last number that was given to an event for it; 0: none yet.
    pub sequence: u64,
    /// The heartbeat's `spoolDepth`: objects whose last change is not delivered; more than that if an event that is tried
    /// again holds back the number up to which nothing is still to come, which listeners compute from this.
    pub spool_depth: u64,
    /// The heartbeat's `followUpDepth`: objects that wait for their follow-up event.
    pub follow_up_depth: u64,
    /// How long the oldest event of `spool_depth` has waited; `None`: there is none.
    pub oldest_age: Option<Duration>,
    /// Whether events for it were lost. To be acknowledged with
    /// [`Outbox::resync_reported`](super::Outbox::resync_reported) when a heartbeat with it was answered 2xx.
    pub resync: Option<ResyncMark>,
}

/// One loss, or several: those that a heartbeat has reported, as opposed to events that were lost while it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncMark(pub(super) u64);

impl ResyncMark {
    /// A loss that is reported to a manager for which no event was ever put.
    pub(super) const ALL_MANAGERS: Self = Self(u64::MAX);
}
