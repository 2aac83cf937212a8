//! The status of the object `signal` of kind `RuntimeBootstrapperRollout`.

use std::time::Duration;

use api::rollout::{RolloutCounts, RolloutStatus};
use policy::sync::signal::{Counts, Limits, Revisions, StopReason};
use policy::sync::sources::Sources;
use tokio::sync::watch;
use tokio::time::Instant;

use super::evaluation::Evaluation;
use super::runtime::COPY_DURATION;
use crate::rollouts::{Stored, conditions, is_completed};

/// Reason why no Runtime is signaled, with a message.
pub(super) type Stop = (StopReason, String);

/// Time for which a limit has to stop all signals before it is reported. A limit also stops signals for short
/// periods, until KIM acknowledges a signal.
const LIMIT_REPORT_DELAY: Duration = Duration::from_secs(30);

/// Sends a status to [`crate::rollouts::publish`] when it differs.
pub(super) struct StatusPublisher {
    /// Time at which this process became the leader.
    started: Instant,
    sender: watch::Sender<Option<RolloutStatus>>,
    /// Time since which a limit stops all signals.
    limited_since: Option<Instant>,
    has_direct: bool,
}

impl StatusPublisher {
    pub(super) fn new(sender: watch::Sender<Option<RolloutStatus>>, has_direct: bool) -> Self {
        Self {
            started: Instant::now(),
            sender,
            limited_since: None,
            has_direct,
        }
    }

    /// Returns the time at which it is known that KIM has copied what an earlier leader signaled.
    pub(super) fn known_at(&self) -> Instant {
        self.started + COPY_DURATION
    }

    /// Returns the reason to report, and the time at which another reason may have to be reported.
    pub(super) fn stop(
        &mut self,
        reason: Option<StopReason>,
        now: Instant,
    ) -> (Option<StopReason>, Option<Instant>) {
        let is_limit = reason.is_some_and(StopReason::is_limit);
        let since = self.limited_since.filter(|_| is_limit).unwrap_or(now);
        self.limited_since = is_limit.then_some(since);
        let reported_at = since + LIMIT_REPORT_DELAY;
        if is_limit && now < reported_at {
            return (None, Some(reported_at));
        }
        (reason, None)
    }

    /// Publishes the last status again, if another client deleted the object or wrote its status.
    pub(super) fn repeat(&self, before: &Stored, now: &Stored) {
        self.sender.send_if_modified(|published| {
            let published = published.as_ref();
            published.is_some_and(|it| now.is_overwritten(before, it))
        });
    }

    /// Publishes the status, if it differs from the stored status and from the last published status.
    pub(super) fn publish(
        &self,
        stored: &Stored,
        revisions: Revisions,
        evaluation: &Evaluation,
        now: &str,
    ) {
        self.sender.send_if_modified(|published| {
            let previous = published.as_ref().unwrap_or(&stored.status);
            let revision = revisions.current.to_string();
            let was_completed = previous.revision.as_deref() == Some(&*revision)
                && previous.conditions.iter().any(is_completed);
            // An earlier leader may have observed acknowledgements within this time.
            let is_known = was_completed || self.known_at() <= Instant::now();
            let completed = completed(evaluation, self.has_direct, is_known);
            let status = status((stored, previous, now), revisions, evaluation, completed);
            let differs = *previous != status;
            if differs {
                *published = Some(status);
            }
            differs
        });
    }
}

/// Returns the message of a reason.
pub(super) fn message(
    reason: StopReason,
    sources: &Sources,
    counts: &Counts,
    limits: &Limits,
) -> String {
    match reason {
        StopReason::Paused => "spec.paused is true".to_owned(),
        StopReason::InvalidSource => {
            let errors = sources.invalid_text().unwrap_or_default();
            format!("KIM would copy an invalid source: {errors}")
        }
        StopReason::DeletionPending => {
            "a source was deleted on KCP, and its grace period has not ended".to_owned()
        }
        StopReason::FailureLimitExceeded => {
            let (failed, limit) = (counts.failed, limits.failures(counts.total));
            format!("{failed} signaled Runtimes are not Ready, the limit is {limit}")
        }
        StopReason::UnacknowledgedLimitReached => {
            let count = counts.unacknowledged;
            format!("KIM has not acknowledged {count} signals")
        }
    }
}

/// Returns status, reason and message of the condition `Completed`.
///
/// KIM skips suspended Runtimes, so they do not prevent the status True. KIM acknowledges a signal before it copies
/// the sources, and the Runtime may stay Ready meanwhile, so recently acknowledged signals prevent it.
fn completed(
    evaluation: &Evaluation,
    has_direct: bool,
    is_known: bool,
) -> (bool, &'static str, String) {
    let counts = &evaluation.counts;
    let Counts {
        waiting,
        progressing,
        failed,
        direct,
        ..
    } = counts;
    if *direct > 0 && !has_direct {
        let text = format!(
            "{direct} Runtimes are in mode direct, and the controller direct does not run: nothing synchronizes them"
        );
        return (false, "DirectDisabled", text);
    }
    let unmanaged = evaluation.unmanaged;
    if unmanaged > 0 {
        let text = format!(
            "{unmanaged} Runtimes are in mode direct and have no RuntimeBootstrapper: nothing synchronizes them"
        );
        return (false, "RuntimeBootstrapperNotFound", text);
    }
    let text = format!(
        "{waiting} Runtimes wait for a signal, {progressing} for KIM; {failed} were acknowledged and are not Ready"
    );
    let pending = waiting + counts.unacknowledged + counts.copying + failed;
    if pending == 0 && is_known {
        (true, "Completed", text)
    } else {
        (false, "Progressing", text)
    }
}

/// Returns the status of the object `signal`. `previous` is the last published status.
fn status(
    (stored, previous, now): (&Stored, &RolloutStatus, &str),
    revisions: Revisions,
    evaluation: &Evaluation,
    completed: (bool, &'static str, String),
) -> RolloutStatus {
    let counts = &evaluation.counts;
    let stopped = match &evaluation.stop {
        Some((reason, message)) => (true, reason.name(), message.clone()),
        None => (false, "NotStopped", "neither paused nor limited".to_owned()),
    };
    RolloutStatus {
        observed_generation: stored.generation,
        conditions: conditions(
            &previous.conditions,
            completed,
            stopped,
            stored.generation,
            now,
        ),
        revision: Some(revisions.current.to_string()),
        completed_revision: Some(revisions.baseline.to_string()),
        runtimes: RolloutCounts {
            total: counts.total,
            waiting: counts.waiting,
            progressing: counts.progressing,
            done: counts.done,
            failed: counts.failed,
            ..RolloutCounts::default()
        },
        failed_runtimes: evaluation.failed.clone(),
        ..RolloutStatus::default()
    }
}
