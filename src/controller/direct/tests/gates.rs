//! Tests of the runtimes that a paused, stopped or waiting rollout does not write to, also with many concurrent reconciles.

use std::time::Duration;

use policy::sync::rollout::{MaxFailures, Settings, Step};
use rstest::rstest;
use serde_json::{Value, json};

use super::env::*;
use crate::runtime_cluster::RuntimeCluster;

/// Plural name of the rollout objects.
pub(super) const ROLLOUTS: &str = "runtimebootstrapperrollouts";

/// Names of the rollout objects, by lane.
pub(super) const CONFIGURATION_LANE: &str = "configuration";
pub(super) const WEBHOOK_LANE: &str = "webhook";

pub(super) const NEXT_IMAGE: &str = "registry.example/webhook:0.2.0";

/// Returns a controller, and the names of its runtimes. A runtime takes 0.15 s of an idle core, and thirty times as
/// long while the suites on clusters run.
fn many(size: usize) -> (Env, Vec<String>) {
    let mut env = Env::new();
    env.patience = Duration::from_secs(5) * u32::try_from(size).unwrap();
    let names = (0..size).map(|number| format!("r{number:03}"));
    (env, names.collect())
}

async fn converge(env: &mut Env, names: &[String]) -> Vec<RuntimeCluster> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    env.converge(&names).await
}

/// Returns the status of the rollout of a lane.
pub(super) fn progress(env: &Env, lane: &str) -> Value {
    let object = env.kcp.object(ROLLOUTS, lane).unwrap_or_default();
    object["status"].clone()
}

/// Returns the number of runtimes in a state of the rollout of a lane.
pub(super) fn count(env: &Env, lane: &str, state: &str) -> u64 {
    progress(env, lane)["runtimes"][state]
        .as_u64()
        .unwrap_or_default()
}

/// Returns the reason why the rollout of a lane is stopped; empty if it is not stopped.
pub(super) fn stopped(env: &Env, lane: &str) -> String {
    let status = progress(env, lane);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions
        .iter()
        .find(|it| it["type"] == "Stopped" && it["status"] == "True");
    found.map_or_else(String::new, |it| it["reason"].as_str().unwrap().to_owned())
}

pub(super) fn is_completed(env: &Env, lane: &str) -> bool {
    let status = progress(env, lane);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions
        .iter()
        .any(|it| it["type"] == "Completed" && it["status"] == "True")
}

/// Returns settings of a rollout with one runtime per step, which stops after more than `failures` failures.
pub(super) fn one_by_one(settings: &Settings, failures: u32) -> Settings {
    Settings {
        steps: (1..5).map(Step::Count).collect(),
        max_failures: Some(MaxFailures::Count(failures)),
        ..settings.clone()
    }
}

pub(super) fn set_paused(env: &Env, lane: &str, paused: bool) {
    let patch = json!({"spec": {"paused": paused}});
    env.kcp.merge(ROLLOUTS, lane, &patch);
}

pub(super) async fn pause(env: &Env, lane: &str) {
    env.until("progress", |it| !progress(it, lane).is_null())
        .await;
    set_paused(env, lane, true);
    env.until("paused", |it| stopped(it, lane) == "Paused")
        .await;
}

/// Restarts the controller with the next image of the webhook. Waits until the number of reconciles reaches the
/// number of runtimes.
async fn upgrade(env: &mut Env, runtimes: usize) {
    env.until("the first rollout is completed", |it| {
        is_completed(it, WEBHOOK_LANE)
    })
    .await;
    env.stop().await;
    env.image = NEXT_IMAGE.to_owned();
    env.start();
    env.until("as many reconciles as runtimes", |it| {
        it.passes() >= u64::try_from(runtimes).unwrap()
    })
    .await;
    env.until("the rollout's progress", |it| {
        progress(it, WEBHOOK_LANE)["version"] == "0.2.0"
    })
    .await;
}

/// Returns the indices of the runtimes to which a write of the Deployment was sent.
fn upgraded(clusters: &[RuntimeCluster]) -> Vec<usize> {
    let is_upgraded = |cluster: &RuntimeCluster| cluster.answered(INSTALL[5]);
    let found = clusters
        .iter()
        .enumerate()
        .filter(|(_, it)| is_upgraded(it));
    found.map(|(place, _)| place).collect()
}

#[rstest]
#[case(60)]
#[case(120)]
#[tokio::test]
async fn a_paused_upgrade_touches_no_runtime(#[case] size: usize) {
    let (mut env, names) = many(size);
    let clusters = converge(&mut env, &names).await;
    pause(&env, WEBHOOK_LANE).await;
    upgrade(&mut env, size).await;
    env.until("all wait", |it| {
        count(it, WEBHOOK_LANE, "waiting") == u64::try_from(size).unwrap()
    })
    .await;
    env.settle().await;
    assert_eq!(upgraded(&clusters), [0; 0]);
    // The runtimes keep their objects.
    assert_eq!(env.condition(&names[0], "Ready"), "True Ready");
    set_paused(&env, WEBHOOK_LANE, false);
    env.until("all are upgraded", |_| upgraded(&clusters).len() == size)
        .await;
}

#[rstest]
#[case(60)]
#[case(120)]
#[tokio::test]
async fn an_exceeded_failure_limit_keeps_every_later_step_untouched(#[case] size: usize) {
    let (mut env, names) = many(size);
    env.settings.rollouts.webhook.steps = vec![Step::Count(5)];
    env.settings.rollouts.webhook.max_failures = Some(MaxFailures::Count(0));
    let clusters = converge(&mut env, &names).await;
    for cluster in &clusters {
        cluster.refuse(INSTALL[5], 422);
    }
    upgrade(&mut env, size).await;
    env.until("stopped", |it| {
        stopped(it, WEBHOOK_LANE) == "FailureLimitExceeded"
    })
    .await;
    // The controller retries the failed runtimes, so `settle` would not return.
    env.more_passes(10).await;
    let upgraded = upgraded(&clusters);
    assert!(!upgraded.is_empty());
    assert!(upgraded.iter().all(|place| *place < 5), "{upgraded:?}");
}

#[tokio::test]
async fn a_later_step_waits_for_the_one_before() {
    const STEP: u32 = 10;
    let (mut env, names) = many(60);
    env.settings.rollouts.webhook.steps = vec![Step::Count(STEP)];
    let clusters = converge(&mut env, &names).await;
    let (first, rest) = clusters.split_at(usize::try_from(STEP).unwrap());
    for cluster in first {
        cluster.stop_rollouts();
    }
    upgrade(&mut env, clusters.len()).await;
    env.until("the first step", |_| upgraded(first).len() == first.len())
        .await;
    // The controller repeatedly observes the first step.
    env.more_passes(20).await;
    assert_eq!(upgraded(rest), [0; 0]);
    first.iter().for_each(RuntimeCluster::roll_out);
    env.until("all others", |_| upgraded(rest).len() == rest.len())
        .await;
}

/// An earlier leader wrote the Deployment. An installation that has started is completed, and no other runtime starts.
#[tokio::test]
async fn an_installation_that_has_started_is_completed_while_the_rollout_is_paused() {
    let mut env = Env::new();
    env.settings.rollouts.webhook = one_by_one(&env.settings.rollouts.webhook, 0);
    let clusters = env.add_all(&["a", "b"]).await;
    clusters[0].stop_rollouts();
    env.start();
    env.until_condition("a", "Installed", "False Installing")
        .await;
    env.until_condition("b", "Installed", "False RolloutPending")
        .await;
    pause(&env, WEBHOOK_LANE).await;
    env.stop().await;
    env.start();
    clusters[0].roll_out();
    env.until_ready("a").await;
    env.settle().await;
    assert!(!clusters[1].answered(INSTALL[5]));
    set_paused(&env, WEBHOOK_LANE, false);
    env.until_ready("b").await;
}

/// Returns two synchronized runtimes after the configuration document on the control plane has become invalid.
async fn spoil_document(env: &mut Env) -> Vec<RuntimeCluster> {
    let clusters = env.converge(&["a", "b"]).await;
    env.content.document = Some("{".to_owned());
    env.publish();
    until_all(env, "False InvalidSource").await;
    env.settle().await;
    clusters
}

/// Returns two runtimes with an invalid document, and one step for each runtime.
async fn with_an_invalid_document() -> (Env, Vec<RuntimeCluster>) {
    let mut env = Env::new();
    let rollouts = &mut env.settings.rollouts;
    rollouts.configuration = one_by_one(&rollouts.configuration, 0);
    let clusters = spoil_document(&mut env).await;
    (env, clusters)
}

async fn until_all(env: &Env, synchronized: &str) {
    for name in ["a", "b"] {
        let kind = "ConfigurationSynchronized";
        env.until_condition(name, kind, synchronized).await;
    }
}

fn pull_secret(cluster: &RuntimeCluster) -> Value {
    cluster.kyma("secrets/registry-credentials").unwrap()["data"].clone()
}

#[tokio::test]
async fn a_change_beside_an_invalid_document_waits_for_the_end_of_the_pause() {
    let (mut env, clusters) = with_an_invalid_document().await;
    pause(&env, CONFIGURATION_LANE).await;
    let before = pull_secret(&clusters[0]);
    env.content.password = Some("two");
    env.publish();
    until_all(&env, "False RolloutPending").await;
    env.settle().await;
    assert_eq!((clusters[0].take(), clusters[1].take()), (vec![], vec![]));
    env.until("both wait", |it| {
        count(it, CONFIGURATION_LANE, "waiting") == 2
    })
    .await;
    set_paused(&env, CONFIGURATION_LANE, false);
    env.until("written", |_| {
        clusters.iter().all(|it| pull_secret(it) != before)
    })
    .await;
}

#[tokio::test]
async fn a_change_beside_an_invalid_document_goes_out_step_by_step() {
    let (mut env, clusters) = with_an_invalid_document().await;
    let refusal = clusters[0].refuse(INSTALL[2], 422);
    env.content.password = Some("two");
    env.publish();
    env.until("stopped", |it| {
        stopped(it, CONFIGURATION_LANE) == "FailureLimitExceeded"
    })
    .await;
    env.until_condition("b", "ConfigurationSynchronized", "False RolloutPending")
        .await;
    assert_eq!(clusters[1].take(), [""; 0]);
    // An invalid document does not delay the rollout of the other sources permanently.
    refusal.stop();
    env.until("the second step", |_| clusters[1].answered(INSTALL[2]))
        .await;
    env.until("completed", |it| {
        let status = progress(it, CONFIGURATION_LANE);
        status["completedRevision"] == status["revision"]
    })
    .await;
    assert!(!is_completed(&env, CONFIGURATION_LANE));
}

/// One step for all runtimes, and one reconcile at a time until the leader changes.
#[tokio::test]
async fn failures_beside_an_invalid_document_stop_the_rollout_under_the_next_leader_too() {
    let mut env = Env::new();
    env.settings.max_concurrent_reconciles = 1;
    // A slow reconcile would allow another one.
    env.settings.slow_after = Duration::from_hours(1);
    env.settings.rollouts.configuration.max_failures = Some(MaxFailures::Count(0));
    let clusters = spoil_document(&mut env).await;
    for cluster in &clusters {
        cluster.refuse(INSTALL[2], 422);
    }
    env.content.password = Some("two");
    env.publish();
    env.until("stopped", |it| {
        stopped(it, CONFIGURATION_LANE) == "FailureLimitExceeded"
    })
    .await;
    env.stop().await;
    env.settings.max_concurrent_reconciles = 2;
    env.start();
    env.until_passes(4).await;
    let tried = clusters.iter().filter(|it| !it.take().is_empty());
    assert_eq!(tried.count(), 1);
}
