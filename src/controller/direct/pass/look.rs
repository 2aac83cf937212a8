//! The part of a pass that happens on the runtime.
//!
//! Invariant: what a kubeconfig leads to is asked who it is before anything else counts, and a cluster that is refused
//! stays free for the runtime that it belongs to.

use api::bootstrapper::{ConditionStatus, INSTALLED};
use api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION;
use kube::ResourceExt as _;
use policy::sync::fields::is_installer;
use policy::sync::identity::{Claim, Owner};
use policy::sync::observed::{DeploymentStatus, Observed};
use policy::sync::plan::{self, Blocked, Context, Plan};
use policy::sync::status::{Failure, Goal};

use super::super::apply::{WriteFailure, apply};
use super::super::gather::Gather;
use super::{Assignment, Common, Findings};
use crate::clients::{CallError, Owners, Remote, RuntimeId};

/// Looks, decides and writes.
///
/// # Errors
/// The control plane does not hand out the kubeconfig.
pub(super) async fn work(
    common: &Common,
    assignment: &Assignment,
    purpose: Goal,
) -> kube::Result<Findings> {
    let id = match &assignment.runtime {
        Ok(id) => id,
        Err(unreached) => return Ok(Findings::without(unreached.clone())),
    };
    let seen = assignment.kubeconfig.as_deref();
    let secret = common.door.ask(id, seen).await?;
    // Asked for with the kubeconfig in hand: who waits for the control plane needs no seat yet.
    let seat = common.handshakes.enter().await;
    let remote = match common.door.open(id, secret) {
        Ok(remote) => remote.with_owners(owners(purpose)),
        Err(unreached) => return Ok(Findings::without(unreached)),
    };
    // Two of a pass's five round trips, and little of its room: there need not be a place yet.
    let connected = Box::pin(async {
        remote.connect().await?;
        Ok(common.places.enter().await)
    });
    let place = match common.handshakes.hold(seat, connected).await {
        Ok(place) => place,
        Err(error) => return Ok(Findings::of_error(&error)),
    };
    // Boxed: most passes wait, and have no use for the room yet.
    let there = Box::pin(there(common, assignment, purpose, id, remote));
    Ok(common.places.hold(place, there).await)
}

async fn there(
    common: &Common,
    assignment: &Assignment,
    purpose: Goal,
    id: &RuntimeId,
    remote: Remote,
) -> Findings {
    match decide(common, assignment, purpose, id, &remote).await {
        Ok(findings) => write(common, assignment, purpose, findings, &remote).await,
        Err(error) => Findings::of_error(&error),
    }
}

/// Which field is whose matters only where fields change hands: on the way out, and where an installer has some.
fn owners(purpose: Goal) -> Owners {
    match purpose {
        Goal::Sync => Owners::With(is_installer),
        Goal::Delete | Goal::Orphan => Owners::Whole,
    }
}

async fn decide(
    common: &Common,
    assignment: &Assignment,
    purpose: Goal,
    id: &RuntimeId,
    remote: &Remote,
) -> Result<Findings, CallError> {
    let (Ok(installation) | Err((installation, _))) = &assignment.installation;
    let gather = Gather {
        remote,
        names: &assignment.objects,
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
    let remembered = assignment.previous.cluster_uid.as_deref();
    let context = Context {
        names: &assignment.objects,
        installation,
        owner: &owner,
        claim: Claim {
            remembered,
            accepted: accepted(assignment),
            claimed_by: claimed_by.as_deref(),
        },
    };
    let quick = planned(context, assignment, purpose, &observed);
    let all = assignment.thorough || needs_all(assignment, &quick, purpose);
    let content_first = is_urgent(assignment, &quick, purpose)
        || (all && !assignment.whole && purpose == Goal::Sync && quick.blocked.is_none());
    let thorough = quick.blocked.is_none() && all && !content_first;
    let plan = if content_first && assignment.withheld.is_some() {
        // Nothing is written, and what there would be to write of the installation is worth knowing.
        quick
    } else if content_first {
        quick.without_webhook()
    } else if thorough {
        gather.installed(&mut observed).await?;
        if purpose == Goal::Delete {
            gather.made(&mut observed).await?;
        }
        planned(context, assignment, purpose, &observed)
    } else {
        quick
    };
    if let (Some(Blocked::Identity(_)), Some(cluster)) = (&plan.blocked, &observed.cluster)
        && remembered != Some(cluster)
    {
        common.claims.withdraw(cluster, id.as_str());
    }
    Ok(Findings {
        cluster: observed.cluster.filter(|_| plan.blocked.is_none()),
        plan: Some(plan),
        thorough,
        content_first,
        ..Findings::default()
    })
}

/// Content goes first where both it and the webhook are to be written: an installation is many times as many calls, and
/// the content of all runtimes would wait for the installations of most. Only once in a row, or a quarrel about the
/// content would keep the webhook away.
fn is_urgent(assignment: &Assignment, plan: &Plan, purpose: Goal) -> bool {
    purpose == Goal::Sync
        && assignment.first
        && assignment.withheld.is_none()
        && plan.blocked.is_none()
        && plan.writes_content
        && plan.installation.rollout != DeploymentStatus::Available
}

/// A quick look is enough only where the wanted Deployment is available, and everything of it was there when all was
/// looked at last and nothing was in doubt since.
fn needs_all(assignment: &Assignment, plan: &Plan, purpose: Goal) -> bool {
    let (Ok(installation) | Err((installation, _))) = &assignment.installation;
    let previous = &assignment.previous;
    let webhook = previous.webhook.as_ref();
    let seen = webhook.and_then(|it| it.manifest_hash.as_deref());
    let said = previous.conditions.iter().find(|it| it.kind == INSTALLED);
    purpose != Goal::Sync
        || plan.installation.rollout != DeploymentStatus::Available
        || seen != Some(&*installation.hash().to_string())
        || said.is_none_or(|it| it.status != ConditionStatus::True)
}

/// The UID of a cluster that an operator accepted for the runtime.
fn accepted(assignment: &Assignment) -> Option<&str> {
    let annotations = assignment.resource.annotations();
    let uid = annotations.get(ACCEPT_CLUSTER_UID_ANNOTATION);
    uid.map(String::as_str)
}

fn planned(
    context: Context<'_>,
    assignment: &Assignment,
    purpose: Goal,
    observed: &Observed,
) -> Plan {
    match purpose {
        Goal::Sync => plan::plan(context, &assignment.desired, observed),
        Goal::Delete => plan::uninstall(context, observed),
        Goal::Orphan => plan::hand_back(context, observed),
    }
}

async fn write(
    common: &Common,
    assignment: &Assignment,
    purpose: Goal,
    mut findings: Findings,
    remote: &Remote,
) -> Findings {
    let Some(plan) = findings.plan.as_mut().filter(|it| it.blocked.is_none()) else {
        return findings;
    };
    // To leave, it is enough to know what the objects are called.
    if let (Err((installation, reason)), Goal::Sync) = (&assignment.installation, purpose) {
        plan.lanes.webhook.steps.clear();
        findings.failures.webhook = installation.deployment().map(|target| WriteFailure {
            failure: Failure {
                target: target.clone(),
                message: reason.clone(),
            },
            is_transient: false,
            concerns_all_calls: false,
            retry_after: None,
        });
    }
    if assignment.withheld.is_some() {
        return findings;
    }
    if let (Some(cluster), Ok(id)) = (&findings.cluster, &assignment.runtime) {
        common.claims.settle(cluster, id.as_str());
    }
    findings.wrote = !plan.is_empty();
    let applied = apply(plan, remote, &common.metrics).await;
    if applied.failures.iter().any(Option::is_some) {
        plan.stop(&applied.done);
    }
    let failures = applied.failures.iter().flatten();
    findings.retry_after = failures.filter_map(|it| it.retry_after).max();
    findings.failures.configuration = applied.failures.configuration;
    findings.failures.webhook = findings.failures.webhook.or(applied.failures.webhook);
    findings
}
