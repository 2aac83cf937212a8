//! What a pass found, as the status that anyone on the control plane can read.
//!
//! Invariant: what did not change is said in the same words with the same times, so that equal statuses are equal and
//! nothing is written. What an unreached runtime held when it was last seen stays said. What a plan wrote before it was
//! stopped is said, and a version only where the runtime holds all of it.

use api::bootstrapper::{RuntimeBootstrapperStatus, SynchronizedContent, WebhookStatus};
use policy::convergence::manifests::Installation;
use policy::convergence::plan::{Content, Plan};
use policy::convergence::status::{Outcome, Purpose, conditions};

use crate::runtimes::RuntimeId;

/// What besides the outcome goes into a status.
pub(super) struct Given<'a> {
    pub(super) previous: &'a RuntimeBootstrapperStatus,
    pub(super) runtime: Option<&'a RuntimeId>,
    pub(super) generation: Option<i64>,
    pub(super) installation: Option<&'a Installation>,
    /// The cluster, if it may be remembered.
    pub(super) cluster: Option<&'a str>,
}

/// The status after a pass.
pub(super) fn status(given: &Given<'_>, outcome: Outcome<'_>) -> RuntimeBootstrapperStatus {
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let previous = given.previous;
    let seen = outcome.plan.filter(|plan| plan.blocked.is_none());
    let arrived = seen.filter(|plan| {
        outcome.withheld.is_none() && !is_as_before(plan, outcome, previous.content.as_ref())
    });
    RuntimeBootstrapperStatus {
        observed_generation: given.generation,
        conditions: conditions(&previous.conditions, outcome, given.generation, &now),
        runtime_id: given
            .runtime
            .map_or_else(|| previous.runtime_id.clone(), |id| Some(id.to_string())),
        cluster_id: given
            .cluster
            .map(str::to_owned)
            .or_else(|| previous.cluster_id.clone()),
        content: arrived.map_or_else(
            || previous.content.clone(),
            |plan| Some(content(previous.content.as_ref(), &plan.content, &now)),
        ),
        webhook: seen.map_or_else(
            || previous.webhook.clone(),
            |plan| Some(webhook(plan, given.installation, previous)),
        ),
    }
}

fn content(
    previous: Option<&SynchronizedContent>,
    now_there: &Content,
    now: &str,
) -> SynchronizedContent {
    let next = SynchronizedContent {
        pull_secret: now_there.pull_secret.clone(),
        trust_bundle: now_there.trust_bundle.clone(),
        configuration: now_there.configuration.clone(),
        version: now_there.version.clone(),
        time: previous.and_then(|it| it.time.clone()),
    };
    match previous {
        Some(previous) if *previous == next && next.time.is_some() => next,
        _ => SynchronizedContent {
            time: Some(now.to_owned()),
            ..next
        },
    }
}

/// Whether a plan was stopped before it changed any of the three objects.
fn is_as_before(plan: &Plan, outcome: Outcome<'_>, previous: Option<&SynchronizedContent>) -> bool {
    if outcome.failure.is_none() {
        return false;
    }
    let said =
        |hash: fn(&SynchronizedContent) -> &Option<String>| previous.map_or(&None, hash).as_deref();
    let there = &plan.content;
    let is_same = there.pull_secret.as_deref() == said(|it| &it.pull_secret)
        && there.trust_bundle.as_deref() == said(|it| &it.trust_bundle)
        && there.configuration.as_deref() == said(|it| &it.configuration);
    outcome.purpose != Purpose::Keep || (plan.writes_content && is_same)
}

fn webhook(
    plan: &Plan,
    installation: Option<&Installation>,
    previous: &RuntimeBootstrapperStatus,
) -> WebhookStatus {
    let installed = &plan.installation;
    let count = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let hash = match installed.complete {
        Some(true) => installation.map(|it| it.hash().to_string()),
        Some(false) => None,
        // The pass did not look: what was said before holds.
        None => previous
            .webhook
            .as_ref()
            .and_then(|it| it.manifest_hash.clone()),
    };
    WebhookStatus {
        version: installed.version.clone(),
        ready_replicas: count(installed.ready_replicas),
        replicas: count(installed.replicas),
        manifest_hash: hash,
    }
}
