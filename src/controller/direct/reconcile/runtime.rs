//! Steps of a reconcile that access the runtime.
//!
//! Invariant: the identity of the cluster is verified before any other step. A rejected cluster remains available for
//! its own runtime.

use api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION;
use kube::ResourceExt as _;
use policy::sync::identity::{IdentityRecord, Owner};
use policy::sync::managed_fields::is_installer;
use policy::sync::observed::Observed;
use policy::sync::plan::{self, Action, Blocked, Context, Plan};
use policy::sync::status::{Failure, Goal};
use policy::sync::{Lane, Lanes};

use super::super::apply::apply;
use super::super::gather::RuntimeReader;
use super::{Common, Findings, ReconcileRequest};
use crate::claims::Claims;
use crate::clients::{CallError, ManagedFields, Remote, RuntimeId};
use crate::runtime_objects::WriteFailure;

/// Connects to the runtime, reads, plans and applies.
///
/// # Errors
/// KCP does not return the kubeconfig.
pub(super) async fn run(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
) -> kube::Result<Findings> {
    let id = match &request.runtime {
        Ok(id) => id,
        Err(unreached) => return Ok(Findings::unreached(unreached.clone())),
    };
    let seen = request.kubeconfig.as_deref();
    let secret = common.client_factory.read_kubeconfig(id, seen).await?;
    // Acquired after the kubeconfig was read: a reconcile that waits for KCP needs no permit.
    let permit = common.limits.handshakes.acquire().await;
    let remote = match common.client_factory.client(id, secret) {
        Ok(remote) => remote.with_managed_fields(owners(goal)),
        Err(unreached) => return Ok(Findings::unreached(unreached)),
    };
    let permit = match common.limits.connect(permit, &remote).await {
        Ok(permit) => permit,
        Err(error) => return Ok(Findings::of_error(&error)),
    };
    // Boxed, because most reconciles wait here and do not need the memory yet.
    let run = Box::pin(run_connected(common, request, goal, id, remote));
    Ok(common.limits.connections.run(permit, run).await)
}

async fn run_connected(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
    id: &RuntimeId,
    remote: Remote,
) -> Findings {
    match decide(common, request, goal, id, &remote).await {
        Ok(findings) => write(common, request, goal, findings, &remote).await,
        Err(error) => Findings::of_error(&error),
    }
}

/// Returns the managed fields that a reconcile needs. Managed fields matter only where fields change owners: when the
/// runtime is deleted or orphaned, and where an installer owns fields.
pub(in crate::direct) fn owners(goal: Goal) -> ManagedFields {
    match goal {
        Goal::Sync => ManagedFields::IfOwnedBy(is_installer),
        Goal::Delete | Goal::Orphan => ManagedFields::All,
    }
}

async fn decide(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
    id: &RuntimeId,
    remote: &Remote,
) -> Result<Findings, CallError> {
    let identity = (&common.claims, common.control_plane.as_str());
    let (observed, plan) = observe(identity, request, goal, id, remote).await?;
    if let (Some(Blocked::Identity(_)), Some(cluster)) = (&plan.blocked, &observed.cluster)
        && request.previous.cluster_uid.as_ref() != Some(cluster)
    {
        common.claims.withdraw(cluster, id.as_str());
    }
    Ok(Findings {
        cluster: observed.cluster.filter(|_| plan.blocked.is_none()),
        plan: Some(Box::new(plan)),
        ..Findings::default()
    })
}

/// Reads the runtime and makes the plan. `plan_runtime` calls this function, too, so that its output equals the
/// writes of a reconcile.
pub(in crate::direct) async fn observe(
    (claims, control_plane): (&Claims, &str),
    request: &ReconcileRequest,
    goal: Goal,
    id: &RuntimeId,
    remote: &Remote,
) -> Result<(Observed, Plan), CallError> {
    let (Ok(installation) | Err((installation, _))) = &request.installation;
    let reader = RuntimeReader {
        remote,
        names: &request.objects,
        installation,
    };
    let mut observed = reader.essentials().await?;
    let claimed_by = observed
        .cluster
        .as_ref()
        .and_then(|cluster| claims.claim(cluster, id));
    let owner = Owner {
        runtime_id: id.as_str().to_owned(),
        control_plane: control_plane.to_owned(),
    };
    let context = Context {
        names: &request.objects,
        installation,
        owner: &owner,
        record: IdentityRecord {
            recorded_uid: request.previous.cluster_uid.as_deref(),
            accepted_uid: accepted(request),
            claimed_by: claimed_by.as_deref(),
        },
    };
    let mut plan = planned(context, request, goal, &observed);
    if goal == Goal::Sync && request.lanes.configuration.is_some() && plan.blocked.is_none() {
        let revoked = plan::revoked_targets(context, &request.desired, &observed);
        if !revoked.is_empty() {
            reader.earlier_sources(revoked, &mut observed).await?;
            plan = planned(context, request, goal, &observed);
        }
    }
    let is_full = goal != Goal::Sync || request.lanes.webhook.is_some();
    if is_full && plan.blocked.is_none() {
        reader.installed(&mut observed).await?;
        if goal == Goal::Delete {
            reader.created_by_webhook(&mut observed).await?;
        }
        plan = planned(context, request, goal, &observed);
    }
    Ok((observed, plan))
}

/// Logs verbs and paths of the writes, without content.
fn log_writes(runtime: &str, done: &[Action]) {
    if done.is_empty() {
        return;
    }
    // `Debug` of an action is its verb and path.
    tracing::info!(runtime, writes = ?done, "objects on runtime written");
}

/// Logs the objects in additional namespaces that a deletion leaves behind.
fn log_remaining(runtime: &str, remaining: &[Failure]) {
    for Failure { target, message } in remaining {
        let (path, error) = (target.path(), message);
        tracing::warn!(runtime, path, error, "object left behind on the runtime");
    }
}

/// Returns the UID of a cluster that an operator accepted for the runtime.
fn accepted(request: &ReconcileRequest) -> Option<&str> {
    let annotations = request.resource.annotations();
    let uid = annotations.get(ACCEPT_CLUSTER_UID_ANNOTATION);
    uid.map(String::as_str)
}

fn planned(
    context: Context<'_>,
    request: &ReconcileRequest,
    goal: Goal,
    observed: &Observed,
) -> Plan {
    match goal {
        Goal::Sync => plan::plan(context, &request.desired, observed),
        Goal::Delete => plan::plan_deletion(context, observed),
        Goal::Orphan => plan::plan_orphan(context, observed),
    }
}

async fn write(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
    mut findings: Findings,
    remote: &Remote,
) -> Findings {
    let Some(plan) = findings
        .plan
        .as_deref_mut()
        .filter(|it| it.blocked.is_none())
    else {
        return findings;
    };
    // A deletion needs only the names of the objects.
    if let (Err((installation, reason)), Goal::Sync) = (&request.installation, goal) {
        plan.lanes.webhook.steps.clear();
        plan.additional.clear();
        let target = installation
            .deployment()
            .filter(|_| request.lanes.webhook.is_some());
        findings.failures.webhook = target.map(|target| WriteFailure {
            failure: Failure {
                target: target.clone(),
                message: reason.clone(),
            },
            is_transient: false,
            concerns_all_calls: false,
            retry_after: None,
        });
    }
    let permits = |lane| goal != Goal::Sync || request.permit(lane).is_some();
    if !Lane::ALL.into_iter().any(permits) {
        return findings;
    }
    if let (Some(cluster), Ok(id)) = (&findings.cluster, &request.runtime) {
        common.claims.release_others(cluster, id.as_str());
    }
    let applied = apply(plan, permits, remote, &common.metrics).await;
    // A deletion does not distinguish lanes.
    let deletes = goal != Goal::Sync && !plan.is_empty();
    findings.wrote = applied.tried.map(|it| it || deletes);
    log_writes(&request.name, &applied.done);
    plan.installation.not_written.extend(applied.not_written);
    if goal != Goal::Sync && plan.is_removed() {
        log_remaining(&request.name, &plan.installation.not_written);
    }
    if goal == Goal::Sync && applied.failures.iter().any(Option::is_some) {
        plan.record_applied(&applied.done);
    }
    let worst = WriteFailure::of(applied.failures.iter().flatten().cloned());
    findings.retry_after = worst.as_ref().and_then(|it| it.retry_after);
    let failures = match goal {
        Goal::Sync => applied.failures,
        Goal::Delete | Goal::Orphan => Lanes::both(worst),
    };
    findings.failures.configuration = failures.configuration;
    findings.failures.webhook = findings.failures.webhook.or(failures.webhook);
    findings
}
