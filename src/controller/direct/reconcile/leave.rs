//! The deletion of a resource.
//!
//! Invariants: the finalizer is removed when the runtime is clean, no longer exists, or the deletion timed out. If
//! the runtime is orphaned, KIM is signaled before. The finalizer remains until the signal succeeded, and the next
//! leader continues after a crash. A deletion times out only if this leader has tried for a while too: the timeout may
//! have passed while no controller ran, or the clock may have been set forward.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::bootstrapper::{INSTALLED, RuntimeBootstrapper};
use kube::Resource as _;
use kube::core::Status;
use policy::sync::rollout::LaneResult;
use policy::sync::scheduler::Report;
use policy::sync::signal::needs_kim_signal;
use policy::sync::status::{ConnectionError, deletion_reason};
use tokio::time::Instant;

use super::{Common, Findings, ReconcileRequest, goal};

/// The deletions that this leader has tried.
pub(in crate::direct) struct Deletions {
    min_attempt_time: Duration,
    /// Time of the first attempt, by the UID of the resource.
    since: Mutex<HashMap<String, Instant>>,
}

impl Deletions {
    pub(in crate::direct) fn new(min_attempt_time: Duration) -> Self {
        Self {
            min_attempt_time,
            since: Mutex::default(),
        }
    }

    /// Returns whether the timeout of a deletion has passed.
    fn is_overdue(&self, resource: &RuntimeBootstrapper) -> bool {
        let timeout = resource.spec.deletion_timeout();
        let deleted = resource.meta().deletion_timestamp.as_ref();
        let waited = deleted.map(|since| jiff::Timestamp::now().duration_since(since.0));
        let waited = waited.and_then(|it| Duration::try_from(it).ok());
        // Recorded in each attempt, also before the timeout.
        let tried = self.tried(resource);
        waited.is_some_and(|it| it >= timeout) && tried >= self.min_attempt_time.min(timeout)
    }

    fn tried(&self, resource: &RuntimeBootstrapper) -> Duration {
        let uid = resource.meta().uid.clone().unwrap_or_default();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.entry(uid).or_insert_with(Instant::now).elapsed()
    }

    fn end(&self, resource: &RuntimeBootstrapper) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.remove(resource.meta().uid.as_deref().unwrap_or_default());
    }
}

/// Removes the finalizer if the deletion is complete or timed out.
pub(super) async fn finish_deletion(
    common: &Common,
    request: &ReconcileRequest,
    findings: &Findings,
    report: Report,
) -> kube::Result<Report> {
    let is_gone = matches!(
        findings.unreached,
        Some(ConnectionError::RuntimeNotFound(_))
    );
    let is_clean = is_gone || report == Report::Idle;
    let is_overdue = common.deletions.is_overdue(&request.resource);
    let is_ended = is_clean || is_overdue && is_stalled(request, findings, report);
    if !is_ended {
        return Ok(report);
    }
    if needs_kim_signal(goal(&request.resource), request.eligibility)
        && !signal_kim(common, request, is_overdue).await?
    {
        return Ok(Report::Interrupted);
    }
    let is_removed = common.lifecycle.remove_finalizer(&request.resource).await?;
    common.deletions.end(&request.resource);
    if is_removed && !is_clean {
        // Logged once, although a reconcile may follow before the watch reports the deletion of the resource.
        let runtime = &*request.name;
        tracing::warn!(
            runtime,
            "deletion timed out, objects left behind on the runtime"
        );
        common.metrics.deletion_timed_out();
    }
    Ok(Report::Idle)
}

/// Signals KIM. Returns false if the signal has to wait. A permanent error is ignored after the deletion timeout.
async fn signal_kim(
    common: &Common,
    request: &ReconcileRequest,
    is_overdue: bool,
) -> kube::Result<bool> {
    match common.lifecycle.signal_kim(&request.name).await {
        Err(kube::Error::Api(status)) if is_permanent(&status) && is_overdue => {
            let (runtime, reason) = (&*request.name, status.message);
            tracing::warn!(runtime, reason, "skipped signal for orphaned runtime");
            Ok(true)
        }
        result => result,
    }
}

/// Returns whether the same request would fail again, because the error is about the client or the object.
fn is_permanent(status: &Status) -> bool {
    (400..500).contains(&status.code) && !matches!(status.code, 409 | 429)
}

/// Returns whether the deletion made no progress since the previous reconcile. After progress another reconcile
/// follows, also after the timeout, so that it can observe a complete deletion.
fn is_stalled(request: &ReconcileRequest, findings: &Findings, report: Report) -> bool {
    let plan = findings.plan.as_deref().filter(|_| is_progressing(report));
    let goal = goal(&request.resource);
    let Some((reason, message)) = plan.and_then(|plan| deletion_reason(goal, plan)) else {
        return true;
    };
    let conditions = &request.previous.conditions;
    conditions
        .iter()
        .any(|it| it.kind == INSTALLED && it.reason == reason.name() && it.message == message)
}

fn is_progressing(report: Report) -> bool {
    let Report::Reconciled { lanes, .. } = report else {
        return false;
    };
    let webhook = lanes.webhook;
    webhook.is_some_and(|it| it.result == LaneResult::Progressing)
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use rstest::rstest;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    /// KCP sets the time of a deletion, and the controller compares it with its own clock. `shown` is the time since the deletion by
    /// that clock, and `tried` the time for which this leader has tried, both in minutes.
    #[rstest]
    #[case::right(60, 60, true)]
    #[case::right_before(59, 59, false)]
    #[case::ten_minutes_fast_at_once(10, 0, false)]
    #[case::ten_minutes_fast(60, 50, true)]
    #[case::ten_minutes_slow_at_once(-10, 0, false)]
    #[case::ten_minutes_slow(50, 60, false)]
    #[case::ten_minutes_slow_later(60, 70, true)]
    #[case::another_leader(600, 4, false)]
    #[case::another_leader_later(600, 5, true)]
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_wrong_shifts_the_timeout_by_its_error(
        #[case] shown: i64,
        #[case] tried: u32,
        #[case] is_overdue: bool,
    ) {
        let deleted = Timestamp::now() - SignedDuration::from_mins(shown);
        let resource = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
            "metadata": {"name": "a", "uid": "u", "deletionTimestamp": deleted.to_string()},
            "spec": {"deletionTimeoutSeconds": 3600},
        });
        let resource: RuntimeBootstrapper = serde_json::from_value(resource).unwrap();
        let deletions = Deletions::new(5 * MINUTE);
        assert_eq!(deletions.tried(&resource), Duration::ZERO);
        advance(tried * MINUTE).await;
        assert_eq!(deletions.is_overdue(&resource), is_overdue);
    }

    /// Even a clock that is far ahead leaves the time for attempts.
    #[tokio::test(start_paused = true)]
    async fn a_short_timeout_needs_no_longer_attempts() {
        let resource = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
            "metadata": {"name": "a", "uid": "u", "deletionTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"deletionTimeoutSeconds": 60},
        });
        let resource: RuntimeBootstrapper = serde_json::from_value(resource).unwrap();
        let deletions = Deletions::new(5 * MINUTE);
        assert!(!deletions.is_overdue(&resource));
        advance(MINUTE).await;
        assert!(deletions.is_overdue(&resource));
    }
}
