//! The status of a `RuntimeBootstrapper` after a reconcile.
//!
//! Invariants: an unchanged observation gives an equal status, times included, so that nothing is written. The
//! configuration of an unreachable runtime remains as it was last observed. What a plan wrote before it failed is in the
//! status, and a revision only where the runtime has all of it.

use api::bootstrapper::{ConfigurationStatus, RuntimeBootstrapperStatus, WebhookStatus};
use policy::sync::Hash;
use policy::sync::manifests::Installation;
use policy::sync::observed::DeploymentStatus;
use policy::sync::plan::{Content, Plan};
use policy::sync::status::{Goal, LaneOutcome, Outcome, conditions};

use crate::clients::RuntimeId;

/// What besides the outcome goes into a status.
pub(super) struct Given<'a> {
    pub(super) previous: &'a RuntimeBootstrapperStatus,
    pub(super) runtime: Option<&'a RuntimeId>,
    pub(super) generation: Option<i64>,
    pub(super) installation: Option<&'a Installation>,
    /// The cluster, if it may be remembered.
    pub(super) cluster: Option<&'a str>,
    /// The revision of the webhook that was written, wholly or in part.
    pub(super) webhook_revision: Option<Hash>,
}

/// The status after a pass.
pub(super) fn status(given: &Given<'_>, outcome: Outcome<'_>) -> RuntimeBootstrapperStatus {
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let previous = given.previous;
    let seen = outcome.plan.filter(|plan| plan.blocked.is_none());
    let arrived = seen.filter(|plan| {
        outcome.lanes.configuration == LaneOutcome::Applied
            && plan.lanes.configuration.blocked.is_none()
            && !is_as_before(plan, outcome, previous.configuration.as_ref())
    });
    RuntimeBootstrapperStatus {
        observed_generation: given.generation,
        conditions: conditions(&previous.conditions, outcome, given.generation, &now),
        runtime_id: given
            .runtime
            .map_or_else(|| previous.runtime_id.clone(), |id| Some(id.to_string())),
        cluster_uid: given
            .cluster
            .map(str::to_owned)
            .or_else(|| previous.cluster_uid.clone()),
        configuration: arrived.map_or_else(
            || previous.configuration.clone(),
            |plan| {
                Some(content(
                    previous.configuration.as_ref(),
                    &plan.content,
                    &now,
                ))
            },
        ),
        webhook: seen
            .filter(|plan| plan.lanes.webhook.blocked.is_none())
            .map_or_else(
                || previous.webhook.clone(),
                |plan| Some(webhook(plan, given)),
            ),
    }
}

fn content(
    previous: Option<&ConfigurationStatus>,
    now_there: &Content,
    now: &str,
) -> ConfigurationStatus {
    let next = ConfigurationStatus {
        pull_secret_hash: now_there.pull_secret.clone(),
        trust_bundle_hash: now_there.trust_bundle.clone(),
        config_map_hash: now_there.configuration.clone(),
        revision: now_there.version.clone(),
        last_update_time: previous.and_then(|it| it.last_update_time.clone()),
    };
    match previous {
        Some(previous) if *previous == next && next.last_update_time.is_some() => next,
        _ => ConfigurationStatus {
            last_update_time: Some(now.to_owned()),
            ..next
        },
    }
}

/// Whether a plan was stopped before it changed any of the three objects.
fn is_as_before(plan: &Plan, outcome: Outcome<'_>, previous: Option<&ConfigurationStatus>) -> bool {
    if outcome.failures.configuration.is_none() {
        return false;
    }
    let said =
        |hash: fn(&ConfigurationStatus) -> &Option<String>| previous.map_or(&None, hash).as_deref();
    let there = &plan.content;
    let is_same = there.pull_secret.as_deref() == said(|it| &it.pull_secret_hash)
        && there.trust_bundle.as_deref() == said(|it| &it.trust_bundle_hash)
        && there.configuration.as_deref() == said(|it| &it.config_map_hash);
    outcome.purpose != Goal::Sync || (plan.writes_content && is_same)
}

fn webhook(plan: &Plan, given: &Given<'_>) -> WebhookStatus {
    let installed = &plan.installation;
    let previous = given.previous.webhook.as_ref();
    let count = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let is_available = installed.rollout == DeploymentStatus::Available;
    let hash = match installed.complete {
        Some(true) if is_available => given.installation.map(|it| it.hash().to_string()),
        Some(_) => None,
        // Not all manifests were read: the previous hash remains.
        None => previous.and_then(|it| it.manifest_hash.clone()),
    };
    WebhookStatus {
        version: installed.version.clone(),
        ready_replicas: count(installed.ready_replicas),
        replicas: count(installed.replicas),
        manifest_hash: hash,
        update_revision: given
            .webhook_revision
            .map(|it| it.to_string())
            .or_else(|| previous.and_then(|it| it.update_revision.clone())),
    }
}
