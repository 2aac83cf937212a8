//! One reconcile of one runtime: reads, plans, applies, and reports the result.
//!
//! Invariants: no object is written before the plan is complete, and then only in the lanes for which the scheduler
//! granted a permit. On KCP a reconcile writes only the finalizer of its own `RuntimeBootstrapper`, and the signal on
//! its Runtime when the runtime is orphaned. A failure of KCP contains no information about the runtime, so the
//! reconcile has no result. Not in here: when the next reconcile is due.

use std::sync::Arc;

use api::bootstrapper::{DeletionPolicy, RuntimeBootstrapper, RuntimeBootstrapperStatus};
use kube::{Resource as _, ResourceExt as _};
use policy::sync::ObjectNames;
use policy::sync::desired::Desired;
use policy::sync::manifests::Installation;
use policy::sync::observed::DeploymentStatus;
use policy::sync::plan::Plan;
use policy::sync::rollout::{LaneResult, Name, WritePermit};
use policy::sync::scheduler::{Access, LaneReport, Report};
use policy::sync::signal::Eligibility;
use policy::sync::status::{ConnectionError, Goal, LaneOutcome, Outcome};
use policy::sync::{Hash, Lane, Lanes};
use tokio::time::{Duration, Instant};

use super::lifecycle::Lifecycle;
use super::metrics::DirectMetrics;
use super::report::status;
use crate::access::{ClientFactory, unreached};
use crate::claims::Claims;
use crate::clients::{CallError, ConnectionLimits, RuntimeId};
use crate::runtime_objects::WriteFailure;

mod leave;
pub(super) mod runtime;

pub(super) use self::leave::Deletions;

/// State and clients that all reconciles share.
pub(super) struct Common {
    pub(super) client_factory: ClientFactory,
    pub(super) limits: ConnectionLimits,
    pub(super) lifecycle: Lifecycle,
    pub(super) deletions: Deletions,
    pub(super) claims: Claims,
    pub(super) control_plane: String,
    pub(super) metrics: DirectMetrics,
}

/// The input of one reconcile.
pub(super) struct ReconcileRequest {
    pub(super) name: Name,
    pub(super) resource: Box<RuntimeBootstrapper>,
    /// The last reported status.
    pub(super) previous: RuntimeBootstrapperStatus,
    /// The runtime ID, or the reason why it is unknown.
    pub(super) runtime: Result<RuntimeId, ConnectionError>,
    /// The last observed resource version of the kubeconfig Secret.
    pub(super) kubeconfig: Option<String>,
    /// Whether the Runtime may be signaled.
    pub(super) eligibility: Eligibility,
    /// Names of the three objects on the runtime.
    pub(super) objects: Arc<ObjectNames>,
    pub(super) desired: Arc<Desired>,
    /// The manifests to install. The error contains the manifests for the default settings, and the reason why the
    /// manifests cannot be rendered.
    pub(super) installation: Result<Arc<Installation>, (Arc<Installation>, String)>,
    /// Permitted access in each lane; `None` if the lane is not due.
    pub(super) lanes: Lanes<Option<Access>>,
}

impl ReconcileRequest {
    fn permit(&self, lane: Lane) -> Option<WritePermit> {
        match self.lanes.get(lane) {
            Some(Access::Write(permit)) => Some(*permit),
            Some(Access::Observe(_)) | None => None,
        }
    }

    /// Returns the revision of the webhook that this reconcile may write.
    fn webhook_revision(&self) -> Option<Hash> {
        self.permit(Lane::Webhook).map(WritePermit::revision)
    }
}

/// The result of one reconcile.
pub(super) struct ReconcileResult {
    pub(super) name: Name,
    /// UID of the resource, which may have been deleted and created again during the reconcile.
    pub(super) uid: Option<String>,
    pub(super) status: RuntimeBootstrapperStatus,
    /// Report for the scheduler; [`Report::Idle`] if the deletion of the resource is complete.
    pub(super) report: Report,
    pub(super) took: Duration,
}

/// The observation of the runtime and the results of the writes.
#[derive(Default)]
struct Findings {
    unreached: Option<ConnectionError>,
    plan: Option<Box<Plan>>,
    /// The failed write of each lane.
    failures: Lanes<Option<WriteFailure>>,
    /// Whether a write was attempted in each lane.
    wrote: Lanes<bool>,
    retry_after: Option<Duration>,
    cluster: Option<String>,
}

/// Reconciles one runtime.
///
/// # Errors
/// A request to KCP failed; the runtime may not have been contacted.
pub(super) async fn reconcile(
    common: &Common,
    request: ReconcileRequest,
) -> kube::Result<ReconcileResult> {
    let start = Instant::now();
    let goal = goal(&request.resource);
    common
        .lifecycle
        .add_finalizer(&request.resource, goal)
        .await?;
    let findings = runtime::run(common, &request, goal).await?;
    let mut report = report(&request, goal, &findings);
    if goal != Goal::Sync {
        report = leave::finish_deletion(common, &request, &findings, report).await?;
    }
    let webhook_revision = request
        .webhook_revision()
        .filter(|_| findings.wrote.webhook || is_done(report, Lane::Webhook));
    let outcome = Outcome {
        connection_error: findings.unreached.as_ref(),
        plan: findings.plan.as_deref(),
        goal,
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
        status: status(
            &request,
            findings.cluster.as_deref(),
            webhook_revision,
            outcome,
        ),
        uid: request.resource.uid(),
        name: request.name,
        report,
        took: start.elapsed(),
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

/// Returns the goal of a reconcile of this resource.
pub(super) fn goal(resource: &RuntimeBootstrapper) -> Goal {
    match resource.meta().deletion_timestamp {
        None => Goal::Sync,
        Some(_) => deletion_goal(resource),
    }
}

/// Returns the goal of the reconciles of this resource after its deletion.
pub(super) fn deletion_goal(resource: &RuntimeBootstrapper) -> Goal {
    match resource.spec.deletion_policy {
        DeletionPolicy::Delete => Goal::Delete,
        DeletionPolicy::Orphan => Goal::Orphan,
    }
}

fn report(request: &ReconcileRequest, goal: Goal, findings: &Findings) -> Report {
    let retry_after = findings.retry_after;
    let wrote = findings.wrote.iter().any(|it| *it);
    let Some(plan) = findings.plan.as_deref().filter(|it| it.blocked.is_none()) else {
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
    if plan.is_removed() {
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
        needs_requeue: false,
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
    // The installation is observed again after the write before it counts as complete.
    let is_progressing = lane == Lane::Webhook
        && (plan.is_deployment_pending() || installed.complete == Some(false));
    let is_broken = lane == Lane::Webhook
        && (installed.deployment == DeploymentStatus::Failed
            || installed.immutable_conflict.is_some());
    // All that can be written is written, and the rollout does not wait for the rest.
    let is_inaccessible = lane == Lane::Configuration && plan.has_inaccessible();
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
        // Pods become ready without another write, so the status is read again.
        needs_requeue: is_inaccessible
            || (is_progressing && !is_broken && plan.lanes.get(lane).steps.is_empty()),
        retry_after: failure.and_then(|it| it.retry_after),
    }
}

/// Returns whether the webhook lane has writes or a Deployment that is not available, without reading all manifests.
fn webhook_differs(plan: &Plan) -> bool {
    plan.lanes.webhook.blocked.is_none()
        && (plan.installation.deployment != DeploymentStatus::Available
            || !plan.lanes.webhook.steps.is_empty())
}

impl Findings {
    fn unreached(unreached: ConnectionError) -> Self {
        Self {
            unreached: Some(unreached),
            ..Self::default()
        }
    }

    fn of_error(error: &CallError) -> Self {
        Self {
            retry_after: error.retry_after(),
            ..Self::unreached(unreached(error))
        }
    }
}
