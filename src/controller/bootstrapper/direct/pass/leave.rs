//! The end of a resource that was deleted.
//!
//! Invariant: it is let go when its runtime is clean, is no more, or was waited for long enough.

use std::time::Duration;

use api::bootstrapper::{INSTALLED, RuntimeBootstrapper};
use kube::Resource as _;
use policy::convergence::status::{Reason, Unreached};

use super::{Assignment, Common, End, Findings};

/// Lets the resource go if there is nothing to wait for any more.
pub(super) async fn leave(
    common: &Common,
    assignment: &Assignment,
    findings: &Findings,
    end: End,
) -> kube::Result<End> {
    let nobody = matches!(findings.unreached, Some(Unreached::RuntimeMissing));
    let clean = nobody || end == End::Gone;
    if !clean {
        if !(is_overdue(&assignment.resource) && has_been_tried(assignment, end)) {
            return Ok(end);
        }
        common.metrics.gave_up();
        tracing::warn!(
            runtime = &*assignment.name,
            "the runtime cannot be cleaned up in time: it keeps what is on it"
        );
    }
    common.lifecycle.let_go(&assignment.resource).await?;
    Ok(End::Gone)
}

/// A pass that did its work must be able to see that it did, however late it came.
fn has_been_tried(assignment: &Assignment, end: End) -> bool {
    let tried = [Reason::Uninstalling.name(), Reason::HandingBack.name()];
    let conditions = &assignment.previous.conditions;
    end != End::Waits
        || conditions
            .iter()
            .any(|it| it.kind == INSTALLED && tried.contains(&it.reason.as_str()))
}

fn is_overdue(resource: &RuntimeBootstrapper) -> bool {
    let deadline = resource.spec.deletion_deadline();
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
