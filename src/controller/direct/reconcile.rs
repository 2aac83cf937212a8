//! One reconcile of one runtime: observe, plan, apply, and a report of what is there now.
//!
//! Invariants: nothing is written before the plan is made from all that was observed, and then only the lanes for which the
//! scheduler gave a permit. On KCP a reconcile changes the finalizer of its own `RuntimeBootstrapper` only, and at the end of
//! a runtime that is orphaned the signal on its Runtime. A fault of KCP says nothing about the runtime: there is no report
//! then. Not in here: when the next reconcile is.

use std::sync::Arc;

use api::bootstrapper::{DeletionPolicy, RuntimeBootstrapper, RuntimeBootstrapperStatus};
use kube::{Resource as _, ResourceExt as _};
use policy::sync::desired::Desired;
use policy::sync::manifests::Installation;
use policy::sync::observed::{DeploymentStatus, Names};
use policy::sync::plan::Plan;
use policy::sync::rollout::{LaneResult, Name, WritePermit};
use policy::sync::scheduler::{Access, LaneReport, Report};
use policy::sync::signal::Eligibility;
use policy::sync::status::{Goal, LaneOutcome, Outcome, Unreached};
use policy::sync::{Hash, Lane, Lanes};
use tokio::time::{Duration, Instant};

use super::access::{ClientFactory, unreached};
use super::apply::WriteFailure;
use super::claims::Claims;
use super::lifecycle::Lifecycle;
use super::metrics::DirectMetrics;
use super::report::{Given, status};
use crate::clients::{CallError, RequestLimiter, RuntimeId};

mod leave;
mod runtime;

/// What is the same for all reconciles.
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

/// The input of one reconcile.
pub(super) struct ReconcileRequest {
    pub(super) name: Name,
    pub(super) resource: Box<RuntimeBootstrapper>,
    /// The status that was last reported.
    pub(super) previous: RuntimeBootstrapperStatus,
    /// The runtime, or why it is not known.
    pub(super) runtime: Result<RuntimeId, Unreached>,
    /// The version of its kubeconfig that was observed last.
    pub(super) kubeconfig: Option<String>,
    /// Whether its Runtime may be signaled.
    pub(super) eligibility: Eligibility,
    /// Names of the three objects on the runtime.
    pub(super) objects: Arc<Names>,
    pub(super) desired: Arc<Desired>,
    /// What is to be installed, or why that is not known.
    pub(super) installation: Result<Arc<Installation>, (Arc<Installation>, String)>,
    /// What may be done in each lane; `None` for a lane that is not due.
    pub(super) lanes: Lanes<Option<Access>>,
}

impl ReconcileRequest {
    fn permit(&self, lane: Lane) -> Option<WritePermit> {
        match self.lanes.get(lane) {
            Some(Access::Write(permit)) => Some(*permit),
            Some(Access::Observe(_)) | None => None,
        }
    }

    /// The revision of the webhook that this reconcile may write.
    fn webhook_revision(&self) -> Option<Hash> {
        self.permit(Lane::Webhook).map(WritePermit::revision)
    }
}

/// The result of one reconcile.
pub(super) struct ReconcileResult {
    pub(super) name: Name,
    /// UID of the resource: one of the same name that was created meanwhile is another one.
    pub(super) uid: Option<String>,
    pub(super) status: RuntimeBootstrapperStatus,
    /// For the scheduler; [`Report::Idle`] if the resource is on its way out, and nothing is to be done any more.
    pub(super) report: Report,
    pub(super) took: Duration,
}

/// What was found on the runtime.
#[derive(Default)]
struct Findings {
    unreached: Option<Unreached>,
    plan: Option<Plan>,
    /// The failed write of each lane.
    failures: Lanes<Option<WriteFailure>>,
    /// Whether a write was tried in each lane.
    wrote: Lanes<bool>,
    retry_after: Option<Duration>,
    cluster: Option<String>,
}

/// Reconciles one runtime.
///
/// # Errors
/// KCP does not respond as needed; nothing is known of the runtime.
pub(super) async fn reconcile(
    common: &Common,
    request: ReconcileRequest,
) -> kube::Result<ReconcileResult> {
    let begun = Instant::now();
    let goal = goal(&request.resource);
    common.lifecycle.hold(&request.resource, goal).await?;
    let findings = runtime::work(common, &request, goal).await?;
    let mut report = report(&request, goal, &findings);
    if goal != Goal::Sync {
        report = leave::leave(common, &request, &findings, report).await?;
    }
    let given = Given {
        previous: &request.previous,
        runtime: request.runtime.as_ref().ok(),
        generation: request.resource.meta().generation,
        installation: request.installation.as_ref().ok().map(AsRef::as_ref),
        cluster: findings.cluster.as_deref(),
        webhook_revision: request
            .webhook_revision()
            .filter(|_| findings.wrote.webhook || is_done(report, Lane::Webhook)),
    };
    let outcome = Outcome {
        unreached: findings.unreached.as_ref(),
        plan: findings.plan.as_ref(),
        purpose: goal,
        lanes: request.lanes.map(|it| match it {
            None if goal == Goal::Sync => LaneOutcome::NotReconciled,
            Some(Access::Observe(deferral)) => LaneOutcome::Deferred(deferral),
            Some(Access::Write(_)) | None => LaneOutcome::Applied,
        }),
        failures: findings
            .failures
            .as_ref()
            .map(|it| it.as_ref().map(|it| &it.failure)),
    };
    Ok(ReconcileResult {
        status: status(&given, outcome),
        uid: request.resource.uid(),
        name: request.name,
        report,
        took: begun.elapsed(),
    })
}

fn is_done(report: Report, lane: Lane) -> bool {
    let Report::Reconciled { lanes, .. } = report else {
        return false;
    };
    lanes
        .get(lane)
        .is_some_and(|it| it.result == LaneResult::Done)
}

/// The goal of a reconcile of this resource.
pub(super) fn goal(resource: &RuntimeBootstrapper) -> Goal {
    match (
        resource.meta().deletion_timestamp.is_some(),
        resource.spec.deletion_policy,
    ) {
        (false, _) => Goal::Sync,
        (true, DeletionPolicy::Delete) => Goal::Delete,
        (true, DeletionPolicy::Orphan) => Goal::Orphan,
    }
}

fn report(request: &ReconcileRequest, goal: Goal, findings: &Findings) -> Report {
    let retry_after = findings.retry_after;
    let wrote = findings.wrote.iter().any(|it| *it);
    let Some(plan) = findings.plan.as_ref().filter(|it| it.blocked.is_none()) else {
        return Report::Unreachable { retry_after, wrote };
    };
    if goal == Goal::Sync {
        return Report::Reconciled {
            lanes: Lanes::from_fn(|lane| {
                let access = (*request.lanes.get(lane))?;
                Some(LaneReport {
                    wrote: *findings.wrote.get(lane),
                    ..lane_report(access, lane, plan, findings)
                })
            }),
            webhook_differs: request.lanes.webhook.is_none() && webhook_differs(plan),
        };
    }
    if plan.has_left() {
        return Report::Idle;
    }
    let mut failures = findings.failures.iter().flatten();
    let is_blocked = plan.lanes.iter().any(|it| it.blocked.is_some());
    let result = match failures.next() {
        Some(_) => LaneResult::Failed,
        None if is_blocked => LaneResult::Unreachable,
        None => LaneResult::Progressing,
    };
    let report = LaneReport {
        result,
        wrote,
        look_again: false,
        retry_after,
    };
    Report::Reconciled {
        lanes: Lanes {
            configuration: None,
            webhook: Some(report),
        },
        webhook_differs: false,
    }
}

fn lane_report(access: Access, lane: Lane, plan: &Plan, findings: &Findings) -> LaneReport {
    let failure = findings.failures.get(lane).as_ref();
    let installed = &plan.installation;
    // What was just installed is observed once more before it counts.
    let is_progressing =
        lane == Lane::Webhook && (plan.waits() || installed.complete == Some(false));
    let is_broken = lane == Lane::Webhook
        && (installed.rollout == DeploymentStatus::Failed || installed.stuck.is_some());
    let result = match (failure, access) {
        (Some(failure), _) if failure.is_transient => LaneResult::Interrupted,
        (Some(_), _) => LaneResult::Failed,
        _ if plan.lanes.get(lane).blocked.is_some() => LaneResult::Unreachable,
        (None, Access::Observe(_)) => LaneResult::Deferred,
        (None, Access::Write(_)) if is_broken => LaneResult::Failed,
        (None, Access::Write(_)) if is_progressing => LaneResult::Progressing,
        (None, Access::Write(_)) => LaneResult::Done,
    };
    LaneReport {
        result,
        wrote: false,
        // Pods become ready without a write, and the status tells.
        look_again: is_progressing && !is_broken && plan.lanes.get(lane).steps.is_empty(),
        retry_after: failure.and_then(|it| it.retry_after),
    }
}

/// Whether the webhook lane has something to do, as far as is seen without reading all manifests.
fn webhook_differs(plan: &Plan) -> bool {
    plan.lanes.webhook.blocked.is_none()
        && (plan.installation.rollout != DeploymentStatus::Available
            || !plan.lanes.webhook.steps.is_empty())
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
