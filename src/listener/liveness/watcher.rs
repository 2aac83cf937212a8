//! One life of a watcher, as far as it was heard.
//!
//! Invariant: whether something was left behind is told by what was heard alone: a watcher that ends says nothing of it.
//! Deliberately absent: which watcher took over from which, for nothing on the wire tells.

use std::time::Duration;

use api::event::{BootId, Heartbeat};
use tokio::time::Instant;

use super::WatcherLiveness;
use super::sequences::Sequences;

#[derive(Debug)]
pub(super) struct Watcher {
    boot_id: BootId,
    first_heard: Instant,
    heard: Instant,
    sequences: Sequences,
    heartbeat: Option<(Instant, Heartbeat)>,
}

impl Watcher {
    pub(super) fn new(boot_id: BootId, now: Instant) -> Self {
        Self {
            boot_id,
            first_heard: now,
            heard: now,
            sequences: Sequences::default(),
            heartbeat: None,
        }
    }

    pub(super) fn is(&self, boot_id: &BootId) -> bool {
        self.boot_id == *boot_id
    }

    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    pub(super) fn beat(&mut self, heartbeat: Heartbeat, now: Instant) {
        // What waits in the spool may be unsent, or be underway.
        let settled = heartbeat.sequence.saturating_sub(heartbeat.spool_depth);
        self.sequences.expect(settled);
        self.heartbeat = Some((now, heartbeat));
    }

    pub(super) fn arrived(&mut self, sequence: u64) {
        self.sequences.arrived(sequence);
    }

    /// Numbered events that should have come and have not.
    pub(super) fn missing(&self) -> u64 {
        self.sequences.missing()
    }

    pub(super) fn is_quiet(&self, now: Instant, silence: Duration) -> bool {
        now.duration_since(self.heard) >= silence
    }

    /// Whether something waited, by its last heartbeat.
    pub(super) fn has_spooled(&self) -> bool {
        let last = self.heartbeat.as_ref();
        last.is_some_and(|(_, heartbeat)| heartbeat.spool_depth > 0)
    }

    /// Whether something waited, and nobody has heard of it since.
    pub(super) fn left_a_spool(&self, now: Instant, silence: Duration) -> bool {
        self.has_spooled() && self.is_quiet(now, silence)
    }

    /// Whether one of `others` was new at about the time of its last word, as in a rollout. If none was, it may have seen
    /// changes for long that it could not tell of.
    pub(super) fn was_replaced_in_time(&self, others: &[Self], silence: Duration) -> bool {
        others.iter().any(|other| {
            let after = other.first_heard.saturating_duration_since(self.heard);
            let before = self.heard.saturating_duration_since(other.first_heard);
            other.first_heard > self.first_heard && after.max(before) < silence
        })
    }

    pub(super) fn seen(&self, now: Instant, silence: Duration) -> WatcherLiveness {
        let heartbeat = self.heartbeat.as_ref();
        let since_heartbeat = heartbeat.map(|(at, _)| now.duration_since(*at));
        WatcherLiveness {
            boot_id: self.boot_id.clone(),
            silent: since_heartbeat.is_some_and(|since| since >= silence),
            since_heartbeat,
            sequence: self.sequences.highest(),
            missing_events: self.missing(),
            heartbeat: heartbeat.map(|(_, heartbeat)| heartbeat.clone()),
        }
    }
}
