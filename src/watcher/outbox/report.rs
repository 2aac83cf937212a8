//! What an outbox says of itself.

use std::time::Duration;

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Events of former lives that are still to be delivered.
    pub items: usize,
    /// Bytes that belong to no intact record.
    pub torn_bytes: u64,
    /// Segments of another release, kept aside under another name.
    pub newer_version: usize,
    /// Whether something was lost, now or earlier, of which some manager does not know yet.
    pub resync: bool,
    /// Why everything stays in memory for now; `None`: it does not.
    pub unusable: Option<String>,
}

/// The outbox as it is now, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects of which KCP is still to be told, events under way and confirmations included.
    pub depth: usize,
    /// How long the oldest event that is due has waited, under way or not; `None`: none is.
    pub oldest_age: Option<Duration>,
    /// Whether some manager needs a resync, and does not know yet.
    pub resync_needed: bool,
    /// Bytes of the spool's segments.
    pub spool_bytes: u64,
    /// Whether the disk is in use; otherwise everything is in memory only.
    pub on_disk: bool,
    /// How often the disk was given up.
    pub disk_failures: u64,
    /// Bytes of memory that the queue takes, estimated upwards.
    pub memory_bytes: usize,
}

/// What a heartbeat to one manager says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagerReport {
    /// The last number that was given to an event for it; 0: none yet.
    pub sequence: u64,
    /// The heartbeat's `spoolDepth`: objects of which it is still to be told; more than that if an event that is tried
    /// again holds back the number up to which nothing is still to come, which listeners compute from this.
    pub spool_depth: u64,
    /// How long the oldest of its events that is due has waited; `None`: none is.
    pub oldest_age: Option<Duration>,
    /// Whether events for it were lost. When a heartbeat that said so was answered 2xx, say it with
    /// [`Outbox::resync_told`](super::Outbox::resync_told).
    pub resync: Option<ResyncMark>,
}

/// One loss, or several: what a heartbeat has told, as opposed to what was lost while it was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncMark(pub(super) u64);

impl ResyncMark {
    /// A loss of which a manager is told that no event was ever put for.
    pub(super) const EVERYONE: Self = Self(u64::MAX);
}
