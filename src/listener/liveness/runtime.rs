//! One runtime and its watchers. The list in [`liveness`](super) specifies when a resync is required.

use std::time::Duration;

use tokio::time::Instant;
use watcher_types::{BootId, Heartbeat};

use super::watcher::Watcher;
use super::{LastRejection, RuntimeLiveness};
use crate::certificate::RuntimeId;
use crate::queue::{EnqueueResult, Notification, Sender, UnresponsiveReason};

/// Number of intervals without a heartbeat after which a watcher or a runtime is silent, and number of heartbeats after
/// which a missing review is reported.
pub(super) const MISSED: u32 = 3;

/// Longest time without any watcher that is not concluded, because the delays of two heartbeats may differ by as much.
const DELIVERY: Duration = Duration::from_millis(500);

/// Maximum number of stored watchers of one runtime: its replicas, and a replaced watcher.
const WATCHERS: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Runtime {
    /// Interval of the heartbeats of the watchers.
    interval: Duration,
    /// When a heartbeat was first expected.
    pub(super) expected: Option<Instant>,
    heartbeat: Option<Instant>,
    event: Option<Instant>,
    pub(super) rejection: Option<(Instant, String)>,
    watchers: Vec<Watcher>,
    /// When the last watcher terminated, until another one is heard that is ready.
    ended: Option<Instant>,
    /// The last time at which a watcher that has ended was ready.
    served: Option<Instant>,
    /// Number of missing events of watchers that are not stored anymore.
    lost_before: u64,
    /// Time of the last review by the heartbeats, of all managers and of this manager.
    review: Option<Instant>,
    own_review: Option<Instant>,
    /// When a review was expected that was not reported yet.
    review_expected: Option<Instant>,
    /// Since when handshakes fail.
    failed: Option<Instant>,
    /// Whether reviews did not arrive, so that changes were missed, and no resync was required since then.
    unreviewed: bool,
    /// Reason of the last unresponsive notification to the operator.
    pub(super) unresponsive: Option<UnresponsiveReason>,
    /// The last hash of the webhook entries that a watcher reported.
    entry: Option<String>,
    /// A resync is required of which the operator is not notified yet.
    resync_due: bool,
    last_resync: Option<Instant>,
    pub(crate) resyncs: u64,
}

impl Runtime {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            ..Self::default()
        }
    }

    pub(super) fn heard(&self) -> Option<Instant> {
        self.heartbeat.max(self.event).max(self.expected)
    }

    pub(crate) fn since_heartbeat(&self, now: Instant) -> Option<Duration> {
        self.heartbeat.map(|at| now - at)
    }

    pub(crate) fn since_review(&self, now: Instant) -> Option<Duration> {
        self.review.map(|at| now - at)
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        let due = self.heartbeat.max(self.expected);
        due.is_some_and(|due| now - due >= MISSED * self.interval)
    }

    /// Records that a watcher is heard, by an event or a heartbeat: one that is new after a silence shows that the last one is gone.
    fn heard_after_silence(&mut self, boot_id: &BootId, now: Instant) {
        let is_new = self.watchers.iter().all(|it| it.boot_id != *boot_id);
        if is_new && self.is_silent(now) {
            self.ended = self.ended.or(self.heartbeat);
        }
    }

    /// Returns whether changes between the last watcher and one that is ready for this time had no review, even if the last
    /// one has delivered all events. If the time is not known, half an interval without any watcher is tolerated: in a rollout, the
    /// first heartbeat of a new watcher arrives within a fifth of the interval.
    fn is_after_pause(&self, ready: Option<Duration>, now: Instant) -> bool {
        self.ended.is_some_and(|ended| match ready {
            Some(ready) => now.checked_sub(ready) > Some(ended + DELIVERY),
            None => now - ended > self.interval / 2,
        })
    }

    /// Records that a watcher that was ready has terminated since `time`, and is not stored any more. The next heartbeat decides
    /// whether another one was ready then, also one that was heard before: after a start of the listener, not all are known.
    fn ended(&mut self, time: Instant) {
        let served = self.served.unwrap_or(time).max(time);
        self.served = Some(served);
        let by = served + DELIVERY;
        if !self.watchers.iter().any(|it| it.was_ready(by)) {
            self.ended = Some(served);
        }
    }

    /// Returns the number of missing events that cannot arrive anymore.
    pub(crate) fn lost_events(&self) -> u64 {
        let watchers = self.watchers.iter().map(|it| it.sequences.lost());
        watchers.fold(self.lost_before, u64::saturating_add)
    }

    /// Returns the last heartbeats of the watchers that are live.
    #[cfg(feature = "metrics")]
    pub(crate) fn live(&self, now: Instant) -> impl Iterator<Item = &Heartbeat> + Clone {
        let live = self.live_watchers(now);
        live.filter_map(|it| it.heartbeat.as_ref().map(|(_, heartbeat)| heartbeat))
    }

    fn live_watchers(&self, now: Instant) -> impl Iterator<Item = &Watcher> + Clone {
        let watchers = self.watchers.iter();
        watchers.filter(move |it| it.is_live(now, self.interval))
    }

    pub(super) fn event(&mut self, number: Option<(BootId, u64)>, now: Instant) {
        self.event = Some(now);
        if let Some((boot_id, sequence)) = number {
            // Its heartbeat says since when it is ready.
            self.heard_after_silence(&boot_id, now);
            let at = self.watcher(&boot_id, now);
            self.resync_due |= self.watchers[at].sequences.arrived(sequence);
        }
    }

    /// Records a heartbeat. `started` is the start of the listener, within three intervals of which the operator reconciles
    /// everything; the objects of a runtime that is first heard later may have changed before its webhook existed. `None` if a first
    /// heartbeat has another reason.
    pub(super) fn heartbeat(
        &mut self,
        heartbeat: Heartbeat,
        now: Instant,
        started: Option<Instant>,
    ) {
        let ready = heartbeat.ready_milliseconds.map(Duration::from_millis);
        let is_first = self.heartbeat.is_none();
        let is_late = |it: &Instant| is_first && *it + MISSED * self.interval <= now;
        let late = started.filter(is_late);
        self.heard_after_silence(&heartbeat.boot_id, now);
        let is_ready = ready != Some(Duration::ZERO);
        if is_ready {
            self.resync_due |= self.is_after_pause(ready, now) || late.is_some();
            self.ended = None;
        } else {
            // Changes until a watcher is ready have no review either.
            let is_served = self.watchers.iter().any(|it| it.was_ready(now));
            self.ended = self.ended.or(late).or((!is_served).then_some(now));
        }
        self.heartbeat = Some(now);
        let terminating = heartbeat.terminating_milliseconds.unwrap_or_default();
        let terminating = now.checked_sub(Duration::from_millis(terminating));
        let ending = heartbeat.ending;
        let left = heartbeat.spool_depth > 0 || heartbeat.resync_needed;
        // Spooled events may be unsent or in progress.
        let settled = heartbeat.sequence.saturating_sub(heartbeat.spool_depth);
        let at = self.watcher(&heartbeat.boot_id, now);
        self.resync_due |= self.watchers[at].sequences.expect(settled);
        let age = heartbeat.webhook_entry_age_seconds;
        let written = age.and_then(|it| now.checked_sub(Duration::from_secs(it)));
        let is_new = is_first && started.is_some_and(|it| written > Some(it));
        self.resync_due |= self.has_new_entry(&heartbeat, at, is_new);
        let [review, own_review] = self.watchers[at].heartbeat(heartbeat, now);
        self.review = self.review.max(review);
        self.own_review = self.own_review.max(own_review);
        let failed = self.failed.filter(|it| !self.is_after(self.review, *it));
        let expected = self.review_expected;
        let expected = expected.filter(|it| !self.is_after(self.own_review, *it));
        (self.failed, self.review_expected) = (failed, expected);
        if ending {
            // Its deliveries have ended, so what is missing cannot arrive any more.
            self.resync_due |= left || self.watchers[at].sequences.missing() > 0;
            self.remove(at);
            if is_ready {
                self.ended(terminating.unwrap_or(now));
            }
        }
    }

    /// Whether the webhook entries were written while this watcher or the listener ran, so that changes before may have had no
    /// review. Another replica may report the earlier ones for some time. `is_new` is whether the watcher knows them only since the
    /// start of the listener.
    fn has_new_entry(&mut self, heartbeat: &Heartbeat, at: usize, is_new: bool) -> bool {
        let Some(entry) = &heartbeat.webhook_entry_hash else {
            return false;
        };
        let last = self.watchers[at].heartbeat.as_ref();
        let own = last.map(|(_, it)| it.webhook_entry_hash.as_ref());
        if own == Some(Some(entry)) || self.entry.as_ref() == Some(entry) {
            return false;
        }
        self.entry.replace(entry.clone()).is_some() || own.is_some() || is_new
    }

    pub(super) fn expect_review(&mut self, now: Instant) {
        if self.review_expected.is_none() && !self.is_after(self.own_review, now) {
            self.review_expected = Some(now);
            for watcher in &mut self.watchers {
                watcher.heartbeats = 0;
            }
        }
    }

    /// Returns whether a review was after `time`, or in the interval before it.
    fn is_after(&self, review: Option<Instant>, time: Instant) -> bool {
        review.is_some_and(|review| review + self.interval >= time)
    }

    /// Notifies the operator of a resync, unless the operator has already taken a resync of the current interval.
    pub(super) fn require_resync(
        &mut self,
        id: &RuntimeId,
        now: Instant,
        queue: &Sender,
    ) -> EnqueueResult {
        let runtime_id = id.clone();
        let resync = Notification::ResyncRequired { runtime_id };
        let too_soon = self.last_resync.is_some_and(|at| now - at < self.interval);
        if too_soon && !queue.is_queued(&resync) {
            return EnqueueResult::RuntimeLimit;
        }
        let result = queue.enqueue(resync);
        if result == EnqueueResult::Accepted {
            self.last_resync = Some(now);
            self.resyncs += 1;
        }
        if matches!(result, EnqueueResult::Accepted | EnqueueResult::Coalesced) {
            self.resync_due = false;
        }
        result
    }

    pub(super) fn check(&mut self, id: &RuntimeId, now: Instant, queue: &Sender) {
        self.judge_unheard(now);
        if self.resync_due {
            self.require_resync(id, now, queue);
        }
        let unresponsive = self.judge(now);
        match unresponsive {
            Some(UnresponsiveReason::HeartbeatMissing) => {}
            Some(reason) => {
                let fails = reason == UnresponsiveReason::HandshakeFailed;
                self.failed = fails.then(|| self.failed.unwrap_or(now));
                self.unreviewed = true;
            }
            None => {
                self.failed = None;
                self.resync_due |= std::mem::take(&mut self.unreviewed);
            }
        }
        if unresponsive == self.unresponsive {
            return;
        }
        let runtime_id = id.clone();
        let result = queue.enqueue(match unresponsive {
            Some(reason) => Notification::Unresponsive { runtime_id, reason },
            None => Notification::Recovered { runtime_id },
        });
        if matches!(result, EnqueueResult::Accepted | EnqueueResult::Coalesced) {
            self.unresponsive = unresponsive;
        }
    }

    /// Whether no watcher is heard, or one of several is not: it may answer reviews, and be unable to send the events.
    pub(super) fn lacks_heartbeats(&self, now: Instant) -> bool {
        let mut watchers = self.watchers.iter();
        self.is_silent(now) || watchers.any(|it| it.unheard && it.reports_reviews())
    }

    fn judge(&self, now: Instant) -> Option<UnresponsiveReason> {
        let missing = UnresponsiveReason::HeartbeatMissing;
        let reviews = (!self.is_silent(now)).then(|| self.judge_reviews(now));
        let lacks_heartbeats = || self.lacks_heartbeats(now).then_some(missing);
        reviews.flatten().or_else(lacks_heartbeats)
    }

    fn judge_reviews(&self, now: Instant) -> Option<UnresponsiveReason> {
        let lasting = self.unresponsive.filter(|reason| match reason {
            UnresponsiveReason::HeartbeatMissing => false,
            UnresponsiveReason::HandshakeFailed => self.failed.is_some(),
            UnresponsiveReason::ReviewMissing => self.review_expected.is_some(),
        });
        let mut live = self.live_watchers(now);
        let mut reporting = live.clone().filter(|it| it.reports_reviews());
        if reporting.clone().next().is_none() {
            return lasting.filter(|_| live.next().is_none());
        }
        // Reviews use existing connections, and a replica may have none. Then it reports failing handshakes one heartbeat
        // later than another replica.
        let longest = live.clone().map(|it| it.failing).max();
        let failing = longest >= Some(MISSED) && live.all(|it| it.failing >= MISSED - 1);
        // A review shows that reviews arrive again. A time without failures shows that no client tries to send reviews. A
        // watcher that has just started shows neither.
        let is_calm = reporting.clone().all(|it| it.calm >= MISSED);
        if failing || self.failed.is_some() && !is_calm {
            return Some(UnresponsiveReason::HandshakeFailed);
        }
        let missing = UnresponsiveReason::ReviewMissing;
        let missed = self.review_expected.is_some() && reporting.all(|it| it.heartbeats >= MISSED);
        (missed || lasting == Some(missing)).then_some(missing)
    }

    /// Returns the index of the watcher `boot_id`, and records that it is heard.
    fn watcher(&mut self, boot_id: &BootId, now: Instant) -> usize {
        let known = self.watchers.iter().position(|it| it.boot_id == *boot_id);
        let at = known.unwrap_or_else(|| {
            self.judge_unheard(now);
            while let Some(at) = self.watchers.iter().position(|it| it.unheard) {
                self.resync_due = true;
                self.remove(at);
            }
            if self.watchers.len() >= WATCHERS {
                let heard = |at: &usize| self.watchers[*at].heard;
                let at = (0..self.watchers.len())
                    .min_by_key(heard)
                    .unwrap_or_default();
                self.resync_due |= self.watchers[at].has_undelivered();
                self.remove(at);
            }
            self.watchers.push(Watcher::new(boot_id.clone(), now));
            self.watchers.len() - 1
        });
        self.watchers[at].heard = now;
        self.watchers[at].unheard = false;
        at
    }

    /// Decides once on each watcher that became unheard.
    fn judge_unheard(&mut self, now: Instant) {
        let silence = MISSED * self.interval;
        let is_new = |it: &Watcher| !it.unheard && now - it.heard >= silence;
        while let Some(at) = self.watchers.iter().position(is_new) {
            let watcher = &self.watchers[at];
            self.resync_due |= watcher.has_undelivered();
            // It may be gone with reviews that it answered after its last heartbeat. If no other one was heard for long after it,
            // KCP was unreachable.
            let is_later = |it: &Watcher| it.heard > watcher.heard + self.interval * 3 / 2;
            self.resync_due |= watcher.reports_reviews() && self.watchers.iter().any(is_later);
            if watcher.was_replaced(&self.watchers, silence) {
                self.resync_due |= watcher.reports_reviews();
                self.remove(at);
            } else {
                self.watchers[at].unheard = true;
            }
        }
    }

    fn remove(&mut self, at: usize) {
        let missing = self.watchers.remove(at).sequences.missing();
        self.lost_before = self.lost_before.saturating_add(missing);
    }

    pub(super) fn seen(&self, id: &RuntimeId, now: Instant) -> RuntimeLiveness {
        let watchers = self.watchers.iter();
        let missing = watchers.clone().map(|it| it.sequences.missing());
        RuntimeLiveness {
            runtime_id: id.clone(),
            silent: self.is_silent(now),
            unresponsive: self.unresponsive,
            since_heartbeat: self.since_heartbeat(now),
            since_event: self.event.map(|at| now - at),
            since_review: self.since_review(now),
            missing_events: missing.fold(self.lost_before, u64::saturating_add),
            resyncs_required: self.resyncs,
            last_rejection: self.rejection.as_ref().map(|(at, reason)| LastRejection {
                since: now - *at,
                reason: reason.clone(),
            }),
            watchers: watchers.map(|it| it.seen(now, self.interval)).collect(),
        }
    }
}
