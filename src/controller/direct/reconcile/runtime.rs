//! The part of a reconcile that happens on the runtime.
//!
//! Invariant: the identity of the cluster that a kubeconfig leads to is verified before anything else counts, and a cluster
//! that is rejected remains free for the runtime that it belongs to.

use api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION;
use kube::ResourceExt as _;
use policy::sync::Lane;
use policy::sync::fields::is_installer;
use policy::sync::identity::{Claim, Owner};
use policy::sync::observed::Observed;
use policy::sync::plan::{self, Blocked, Context, Plan};
use policy::sync::status::{Failure, Goal};

use super::super::apply::{WriteFailure, apply};
use super::super::gather::Gather;
use super::{Common, Findings, ReconcileRequest};
use crate::clients::{CallError, Owners, Remote, RuntimeId};

/// Observes, plans and applies.
///
/// # Errors
/// The control plane does not hand out the kubeconfig.
pub(super) async fn work(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
) -> kube::Result<Findings> {
    let id = match &request.runtime {
        Ok(id) => id,
        Err(unreached) => return Ok(Findings::without(unreached.clone())),
    };
    let seen = request.kubeconfig.as_deref();
    let secret = common.door.ask(id, seen).await?;
    // Asked for with the kubeconfig in hand: who waits for the control plane needs no seat yet.
    let seat = common.handshakes.enter().await;
    let remote = match common.door.open(id, secret) {
        Ok(remote) => remote.with_owners(owners(goal)),
        Err(unreached) => return Ok(Findings::without(unreached)),
    };
    // Two of a reconcile's five round trips, and little of its memory: a permit for the rest is not needed yet.
    let connected = Box::pin(async {
        remote.connect().await?;
        Ok(common.places.enter().await)
    });
    let place = match common.handshakes.hold(seat, connected).await {
        Ok(place) => place,
        Err(error) => return Ok(Findings::of_error(&error)),
    };
    // Boxed: most reconciles wait, and do not need the memory yet.
    let there = Box::pin(there(common, request, goal, id, remote));
    Ok(common.places.hold(place, there).await)
}

async fn there(
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

/// Which field is whose matters only where fields change hands: on the way out, and where an installer has some.
fn owners(goal: Goal) -> Owners {
    match goal {
        Goal::Sync => Owners::With(is_installer),
        Goal::Delete | Goal::Orphan => Owners::Whole,
    }
}

async fn decide(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
    id: &RuntimeId,
    remote: &Remote,
) -> Result<Findings, CallError> {
    let (Ok(installation) | Err((installation, _))) = &request.installation;
    let gather = Gather {
        remote,
        names: &request.objects,
        installation,
    };
    let mut observed = gather.essentials().await?;
    let claimed_by = observed
        .cluster
        .as_ref()
        .and_then(|cluster| common.claims.claim(cluster, id.as_str()));
    let owner = Owner {
        runtime_id: id.as_str().to_owned(),
        control_plane: common.control_plane.clone(),
    };
    let remembered = request.previous.cluster_uid.as_deref();
    let context = Context {
        names: &request.objects,
        installation,
        owner: &owner,
        claim: Claim {
            remembered,
            accepted: accepted(request),
            claimed_by: claimed_by.as_deref(),
        },
    };
    let mut plan = planned(context, request, goal, &observed);
    let is_full = goal != Goal::Sync || request.lanes.webhook.is_some();
    if is_full && plan.blocked.is_none() {
        gather.installed(&mut observed).await?;
        if goal == Goal::Delete {
            gather.made(&mut observed).await?;
        }
        plan = planned(context, request, goal, &observed);
    }
    if let (Some(Blocked::Identity(_)), Some(cluster)) = (&plan.blocked, &observed.cluster)
        && remembered != Some(cluster)
    {
        common.claims.withdraw(cluster, id.as_str());
    }
    Ok(Findings {
        cluster: observed.cluster.filter(|_| plan.blocked.is_none()),
        plan: Some(plan),
        ..Findings::default()
    })
}

/// The UID of a cluster that an operator accepted for the runtime.
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
        Goal::Delete => plan::uninstall(context, observed),
        Goal::Orphan => plan::hand_back(context, observed),
    }
}

async fn write(
    common: &Common,
    request: &ReconcileRequest,
    goal: Goal,
    mut findings: Findings,
    remote: &Remote,
) -> Findings {
    let Some(plan) = findings.plan.as_mut().filter(|it| it.blocked.is_none()) else {
        return findings;
    };
    // For a deletion it is enough to know what the objects are called.
    if let (Err((installation, reason)), Goal::Sync) = (&request.installation, goal) {
        plan.lanes.webhook.steps.clear();
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
        common.claims.settle(cluster, id.as_str());
    }
    for lane in Lane::ALL {
        let writes = permits(lane) && !plan.lanes.get(lane).steps.is_empty();
        *findings.wrote.get_mut(lane) = writes || (goal != Goal::Sync && !plan.is_empty());
    }
    let applied = apply(plan, permits, remote, &common.metrics).await;
    if applied.failures.iter().any(Option::is_some) {
        plan.stop(&applied.done);
    }
    let failures = applied.failures.iter().flatten();
    findings.retry_after = failures.filter_map(|it| it.retry_after).max();
    findings.failures.configuration = applied.failures.configuration;
    findings.failures.webhook = findings.failures.webhook.or(applied.failures.webhook);
    findings
}
