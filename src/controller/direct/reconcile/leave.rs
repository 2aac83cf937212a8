//! The end of a resource that was deleted.
//!
//! Invariants: it is let go when its runtime is clean, is no more, or was waited for long enough; and before a runtime is
//! today's manager's again, the manager was told: as long as that did not happen the finalizer is there, and whoever comes
//! after a crash goes on with it.

use std::time::Duration;

use api::bootstrapper::{INSTALLED, RuntimeBootstrapper};
use kube::Resource as _;
use kube::core::Status;
use policy::sync::rollout::LaneResult;
use policy::sync::scheduler::Report;
use policy::sync::signal::is_told_of;
use policy::sync::status::{Unreached, departure};

use super::{Common, Findings, ReconcileRequest, goal};

/// Lets the resource go if there is nothing to wait for any more.
pub(super) async fn leave(
    common: &Common,
    request: &ReconcileRequest,
    findings: &Findings,
    report: Report,
) -> kube::Result<Report> {
    let nobody = matches!(findings.unreached, Some(Unreached::RuntimeNotFound(_)));
    let clean = nobody || report == Report::Idle;
    if !clean {
        if !(is_overdue(&request.resource) && has_been_tried(request, findings, report)) {
            return Ok(report);
        }
        common.metrics.gave_up();
        tracing::warn!(
            runtime = &*request.name,
            "deletion timed out, objects left behind on the runtime"
        );
    }
    if is_told_of(goal(&request.resource), request.eligibility) {
        tell(common, request).await?;
    }
    common.lifecycle.let_go(&request.resource).await?;
    Ok(Report::Idle)
}

/// What the control plane refuses is not waited for longer than the deadline.
async fn tell(common: &Common, request: &ReconcileRequest) -> kube::Result<()> {
    match common.lifecycle.tell(&request.name).await {
        Err(kube::Error::Api(status)) if is_refusal(&status) && is_overdue(&request.resource) => {
            let (runtime, reason) = (&*request.name, status.message);
            tracing::warn!(runtime, reason, "skipped signal for orphaned runtime");
            Ok(())
        }
        result => result,
    }
}

/// Whether asking again gives the same: the answer is about us or the object, not about the moment.
fn is_refusal(status: &Status) -> bool {
    (400..500).contains(&status.code) && !matches!(status.code, 409 | 429)
}

/// A pass that did its work must be able to see that it did, however late it came: one that came further than the one
/// before is followed by another.
fn has_been_tried(request: &ReconcileRequest, findings: &Findings, report: Report) -> bool {
    let plan = findings.plan.as_ref().filter(|_| is_progressing(report));
    let goal = goal(&request.resource);
    let Some((reason, message)) = plan.and_then(|plan| departure(goal, plan)) else {
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
