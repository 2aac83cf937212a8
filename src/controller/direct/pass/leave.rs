//! The end of a resource that was deleted.
//!
//! Invariants: it is let go when its runtime is clean, is no more, or was waited for long enough; and before a runtime is
//! today's manager's again, the manager was told: as long as that did not happen the finalizer is there, and whoever comes
//! after a crash goes on with it.

use std::time::Duration;

use api::bootstrapper::{INSTALLED, RuntimeBootstrapper};
use kube::Resource as _;
use kube::core::Status;
use policy::sync::signal::is_told_of;
use policy::sync::status::{Unreached, departure};

use super::{Assignment, Common, End, Findings, purpose};

/// Lets the resource go if there is nothing to wait for any more.
pub(super) async fn leave(
    common: &Common,
    assignment: &Assignment,
    findings: &Findings,
    end: End,
) -> kube::Result<End> {
    let nobody = matches!(findings.unreached, Some(Unreached::RuntimeNotFound(_)));
    let clean = nobody || end == End::Gone;
    if !clean {
        if !(is_overdue(&assignment.resource) && has_been_tried(assignment, findings, end)) {
            return Ok(end);
        }
        common.metrics.gave_up();
        tracing::warn!(
            runtime = &*assignment.name,
            "deletion timed out, objects left behind on the runtime"
        );
    }
    if is_told_of(purpose(&assignment.resource), assignment.standing) {
        tell(common, assignment).await?;
    }
    common.lifecycle.let_go(&assignment.resource).await?;
    Ok(End::Gone)
}

/// What the control plane refuses is not waited for longer than the deadline.
async fn tell(common: &Common, assignment: &Assignment) -> kube::Result<()> {
    match common.lifecycle.tell(&assignment.name).await {
        Err(kube::Error::Api(status))
            if is_refusal(&status) && is_overdue(&assignment.resource) =>
        {
            let (runtime, reason) = (&*assignment.name, status.message);
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
fn has_been_tried(assignment: &Assignment, findings: &Findings, end: End) -> bool {
    let plan = findings.plan.as_ref().filter(|_| end == End::Waits);
    let purpose = purpose(&assignment.resource);
    let Some((reason, message)) = plan.and_then(|plan| departure(purpose, plan)) else {
        return true;
    };
    let conditions = &assignment.previous.conditions;
    conditions
        .iter()
        .any(|it| it.kind == INSTALLED && it.reason == reason.name() && it.message == message)
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
