//! Tests of the steps of the configuration lane, its failure limit, and pauses.

use std::time::Duration;

use policy::sync::rollout::MaxFailures;
use serde_json::json;
use testkit::apiserver::FaultHandle;

use super::env::*;
use super::gates::{
    CONFIGURATION_LANE, is_completed, one_by_one, pause, progress, set_paused, stopped,
};
use crate::runtime_cluster::RuntimeCluster;

async fn steps(names: &[&str]) -> (Env, Vec<RuntimeCluster>) {
    let mut env = Env::new();
    let rollouts = &mut env.settings.rollouts;
    rollouts.configuration = one_by_one(&rollouts.configuration, 0);
    let clusters = env.converge(names).await;
    (env, clusters)
}

fn is_stopped(env: &Env) -> bool {
    stopped(env, CONFIGURATION_LANE) == "FailureLimitExceeded"
}

#[tokio::test]
async fn a_step_that_fails_stops_the_rest_and_is_reported() {
    let (mut env, clusters) = steps(&["a", "b", "c"]).await;
    let refusal = clusters[0].refuse(INSTALL[4], 422);
    env.content.registry("two.example");
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    for name in ["b", "c"] {
        let wanted = "False RolloutPending";
        env.until_condition(name, "ConfigurationSynchronized", wanted)
            .await;
    }
    env.until("stopped", is_stopped).await;
    assert_eq!((clusters[1].take(), clusters[2].take()), (vec![], vec![]));
    // The failed runtime recovers, and the other runtimes follow one after the other.
    refusal.stop();
    for name in ["a", "b", "c"] {
        env.until_ready(name).await;
    }
    assert_eq!(
        (clusters[1].take(), clusters[2].take()),
        (vec![INSTALL[4].to_owned()], vec![INSTALL[4].to_owned()])
    );
    env.until("completed", |it| is_completed(it, CONFIGURATION_LANE))
        .await;
}

#[tokio::test]
async fn an_unreachable_or_paused_runtime_delays_no_step() {
    let (mut env, clusters) = steps(&["a", "b", "c"]).await;
    let outage = clusters[0].outage(503);
    env.kcp.merge(
        "runtimebootstrappers",
        "b",
        &json!({"spec": {"paused": true}}),
    );
    env.settle().await;
    env.content.registry("two.example");
    env.publish();
    env.until("written", |_| !clusters[2].writes().is_empty())
        .await;
    env.until_condition("b", "ConfigurationSynchronized", "False Paused")
        .await;
    assert_eq!(clusters[1].take(), [""; 0]);
    // Both runtimes receive the change later.
    outage.stop();
    env.kcp.merge(
        "runtimebootstrappers",
        "b",
        &json!({"spec": {"paused": false}}),
    );
    for (name, cluster) in ["a", "b"].iter().zip(&clusters) {
        env.until("written", |_| !cluster.writes().is_empty()).await;
        env.until_ready(name).await;
    }
}

fn has_begun(env: &Env) -> bool {
    env.metric("active_workers", 1)
}

#[tokio::test]
async fn a_pass_that_a_new_version_overtakes_starts_it_on_no_runtime() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    pause(&env, CONFIGURATION_LANE).await;
    let hold = clusters[0].fault("*").hold();
    env.touch("a");
    env.until("the pass has begun", has_begun).await;
    let before = progress(&env, CONFIGURATION_LANE)["revision"].clone();
    env.content.registry("two.example");
    env.publish();
    env.until("another rollout", |it| {
        progress(it, CONFIGURATION_LANE)["revision"] != before
    })
    .await;
    drop(hold);
    env.until_condition("a", "ConfigurationSynchronized", "False RolloutPending")
        .await;
    env.settle().await;
    assert_eq!(clusters[0].take(), [""; 0]);
}

async fn until_both_wait(env: &Env) {
    for name in ["a", "b"] {
        let wanted = "False RolloutPending";
        env.until_condition(name, "ConfigurationSynchronized", wanted)
            .await;
    }
}

#[tokio::test]
async fn an_operator_pauses_the_rollout_and_lets_it_go_on() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    pause(&env, CONFIGURATION_LANE).await;
    env.content.registry("two.example");
    env.publish();
    until_both_wait(&env).await;
    assert_eq!((clusters[0].take(), clusters[1].take()), (vec![], vec![]));
    set_paused(&env, CONFIGURATION_LANE, false);
    for (name, cluster) in ["a", "b"].iter().zip(&clusters) {
        env.until_ready(name).await;
        assert_eq!(cluster.take(), [INSTALL[4]]);
    }
}

/// The next leader, which may be a newer version, starts no reconcile before it has read whether the rollout is paused.
#[tokio::test]
async fn a_pause_holds_over_a_restart_however_late_it_is_heard_of() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    pause(&env, CONFIGURATION_LANE).await;
    env.stop().await;
    env.content.registry("two.example");
    env.publish();
    let refusal = env
        .kcp
        .fault("list runtimebootstrapperrollouts")
        .status(500);
    env.start();
    env.until("refused", |_| refusal.hits() > 0).await;
    env.settle().await;
    assert_eq!((clusters[0].take(), clusters[1].take()), (vec![], vec![]));
    assert_eq!(env.passes(), 0);
    assert!(!env.readiness.is_ready());
    refusal.stop();
    until_both_wait(&env).await;
    assert_eq!((clusters[0].take(), clusters[1].take()), (vec![], vec![]));
    assert!(env.readiness.is_ready());
}

/// One step for all runtimes. The next leader reads the failures from the statuses.
#[tokio::test]
async fn a_rollout_that_its_failure_limit_stopped_stays_stopped_under_the_next_leader() {
    let mut env = Env::new();
    env.settings.max_concurrent_reconciles = 1;
    // A slow reconcile would allow another one.
    env.settings.slow_after = Duration::from_hours(1);
    env.settings.rollouts.configuration.max_failures = Some(MaxFailures::Count(0));
    let names = ["a", "b", "c"];
    let clusters = env.converge(&names).await;
    let refusals = clusters.iter().map(|it| it.refuse(INSTALL[4], 422));
    let refusals: Vec<FaultHandle> = refusals.collect();
    env.content.registry("two.example");
    env.publish();
    env.until("stopped", is_stopped).await;
    let tried = || {
        let tried = |it: &&RuntimeCluster| !it.writes().is_empty();
        clusters.iter().filter(tried).count()
    };
    assert_eq!(tried(), 1);
    env.stop().await;
    // All reconciles may start at once.
    env.settings.max_concurrent_reconciles = 3;
    env.start();
    env.until("passes", |it| it.passes() > 3 && tried() > 0)
        .await;
    env.more_passes(3).await;
    assert_eq!(tried(), 1);
    assert!(is_stopped(&env));
    // The failure is corrected, and the other runtimes follow.
    refusals.iter().for_each(FaultHandle::stop);
    for (name, cluster) in names.iter().zip(&clusters) {
        let written = |_: &Env| cluster.answered(INSTALL[4]);
        env.until("written", written).await;
        env.until_ready(name).await;
    }
}
