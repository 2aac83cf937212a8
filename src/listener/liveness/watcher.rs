//! One process of a watcher, with the information from its heartbeats and events.

use std::time::Duration;

use tokio::time::Instant;
use watcher_types::{BootId, Heartbeat};

use super::WatcherLiveness;
use super::runtime::MISSED;
use super::sequences::Sequences;

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) boot_id: BootId,
    started: Instant,
    /// Time of the last heartbeat or event.
    pub(super) heard: Instant,
    /// Whether the watcher was not heard for three intervals, and no other watcher has replaced it.
    pub(super) unheard: bool,
    pub(super) sequences: Sequences,
    pub(super) heartbeat: Option<(Instant, Heartbeat)>,
    /// Number of successive heartbeats with new handshake failures and no new review. It includes the heartbeat before them
    /// if reviews ended in its interval. From [`MISSED`] on, only a review or [`calm`](Self::calm) resets it.
    pub(super) failing: u32,
    /// Number of successive heartbeats without new handshake failures.
    pub(super) calm: u32,
    /// Whether the last heartbeat had new reviews, and whether it had new handshake failures.
    grew: (bool, bool),
    /// Number of heartbeats since a review was expected.
    pub(super) heartbeats: u32,
}

impl Watcher {
    pub(super) fn new(boot_id: BootId, now: Instant) -> Self {
        Self {
            boot_id,
            started: now,
            heard: now,
            unheard: false,
            sequences: Sequences::default(),
            heartbeat: None,
            failing: 0,
            calm: 0,
            grew: (false, false),
            heartbeats: 0,
        }
    }

    /// Records a heartbeat. Returns the times of the last review of all managers, and of the last review of this manager,
    /// if they are reported. A watcher of an older release reports the same value for both.
    pub(super) fn heartbeat(&mut self, heartbeat: Heartbeat, now: Instant) -> [Option<Instant>; 2] {
        let last = self.heartbeat.as_ref().map(|(_, last)| last);
        let grew = |count: fn(&Heartbeat) -> Option<u64>| {
            // Both counts start with the watcher.
            count(&heartbeat) > Some(last.and_then(count).unwrap_or_default())
        };
        let reviewed = grew(|it| it.reviews_seen);
        let failed = heartbeat.reviews_seen.is_some() && grew(|it| it.handshake_failures);
        let before = std::mem::replace(&mut self.grew, (reviewed, failed));
        self.calm = if failed {
            0
        } else {
            self.calm.saturating_add(1)
        };
        self.failing = match (reviewed, failed) {
            (false, true) => self.failing.saturating_add(1),
            (false, false) if self.failing >= MISSED && self.calm < MISSED => self.failing,
            // If only failures follow, reviews ended in this interval. A port scanner with permanent handshake failures, or
            // generally rare reviews, do not show this.
            (true, true) => u32::from(!before.1),
            (true, false) => u32::from(before.0),
            (false, false) => 0,
        };
        self.heartbeats = self.heartbeats.saturating_add(1);
        let own_reviewed = grew(|it| it.manager_reviews_seen);
        let time = |age: Option<u64>, grew: bool| match age {
            Some(age) => now.checked_sub(Duration::from_secs(age)),
            None => grew.then_some(now),
        };
        let review = time(heartbeat.last_review_age_seconds, reviewed);
        let review = review.filter(|_| heartbeat.reviews_seen.is_some());
        let own = heartbeat.manager_reviews_seen.map(|_| {
            let age = heartbeat.manager_last_review_age_seconds;
            time(age, own_reviewed)
        });
        self.heartbeat = Some((now, heartbeat));
        [review, own.unwrap_or(review)]
    }

    /// Returns whether a heartbeat arrived within three intervals.
    pub(super) fn is_live(&self, now: Instant, interval: Duration) -> bool {
        let last = self.heartbeat.as_ref();
        last.is_some_and(|(at, _)| now - *at < MISSED * interval)
    }

    /// Returns whether the release of the watcher reports reviews and sends a last heartbeat.
    pub(super) fn reports_reviews(&self) -> bool {
        let last = self.heartbeat.as_ref();
        last.is_some_and(|(_, last)| last.reviews_seen.is_some())
    }

    /// Returns whether the watcher was ready at `time`, by its last heartbeat. One of a release that does not say it counts as ready.
    pub(super) fn was_ready(&self, time: Instant) -> bool {
        self.heartbeat.as_ref().is_some_and(|(at, last)| {
            let ready = last.ready_milliseconds.map(Duration::from_millis);
            ready.is_none_or(|it| !it.is_zero() && at.checked_sub(it) <= Some(time))
        })
    }

    /// Returns whether the watcher had undelivered events or a request for a resync in its last heartbeat.
    pub(super) fn has_undelivered(&self) -> bool {
        let last = self.heartbeat.as_ref();
        last.is_some_and(|(_, it)| it.spool_depth > 0 || it.follow_up_depth > 0 || it.resync_needed)
    }

    /// Returns whether one of `others` started as a replacement, if the watcher is not heard for the time `silence`.
    pub(super) fn was_replaced(&self, others: &[Self], silence: Duration) -> bool {
        let overlap = if self.reports_reviews() {
            Duration::ZERO
        } else {
            silence
        };
        others
            .iter()
            .any(|other| other.started > self.started && other.started + overlap > self.heard)
    }

    pub(super) fn seen(&self, now: Instant, interval: Duration) -> WatcherLiveness {
        let heartbeat = self.heartbeat.as_ref();
        WatcherLiveness {
            boot_id: self.boot_id.clone(),
            silent: heartbeat.is_some() && !self.is_live(now, interval),
            since_heartbeat: heartbeat.map(|(at, _)| now - *at),
            sequence: self.sequences.highest(),
            missing_events: self.sequences.missing(),
            heartbeat: heartbeat.map(|(_, heartbeat)| heartbeat.clone()),
        }
    }
}
