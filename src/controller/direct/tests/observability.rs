//! Tests of the gauges and Events of rollouts and of the work queue.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use testkit::apiserver::{FaultHandle, Hold, Recorded};

use super::env::*;
use super::gates::{CONFIGURATION_LANE, is_completed, one_by_one, progress, set_paused, stopped};
use crate::runtime_cluster::RuntimeCluster;

const READY: &str = r#"runtimes{type="Ready"}"#;
const AGE: &str = "oldest_unsynchronized_age_seconds";
const STATES: &str = r#"rollout_runtimes{rollout="configuration"}"#;
const STOPPED: &str = "rollout_stopped";

/// Waits until a series has exactly these samples, ignoring samples that are 0.
async fn until_samples(env: &Env, series: &str, wanted: &[&str]) {
    let shown = |env: &Env| -> Vec<String> {
        let samples = env.samples(series).into_iter();
        let samples = samples.filter(|it| it.value > 0.0);
        let mut shown: Vec<String> = samples.map(|it| it.to_string()).collect();
        shown.sort_unstable();
        shown
    };
    let what = format!("{series}: {wanted:?}");
    env.until(&what, |it| shown(it) == wanted).await;
}

fn age(env: &Env) -> f64 {
    env.samples(AGE)[0].value
}

fn pause_runtime(env: &Env, name: &str, paused: bool) {
    let patch = json!({"spec": {"paused": paused}});
    env.kcp.merge("runtimebootstrappers", name, &patch);
}

/// Sets the transition times of a runtime to some hours ago, as another client.
fn backdate(env: &Env, name: &str, hours: i64) {
    let time = Timestamp::now() - SignedDuration::from_hours(hours);
    let time = time.strftime("%FT%TZ").to_string();
    let mut conditions = env.status(name)["conditions"].clone();
    for condition in conditions.as_array_mut().unwrap() {
        condition["lastTransitionTime"] = json!(time);
    }
    let patch = json!({"status": {"conditions": conditions}});
    env.kcp.merge("runtimebootstrappers", name, &patch);
}

#[tokio::test]
async fn gauges_count_runtimes_by_condition_and_show_the_oldest_unsynchronized_age() {
    let mut env = Env::new();
    let clusters = env.converge(&["a", "b"]).await;
    let ready = [r#"{reason="Ready",status="True",type="Ready"} 2"#];
    until_samples(&env, READY, &ready).await;
    assert!(env.metric(AGE, 0));
    let outage = clusters[1].outage(503);
    pause_runtime(&env, "a", true);
    env.settle().await;
    env.content.registry("two.example");
    env.publish();
    let not_ready = [
        r#"{reason="APIServerError",status="False",type="Ready"} 1"#,
        r#"{reason="Paused",status="False",type="Ready"} 1"#,
    ];
    until_samples(&env, READY, &not_ready).await;
    env.until_condition("a", "ConfigurationSynchronized", "False Paused")
        .await;
    let unknown = "Unknown Unreachable";
    env.until_condition("b", "ConfigurationSynchronized", unknown)
        .await;
    env.stop().await;
    assert!(env.samples(READY).is_empty(), "this replica does not lead");
    assert!(env.metric(AGE, 0));
    // The runtime that is paused does not count.
    backdate(&env, "a", 3);
    backdate(&env, "b", 1);
    env.start();
    let hour = 3_600.0..7_200.0;
    env.until("the age of the oldest one", |it| hour.contains(&age(it)))
        .await;
    outage.stop();
    pause_runtime(&env, "a", false);
    until_samples(&env, READY, &ready).await;
    assert!(env.metric(AGE, 0));
}

/// Returns two synchronized runtimes. A change of the configuration is rolled out to one runtime after the other.
async fn one_after_the_other() -> (Env, Vec<RuntimeCluster>) {
    let mut env = Env::new();
    let rollouts = &mut env.settings.rollouts;
    rollouts.configuration = one_by_one(&rollouts.configuration, 0);
    let clusters = env.converge(&["a", "b"]).await;
    env.until("the first rollout is completed", |it| {
        is_completed(it, CONFIGURATION_LANE)
    })
    .await;
    env.settle().await;
    drop(env.kcp.take_requests());
    (env, clusters)
}

/// Makes a change of the configuration fail on the first runtime, which stops the rollout.
async fn fail(env: &mut Env, first: &RuntimeCluster) -> FaultHandle {
    let refusal = first.refuse(INSTALL[4], 422);
    env.content.registry("two.example");
    env.publish();
    env.until("stopped", |it| {
        stopped(it, CONFIGURATION_LANE) == "FailureLimitExceeded"
    })
    .await;
    refusal
}

#[tokio::test]
async fn gauges_show_the_states_of_a_rollout_and_why_it_is_stopped() {
    let (mut env, clusters) = one_after_the_other().await;
    let done = [r#"{rollout="configuration",state="done"} 2"#];
    until_samples(&env, STATES, &done).await;
    until_samples(&env, STOPPED, &[]).await;
    let refusal = fail(&mut env, &clusters[0]).await;
    let failed = [
        r#"{rollout="configuration",state="failed"} 1"#,
        r#"{rollout="configuration",state="waiting"} 1"#,
    ];
    until_samples(&env, STATES, &failed).await;
    let limit = [r#"{reason="FailureLimitExceeded",rollout="configuration"} 1"#];
    until_samples(&env, STOPPED, &limit).await;
    set_paused(&env, CONFIGURATION_LANE, true);
    let paused = [r#"{reason="Paused",rollout="configuration"} 1"#];
    until_samples(&env, STOPPED, &paused).await;
    set_paused(&env, CONFIGURATION_LANE, false);
    refusal.stop();
    until_samples(&env, STATES, &done).await;
    until_samples(&env, STOPPED, &[]).await;
}

/// Returns the Events about the rollout of the configuration in order. `R` replaces its revision.
fn events(env: &Env) -> Vec<String> {
    let status = progress(env, CONFIGURATION_LANE);
    let revision = status["revision"].as_str().unwrap();
    let mut created = env.kcp.requests_of("create events");
    created.retain(|it| it.body["regarding"]["name"] == CONFIGURATION_LANE);
    let shown = |it: &Recorded| {
        let text = |key: &str| it.body[key].as_str().unwrap().to_owned();
        let event = format!("{} {}: {}", text("type"), text("reason"), text("note"));
        event.replace(revision, "R")
    };
    created.iter().map(shown).collect()
}

#[tokio::test]
async fn each_change_of_a_rollout_is_one_event() {
    let (mut env, clusters) = one_after_the_other().await;
    let refusal = fail(&mut env, &clusters[0]).await;
    // The controller retries the failed runtime.
    env.more_passes(3).await;
    refusal.stop();
    env.until("completed", |it| is_completed(it, CONFIGURATION_LANE))
        .await;
    env.settle().await;
    let expected = [
        "Normal RolloutProgressing: step 1/5, revision R: 0 of 2 runtimes are done, 0 failed",
        "Warning RolloutStopped: step 1/5, revision R: 0 of 2 runtimes are done, 1 failed (FailureLimitExceeded)",
        "Normal RolloutProgressing: step 2/5, revision R: 1 of 2 runtimes are done, 0 failed",
        "Normal RolloutCompleted: step 5/5, revision R: 2 of 2 runtimes are done, 0 failed",
    ];
    assert_eq!(events(&env), expected);
}

#[tokio::test]
async fn workqueue_depth_counts_due_reconciles_that_have_not_started() {
    let mut env = Env::new();
    env.settings.max_concurrent_reconciles = 1;
    let names = ["a", "b", "c"];
    let clusters = env.converge(&names).await;
    // All runtimes are due at the resync, and none is due now.
    assert!(env.metric("workqueue_depth", 0));
    let holds: Vec<Hold> = clusters.iter().map(|it| it.fault("*").hold()).collect();
    for name in names {
        env.touch(name);
    }
    // The second reconcile starts when the first one counts as slow, and the third one starts after both.
    env.until("two reconciles run", |it| it.metric("active_workers", 2))
        .await;
    assert!(env.metric("workqueue_depth", 1));
    drop(holds);
    env.until("no reconcile is due", |it| {
        it.metric("workqueue_depth", 0) && it.metric("active_workers", 0)
    })
    .await;
}
