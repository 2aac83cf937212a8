//! Which runtimes a paused, stopped or waiting rollout leaves untouched, also when many reconciles run at once.

use std::num::NonZeroU32;
use std::time::Duration;

use policy::sync::waves::{Budget, Settings};
use rstest::rstest;
use serde_json::{Value, json};

use super::env::*;
use super::runtime_cluster::RuntimeCluster;

pub(super) const ROLLOUT: &str = "rt-bootstrapper-rollout";

pub(super) const NEXT_IMAGE: &str = "registry.example/webhook:0.2.0";

/// A controller to which a busy machine may give little time for its TLS handshakes, and the names of its runtimes.
fn many(size: usize) -> (Env, Vec<String>) {
    let mut env = Env::new();
    env.connect_timeout = Duration::from_secs(10);
    env.patience = Duration::from_mins(2);
    let names = (0..size).map(|number| format!("r{number:03}"));
    (env, names.collect())
}

async fn converge(env: &mut Env, names: &[String]) -> Vec<RuntimeCluster> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    env.converge(&names).await
}

pub(super) fn progress(env: &Env) -> Value {
    let map = env.kcp.object("configmaps", ROLLOUT).unwrap_or_default();
    let text = map["data"]["progress"].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

pub(super) fn annotate_paused(env: &Env, value: &str) {
    let annotation = json!({"rt-bootstrapper.kyma-project.io/paused": value});
    let patch = json!({"metadata": {"annotations": annotation}});
    env.kcp.merge("configmaps", ROLLOUT, &patch);
}

pub(super) async fn pause(env: &Env) {
    env.until("progress", |it| !progress(it).is_null()).await;
    annotate_paused(env, "true");
    env.until("paused", |it| progress(it)["stopped"] == "paused")
        .await;
}

/// Restarts the controller with the next image of the webhook, and waits until it has reconciled as often as there are
/// runtimes.
async fn upgrade(env: &mut Env, runtimes: usize) {
    env.stop().await;
    env.image = NEXT_IMAGE.to_owned();
    env.start();
    env.until("as many reconciles as runtimes", |it| {
        it.passes() >= u64::try_from(runtimes).unwrap()
    })
    .await;
    env.until("the rollout's progress", |it| {
        progress(it)["webhookVersion"] == "0.2.0"
    })
    .await;
}

/// Indices of the runtimes on which the Deployment was to be written.
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
    pause(&env).await;
    upgrade(&mut env, size).await;
    env.until("all wait", |it| {
        let waits = |name: &String| it.condition(name, "Installed") == "False RolloutPending";
        progress(it)["counts"]["waiting"] == size && names.iter().all(waits)
    })
    .await;
    env.settle().await;
    assert_eq!(upgraded(&clusters), [0; 0]);
    annotate_paused(&env, "false");
    env.until("all are upgraded", |_| upgraded(&clusters).len() == size)
        .await;
}

#[rstest]
#[case(60)]
#[case(120)]
#[tokio::test]
async fn a_spent_failure_limit_keeps_every_later_wave_untouched(#[case] size: usize) {
    let (mut env, names) = many(size);
    env.settings.waves = Settings {
        size: NonZeroU32::new(5),
        failure_budget: Budget::Count(0),
        ..env.settings.waves
    };
    let clusters = converge(&mut env, &names).await;
    for cluster in &clusters {
        cluster.refuse(INSTALL[5], 422);
    }
    upgrade(&mut env, size).await;
    env.until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    // Those that failed are tried again and again, so nothing is ever quiet.
    let passes = env.passes();
    env.until("more reconciles", |it| it.passes() >= passes + 50)
        .await;
    let upgraded = upgraded(&clusters);
    assert!(!upgraded.is_empty());
    assert!(upgraded.iter().all(|place| *place < 5), "{upgraded:?}");
}

#[tokio::test]
async fn a_later_wave_waits_for_the_one_before() {
    const WAVE: u32 = 10;
    let (mut env, names) = many(60);
    env.settings.waves.size = NonZeroU32::new(WAVE);
    let clusters = converge(&mut env, &names).await;
    let (first, rest) = clusters.split_at(usize::try_from(WAVE).unwrap());
    for cluster in first {
        cluster.stop_rollouts();
    }
    upgrade(&mut env, clusters.len()).await;
    env.until("the first wave", |_| upgraded(first).len() == first.len())
        .await;
    // The first wave is looked at again and again, which gives every other runtime its chance.
    let passes = env.passes();
    env.until("more reconciles", |it| it.passes() >= passes + 50)
        .await;
    assert_eq!(upgraded(rest), [0; 0]);
    first.iter().for_each(RuntimeCluster::roll_out);
    env.until("all other waves", |_| upgraded(rest).len() == rest.len())
        .await;
}

/// An earlier leader wrote the Deployment. The webhook configuration may follow only once the rollout goes on.
#[tokio::test]
async fn an_installation_that_waits_for_its_pods_is_not_completed_while_the_rollout_is_paused() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.stop_rollouts();
    env.start();
    env.until("the Deployment", |_| cluster.find(DEPLOYMENT).is_some())
        .await;
    pause(&env).await;
    env.stop().await;
    cluster.take();
    env.start();
    let waits = "False RolloutPending";
    env.until_condition("a", "Installed", waits).await;
    cluster.roll_out();
    env.until("the status says that its Pods are there", |it| {
        it.status("a")["webhook"]["readyReplicas"] == 2
    })
    .await;
    env.settle().await;
    assert_eq!(cluster.take(), [""; 0]);
    assert_eq!(env.condition("a", "Installed"), waits);
    annotate_paused(&env, "false");
    env.until_ready("a").await;
    assert_eq!(cluster.take(), [INSTALL[6]]);
}

/// Two runtimes that hold everything, before the document on the control plane becomes one that cannot be read.
async fn spoil_document(env: &mut Env) -> Vec<RuntimeCluster> {
    let clusters = env.converge(&["a", "b"]).await;
    env.content.document = Some("{".to_owned());
    env.publish();
    until_all(env, "False InvalidSource").await;
    env.settle().await;
    clusters
}

/// The same with two waves of one runtime each.
async fn with_an_invalid_document() -> (Env, Vec<RuntimeCluster>) {
    let mut env = Env::new();
    env.settings.waves = Settings {
        size: NonZeroU32::new(1),
        failure_budget: Budget::Count(0),
        ..env.settings.waves
    };
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
    pause(&env).await;
    let before = pull_secret(&clusters[0]);
    env.content.password = Some("two");
    env.publish();
    until_all(&env, "False RolloutPending").await;
    env.settle().await;
    assert_eq!((clusters[0].take(), clusters[1].take()), (vec![], vec![]));
    env.until("both wait", |it| progress(it)["counts"]["waiting"] == 2)
        .await;
    annotate_paused(&env, "false");
    env.until("written", |_| {
        clusters.iter().all(|it| pull_secret(it) != before)
    })
    .await;
}

#[tokio::test]
async fn a_change_beside_an_invalid_document_goes_out_wave_by_wave() {
    let (mut env, clusters) = with_an_invalid_document().await;
    let refusal = clusters[0].refuse(INSTALL[2], 422);
    env.content.password = Some("two");
    env.publish();
    env.until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    env.until_condition("b", "ConfigurationSynchronized", "False RolloutPending")
        .await;
    assert_eq!(clusters[1].take(), [""; 0]);
    // An invalid document does not hold the rollout of the rest up for good.
    refusal.stop();
    env.until("the second wave", |_| clusters[1].answered(INSTALL[2]))
        .await;
    env.until("finished", |it| progress(it)["finished"] == true)
        .await;
}

/// One wave for all, and one reconcile at a time until the leader changes.
#[tokio::test]
async fn failures_beside_an_invalid_document_stop_the_rollout_under_the_next_leader_too() {
    let mut env = Env::new();
    env.settings.passes = 1;
    env.settings.waves.failure_budget = Budget::Count(0);
    let clusters = spoil_document(&mut env).await;
    for cluster in &clusters {
        cluster.refuse(INSTALL[2], 422);
    }
    env.content.password = Some("two");
    env.publish();
    env.until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    env.stop().await;
    env.settings.passes = 2;
    env.start();
    env.until("reconciles", |it| it.passes() >= 4).await;
    let tried = clusters.iter().filter(|it| !it.take().is_empty());
    assert_eq!(tried.count(), 1);
}
