//! What an outbox says of itself.

use std::time::Duration;

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Events of former lives that are still to be delivered.
    pub items: usize,
    /// Events of former lives that are dropped, because their managers are not configured, or because there are too many
    /// managers.
    pub dropped: u64,
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
    /// Events that were dropped, by reason.
    pub dropped: Dropped,
}

/// Events that were dropped before KCP took them, by reason. The managers of all but the first kind are asked for a resync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Found in the spool, for managers that are not configured.
    pub manager_not_configured: u64,
    /// Of managers that made room for others, or of managers that found no room.
    pub too_many_managers: u64,
    /// There was no room for them in the queue or in the spool.
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
