//! Options of an outbox, results of its operations, and its reports.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use watcher_types::{PathSegment, WatchEvent};

use super::queue::{MonotonicTime, Ticket};

/// Options of an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Directory of the spool. It must exist and be writable; otherwise all events stay in memory.
    pub folder: PathBuf,
    /// Maximum total size of the segments of the spool in bytes, including during a compaction; at least 256 KiB. A quarter
    /// of it is for pending events. Segments that were quarantined for a newer release are not counted.
    pub max_bytes: u64,
    /// When records are synced to the disk.
    pub fsync: FsyncPolicy,
    /// Delay of the follow-up event after the last change of an object. Admission precedes storage, so KCP may have read
    /// the object too early. No follow-up event is sent if the event itself was delivered after this delay. Zero means
    /// never.
    pub follow_up_delay: Duration,
    /// Managers whose events are accepted. Empty means any manager, at most 32 at a time. Those that a client may have
    /// invented then share a quarter of the capacity.
    pub managers: Vec<PathSegment>,
    /// Maximum time that [`put`](super::Outbox::put) blocks its thread for the disk. An event that is not written by then
    /// counts as in memory only. Default 2 ms. Not used under [`FsyncPolicy::Always`].
    pub write_deadline: Duration,
}

impl Options {
    /// Returns the defaults: 64 MiB in `folder`, a sync every second, a follow-up event after 5 s, and no configured managers.
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

/// Time limits of the disk, except [`Options::write_deadline`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    /// Maximum time that a start waits for the disk.
    pub(super) open: Duration,
    /// Duration of a disk operation after which events count as in memory only, and time limit of
    /// [`put_forced`](super::Outbox::put_forced).
    pub(super) stalled: Duration,
    /// Maximum time that the end of a process waits for the pending records.
    pub(super) shutdown: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            open: Duration::from_secs(5),
            stalled: Duration::from_secs(1),
            shutdown: Duration::from_secs(1),
        }
    }
}

/// When records are synced to the disk. With each policy they survive the end of the process, including `kill -9`, because
/// the kernel stores written data. The policies differ in the records that survive a failure of the machine (power, kernel,
/// hypervisor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Never, except for compactions. A failure of the machine may lose all records since the last compaction. Suitable for
    /// a `tmpfs`, and for an `emptyDir` of a node whose disk is not reused.
    Never,
    /// In batches, at this interval, at most a second. A failure of the machine loses the records since the last sync, or
    /// since the start of a sync that has not ended. No put waits for a sync.
    EachBatch(Duration),
    /// Before [`put_forced`](super::Outbox::put_forced) returns. A failure of the machine loses no record. Each new object
    /// then waits for the disk, for milliseconds instead of microseconds, one after the other. This is the only policy
    /// under which admission is as slow as the disk.
    Always,
}

/// Result of storing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[must_use]
pub enum Stored {
    /// The event is new, and on the disk.
    Spooled,
    /// An event of this object was already pending, and will be sent after this change.
    Coalesced,
    /// The event is in memory only, because the disk fails or has not responded in time. It is delivered, unless the
    /// process ends before.
    MemoryOnly,
    /// There is no capacity for events of the manager. Only the mark that the manager needs a resync is stored.
    Full,
    /// Too many managers were named within a minute, so no event of another manager is stored. If the manager is registered
    /// later, it gets a request for a resync.
    TooManyManagers,
    /// Other managers are configured. The event is not stored, and the manager gets no request for a resync.
    NotConfigured,
}

impl Stored {
    /// Returns the value of the metric label: `spooled`, `coalesced`, `memory_only`, `full`, `too_many_managers` or
    /// `not_configured`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An event in progress. Each event must be passed to [`Outbox::settle`](super::Outbox::settle). Until then no other event
/// of its object is taken. The next process delivers an event that was not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Manager that gets the event.
    pub manager: PathSegment,
    /// The event.
    pub event: WatchEvent,
    /// Sequence number of the event in this process, from 1, without gaps **per manager**: the listener of a manager
    /// receives only its own events, and would report the numbers of other managers as missing. A retry has the same
    /// number.
    pub sequence: u64,
    /// Number of failed attempts: 0 at the first attempt.
    pub attempt: u32,
    pub(super) ticket: Ticket,
}

/// Result of an attempt to deliver an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// KCP has accepted the event. If the object has changed since the take, it is due again at once, otherwise for its
    /// follow-up event.
    Delivered,
    /// KCP has not accepted the event. It is due again at this time, and not before, even if its object changes.
    Retry(Instant),
    /// KCP will never accept the event. It is dropped, and its manager gets a request for a resync.
    Drop,
    /// No listener accepts events of the manager. All its events are dropped, including events in progress, and it gets a
    /// request for a resync.
    DropAll,
}

/// Content of the spool at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of events of earlier processes that must still be delivered.
    pub items: usize,
    /// Number of events of earlier processes that are dropped, because their managers are not configured, or because there
    /// are too many managers.
    pub dropped: u64,
    /// Number of bytes that belong to no intact record.
    pub torn_bytes: u64,
    /// Number of segments of another release, which were quarantined under another name.
    pub newer_version: usize,
    /// Whether events were lost, now or earlier, and a resync has not been reported to each of their managers yet.
    pub resync: bool,
    /// Reason why events are in memory only; `None` if they are spooled.
    pub unusable: Option<String>,
}

/// Current state of the outbox, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of objects with a pending event, including events in progress and follow-up events.
    pub depth: usize,
    /// Number of objects whose event is not delivered, without objects that only wait for their follow-up event.
    pub undelivered: usize,
    /// Age of the oldest due event, whether or not it is in progress; `None` if no event is due.
    pub oldest_age: Option<Duration>,
    /// Whether a manager needs a resync that has not been reported yet.
    pub resync_needed: bool,
    /// Size of the segments of the spool in bytes.
    pub spool_bytes: u64,
    /// Whether the disk is in use. Otherwise events are in memory only.
    pub on_disk: bool,
    /// Number of failures of the disk.
    pub disk_failures: u64,
    /// Memory of the queue in bytes, as an upper estimate.
    pub memory_bytes: usize,
    /// Number of dropped events, by reason.
    pub dropped: Dropped,
}

/// Number of events that were dropped before KCP accepted them, by reason. The managers of all reasons except the first get
/// a request for a resync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Events in the spool for managers that are not configured.
    pub manager_not_configured: u64,
    /// Events of evicted managers, and of managers for which there was no capacity.
    pub too_many_managers: u64,
    /// Events for which the queue or the spool had no capacity.
    pub outbox_full: u64,
    /// Events that KCP rejected for too long: 404, 400, 413 and similar statuses.
    pub rejected: u64,
}

impl Dropped {
    /// Returns the sum over all reasons.
    #[must_use]
    pub fn total(self) -> u64 {
        let counts = self.by_reason().into_iter();
        counts.map(|(_, count)| count).sum()
    }

    /// Returns each reason as a label value of the metric, with its count.
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

/// Values for a heartbeat to one manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagerReport {
    /// The last assigned sequence number of the manager; 0 means none yet.
    pub sequence: u64,
    /// `spoolDepth` of the heartbeat: the number of objects whose last change is not delivered. The value is higher if a
    /// retried event has a lower sequence number, because listeners compute from it the number up to which all events have
    /// arrived.
    pub spool_depth: u64,
    /// `followUpDepth` of the heartbeat: the number of objects that wait for their follow-up event.
    pub follow_up_depth: u64,
    /// Age of the oldest event in `spool_depth`; `None` if there is none.
    pub oldest_age: Option<Duration>,
    /// Set if events of the manager were lost. Acknowledge it with
    /// [`Outbox::resync_reported`](super::Outbox::resync_reported) after a 2xx response to a heartbeat with this mark.
    pub resync: Option<ResyncMark>,
}

/// Identifies the losses that a heartbeat has reported, to distinguish them from events that were lost while it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncMark {
    pub(super) number: u64,
    /// When the changes that were lost are stored at the latest. A resync before that time may not see them.
    pub(super) stored_by: MonotonicTime,
}
