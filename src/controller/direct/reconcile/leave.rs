//! The deletion of a resource.
//!
//! Invariants: the finalizer is removed when the runtime is clean, no longer exists, or the deletion timed out. If
//! the runtime is orphaned, KIM is signaled before. The finalizer remains until the signal succeeded, and the next
//! leader continues after a crash.

use std::time::Duration;

use api::bootstrapper::{INSTALLED, RuntimeBootstrapper};
use kube::Resource as _;
use kube::core::Status;
use policy::sync::rollout::LaneResult;
use policy::sync::scheduler::Report;
use policy::sync::signal::is_told_of;
use policy::sync::status::{ConnectionError, deletion_reason};

use super::{Common, Findings, ReconcileRequest, goal};

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
    let has_timed_out = || is_overdue(&request.resource) && is_stalled(request, findings, report);
    if !is_clean && !has_timed_out() {
        return Ok(report);
    }
    if is_told_of(goal(&request.resource), request.eligibility) {
        signal_kim(common, request).await?;
    }
    let is_removed = common.lifecycle.remove_finalizer(&request.resource).await?;
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

/// Signals KIM. A permanent error is ignored after the deletion timeout.
async fn signal_kim(common: &Common, request: &ReconcileRequest) -> kube::Result<()> {
    match common.lifecycle.signal_kim(&request.name).await {
        Err(kube::Error::Api(status)) if is_permanent(&status) && is_overdue(&request.resource) => {
            let (runtime, reason) = (&*request.name, status.message);
            tracing::warn!(runtime, reason, "skipped signal for orphaned runtime");
            Ok(())
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
    let plan = findings.plan.as_ref().filter(|_| is_progressing(report));
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

fn is_overdue(resource: &RuntimeBootstrapper) -> bool {
    let deadline = resource.spec.deletion_timeout();
    resource
        .meta()
        .deletion_timestamp
        .as_ref()
        .is_some_and(|since| {
            let waited = jiff::Timestamp::now().duration_since(since.0);
            waited
                .try_into()
                .is_ok_and(|waited: Duration| waited >= deadline)
        })
}
