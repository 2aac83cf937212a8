//! Computes the status of a `RuntimeBootstrapper` after a reconcile.
//!
//! Invariants: an unchanged observation results in an equal status, including times, so that nothing is written. The
//! configuration of an unreachable runtime remains as last observed. The status contains the objects that a plan
//! wrote before it failed. It contains a revision only if the runtime has all objects of the revision.

use api::bootstrapper::{ConfigurationStatus, RuntimeBootstrapperStatus, WebhookStatus};
use policy::sync::observed::DeploymentStatus;
use policy::sync::plan::Plan;
use policy::sync::status::{Goal, LaneOutcome, Outcome, conditions};
use policy::sync::{Hash, SourceKind};

use super::reconcile::ReconcileRequest;

/// Returns the status after a reconcile. `cluster` is the UID of the cluster, if it was accepted. `webhook_revision`
/// is the revision of the webhook that was written, completely or partly.
pub(super) fn status(
    request: &ReconcileRequest,
    cluster: Option<&str>,
    webhook_revision: Option<Hash>,
    outcome: Outcome<'_>,
) -> RuntimeBootstrapperStatus {
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let previous = &request.previous;
    let generation = request.resource.metadata.generation;
    let runtime = request.runtime.as_ref().ok();
    let observed = outcome.plan.filter(|plan| plan.blocked.is_none());
    let applied = observed.filter(|plan| {
        outcome.lanes.configuration == LaneOutcome::Applied
            && plan.lanes.configuration.blocked.is_none()
            && !is_unchanged(plan, outcome, previous.configuration.as_ref())
    });
    RuntimeBootstrapperStatus {
        observed_generation: generation,
        conditions: conditions(&previous.conditions, outcome, generation, &now),
        runtime_id: runtime.map_or_else(|| previous.runtime_id.clone(), |id| Some(id.to_string())),
        cluster_uid: cluster
            .map(str::to_owned)
            .or_else(|| previous.cluster_uid.clone()),
        configuration: applied.map_or_else(
            || previous.configuration.clone(),
            |plan| Some(content(previous.configuration.as_ref(), plan, &now)),
        ),
        webhook: observed
            .filter(|plan| plan.lanes.webhook.blocked.is_none())
            .map_or_else(
                || previous.webhook.clone(),
                |plan| Some(webhook(plan, request, outcome, webhook_revision)),
            ),
    }
}

fn content(previous: Option<&ConfigurationStatus>, plan: &Plan, now: &str) -> ConfigurationStatus {
    let mut next = hashes(plan, previous);
    next.last_update_time = previous.and_then(|it| it.last_update_time.clone());
    if previous != Some(&next) || next.last_update_time.is_none() {
        next.last_update_time = Some(now.to_owned());
    }
    next
}

/// Returns the hashes on the runtime. That of an object that was not read remains as last observed.
fn hashes(plan: &Plan, previous: Option<&ConfigurationStatus>) -> ConfigurationStatus {
    let mut hashes = plan.hashes.clone();
    for kind in plan.unread() {
        let reported = previous.and_then(|it| kind.hash(it));
        kind.set_hash(&mut hashes, reported.map(str::to_owned));
    }
    hashes
}

/// Returns whether a plan was stopped before it changed any of the three objects.
fn is_unchanged(plan: &Plan, outcome: Outcome<'_>, previous: Option<&ConfigurationStatus>) -> bool {
    if outcome.failures.configuration.is_none() {
        return false;
    }
    let reported = |kind: SourceKind| previous.and_then(|it| kind.hash(it));
    let current = hashes(plan, previous);
    let is_reported = |kind: SourceKind| kind.hash(&current) == reported(kind);
    let is_same = SourceKind::ALL.into_iter().all(is_reported);
    outcome.goal != Goal::Sync || (plan.writes_configuration && is_same)
}

fn webhook(
    plan: &Plan,
    request: &ReconcileRequest,
    outcome: Outcome<'_>,
    revision: Option<Hash>,
) -> WebhookStatus {
    let installed = &plan.installation;
    let installation = request.installation.as_ref().ok();
    let previous = request.previous.webhook.as_ref();
    let count = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let is_available = installed.deployment == DeploymentStatus::Available;
    let is_observed = matches!(outcome.lanes.webhook, LaneOutcome::Deferred(_));
    let hash = match installed.complete {
        // The revision may differ from the previous one in the additional namespaces only.
        Some(true) if is_available && is_observed && !plan.additional.is_empty() => {
            previous.and_then(|it| it.manifest_hash.clone())
        }
        Some(true) if is_available => installation.map(|it| it.hash().to_string()),
        Some(_) => None,
        // Not all manifests were read, so the previous hash remains.
        None => previous.and_then(|it| it.manifest_hash.clone()),
    };
    WebhookStatus {
        version: installed.version.clone(),
        ready_replicas: count(installed.ready_replicas),
        replicas: count(installed.replicas),
        manifest_hash: hash,
        update_revision: revision
            .map(|it| it.to_string())
            .or_else(|| previous.and_then(|it| it.update_revision.clone())),
    }
}
