//! One pass over one runtime: gather, decide, apply, and a report of what is there now.
//!
//! Invariants: nothing is written before the plan is made from all that was gathered, and then only what the plan says;
//! a pass changes the control plane in the finalizer of its own `RuntimeBootstrapper` only, and at the end of a runtime
//! that is handed back in the signal on its Runtime. A fault of the
//! control plane is no news about the runtime: there is no report then. Deliberately absent: when the next pass is, and
//! who may begin.

use std::sync::Arc;

use api::bootstrapper::{DeletionPolicy, RuntimeBootstrapper, RuntimeBootstrapperStatus};
use kube::{Resource as _, ResourceExt as _};
use policy::sync::Lanes;
use policy::sync::desired::Desired;
use policy::sync::manifests::Installation;
use policy::sync::observed::{DeploymentStatus, Names};
use policy::sync::plan::Plan;
use policy::sync::signal::Eligibility;
use policy::sync::status::{Goal, Outcome, Unreached, Withheld};
use tokio::time::{Duration, Instant};

use super::access::{ClientFactory, unreached};
use super::apply::WriteFailure;
use super::claims::Claims;
use super::lifecycle::Lifecycle;
use super::metrics::DirectMetrics;
use super::queue::Name;
use super::report::{Given, status};
use crate::clients::{CallError, RequestLimiter, RuntimeId};

mod leave;
mod look;

/// What is the same for all passes.
pub(super) struct Common {
    pub(super) door: ClientFactory,
    /// Who connects to a runtime, or is connected and waits for a place.
    pub(super) handshakes: RequestLimiter,
    /// On runtimes.
    pub(super) places: RequestLimiter,
    pub(super) lifecycle: Lifecycle,
    pub(super) claims: Claims,
    pub(super) control_plane: String,
    pub(super) metrics: DirectMetrics,
}

/// What one pass is about.
pub(super) struct Assignment {
    pub(super) name: Name,
    pub(super) resource: Box<RuntimeBootstrapper>,
    /// What was last said about it.
    pub(super) previous: RuntimeBootstrapperStatus,
    /// The runtime, or why it cannot be known.
    pub(super) runtime: Result<RuntimeId, Unreached>,
    /// The version of its kubeconfig that was seen last.
    pub(super) kubeconfig: Option<String>,
    /// Whether its Runtime may be signalled, as far as that tells itself.
    pub(super) standing: Eligibility,
    /// What the three objects are called there.
    pub(super) objects: Arc<Names>,
    pub(super) desired: Arc<Desired>,
    /// What to install, or why that cannot be told.
    pub(super) installation: Result<Arc<Installation>, (Arc<Installation>, String)>,
    /// Why nothing may be written, if so.
    pub(super) withheld: Option<Withheld>,
    /// Whether to look at everything, however good the rest looks.
    pub(super) thorough: bool,
    /// Whether there is room for that.
    pub(super) whole: bool,
    /// Whether nothing was waited for or failed since all was as it should be, or something new is to be there.
    pub(super) first: bool,
}

/// What came of it.
pub(super) struct Report {
    pub(super) name: Name,
    /// Of the resource that it is about: a namesake that came meanwhile is another one.
    pub(super) uid: Option<String>,
    pub(super) status: RuntimeBootstrapperStatus,
    pub(super) end: End,
    /// Whether everything was looked at.
    pub(super) thorough: bool,
    /// Whether it was tried to write something to the runtime.
    pub(super) wrote: bool,
    pub(super) took: Duration,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything is as it should be.
    Settled,
    /// Something is on its way, and should be looked at soon.
    Waits,
    /// The Deployment's deadline passed, or it cannot be changed to what is wanted.
    Broken,
    /// The runtime does not hold everything yet, and nothing may be written to it now.
    Withheld {
        /// Whether the next look should come soon, so that the status stays true: Pods are on their way, or the pass did
        /// not look at everything. Otherwise nothing changes before writing is allowed.
        look_again: bool,
    },
    /// The runtime was not reached, or may not be touched.
    Unreached { retry_after: Option<Duration> },
    /// A write failed, and the same one may succeed later without any change.
    Interrupted { retry_after: Option<Duration> },
    /// A write failed.
    Failed { retry_after: Option<Duration> },
    /// The resource is on its way out, and nobody waits for it any more.
    Gone,
}

/// What was found out on the runtime.
#[derive(Default)]
struct Findings {
    unreached: Option<Unreached>,
    plan: Option<Plan>,
    /// The writes that failed.
    failures: Lanes<Option<WriteFailure>>,
    /// Whether it was tried to write something.
    wrote: bool,
    retry_after: Option<Duration>,
    cluster: Option<String>,
    thorough: bool,
    /// Whether the installation was left to the next pass.
    content_first: bool,
}

/// Makes the pass.
///
/// # Errors
/// The control plane does not do its part; nothing can be said about the runtime.
pub(super) async fn pass(common: &Common, assignment: Assignment) -> kube::Result<Report> {
    let begun = Instant::now();
    let purpose = purpose(&assignment.resource);
    common.lifecycle.hold(&assignment.resource, purpose).await?;
    let findings = look::work(common, &assignment, purpose).await?;
    let mut end = end(&assignment, purpose, &findings);
    if purpose != Goal::Sync {
        end = leave::leave(common, &assignment, &findings, end).await?;
    }
    let given = Given {
        previous: &assignment.previous,
        runtime: assignment.runtime.as_ref().ok(),
        generation: assignment.resource.meta().generation,
        installation: assignment.installation.as_ref().ok().map(AsRef::as_ref),
        cluster: findings.cluster.as_deref(),
    };
    let outcome = Outcome {
        unreached: findings.unreached.as_ref(),
        plan: findings.plan.as_ref(),
        purpose,
        withheld: assignment.withheld,
        failures: findings
            .failures
            .as_ref()
            .map(|it| it.as_ref().map(|it| &it.failure)),
    };
    Ok(Report {
        status: status(&given, outcome),
        uid: assignment.resource.uid(),
        name: assignment.name,
        end,
        thorough: findings.thorough,
        wrote: findings.wrote,
        took: begun.elapsed(),
    })
}

/// What a pass over this resource is for.
pub(super) fn purpose(resource: &RuntimeBootstrapper) -> Goal {
    match (
        resource.meta().deletion_timestamp.is_some(),
        resource.spec.deletion_policy,
    ) {
        (false, _) => Goal::Sync,
        (true, DeletionPolicy::Delete) => Goal::Delete,
        (true, DeletionPolicy::Orphan) => Goal::Orphan,
    }
}

fn end(assignment: &Assignment, purpose: Goal, findings: &Findings) -> End {
    let retry_after = findings.retry_after;
    let Some(plan) = findings.plan.as_ref().filter(|it| it.blocked.is_none()) else {
        return End::Unreached { retry_after };
    };
    let failures = || findings.failures.iter().flatten();
    if failures().any(|it| !it.is_transient) {
        return End::Failed { retry_after };
    }
    if failures().next().is_some() {
        return End::Interrupted { retry_after };
    }
    if plan.lanes.iter().any(|it| it.blocked.is_some()) {
        return End::Unreached { retry_after };
    }
    let installed = &plan.installation;
    // What was just installed is looked at once more before it counts.
    let is_on_its_way = plan.waits() || installed.complete == Some(false);
    let is_broken = installed.rollout == DeploymentStatus::Failed || installed.stuck.is_some();
    match purpose {
        // Before everything else: whatever such a pass found, the runtime has not begun.
        Goal::Sync
            if assignment.withheld.is_some()
                && (!plan.is_empty() || findings.content_first || is_on_its_way || is_broken) =>
        {
            let look_again = plan.is_empty() && !is_broken;
            End::Withheld { look_again }
        }
        Goal::Sync if findings.content_first => End::Waits,
        Goal::Sync if is_broken => End::Broken,
        Goal::Sync if is_on_its_way => End::Waits,
        Goal::Sync => End::Settled,
        Goal::Delete | Goal::Orphan if plan.has_left() => End::Gone,
        Goal::Delete | Goal::Orphan => End::Waits,
    }
}

impl Findings {
    fn without(unreached: Unreached) -> Self {
        Self {
            unreached: Some(unreached),
            ..Self::default()
        }
    }

    fn of_error(error: &CallError) -> Self {
        Self {
            retry_after: error.retry_after(),
            ..Self::without(unreached(error))
        }
    }
}
