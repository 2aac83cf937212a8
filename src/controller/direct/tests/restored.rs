//! Tests after KCP was restored from a backup: statuses, state and sources are older than what the runtimes have.

use std::time::Duration;

use policy::sync::Lane;
use rstest::rstest;
use serde_json::{Value, json};

use super::env::*;
use super::gates::{
    CONFIGURATION_LANE, NEXT_IMAGE, ROLLOUTS, WEBHOOK_LANE, is_completed, one_by_one, progress,
};
use crate::runtime_cluster::RuntimeCluster;

const NAMES: [&str; 2] = ["a", "b"];

/// Returns the objects that the controller writes on KCP.
fn backup(env: &Env) -> Vec<Value> {
    let mut objects = vec![
        ("configmaps", "rt-bootstrapper-direct-state"),
        (ROLLOUTS, CONFIGURATION_LANE),
        (ROLLOUTS, WEBHOOK_LANE),
    ];
    objects.extend(NAMES.map(|it| ("runtimebootstrappers", it)));
    let stored = objects
        .into_iter()
        .map(|(plural, name)| env.kcp.object(plural, name).unwrap());
    stored.collect()
}

fn revisions(env: &Env) -> [Value; 2] {
    [CONFIGURATION_LANE, WEBHOOK_LANE].map(|lane| progress(env, lane)["revision"].clone())
}

fn are_completed(env: &Env) -> bool {
    let is_completed = |lane| is_completed(env, lane);
    [CONFIGURATION_LANE, WEBHOOK_LANE]
        .into_iter()
        .all(is_completed)
}

/// Waits until both rollouts are completed with these revisions.
async fn until_completed(env: &Env, wanted: impl Fn(&[Value; 2]) -> bool) {
    env.until("both rollouts are completed", |it| {
        wanted(&revisions(it)) && are_completed(it)
    })
    .await;
    for name in NAMES {
        env.until_ready(name).await;
    }
    env.settle().await;
}

/// Returns a controller that was stopped after a change of everything, its runtimes, the objects of KCP from before that change,
/// and the revisions after it.
async fn changed_after_a_backup() -> (Env, Vec<RuntimeCluster>, Vec<Value>, [Value; 2]) {
    let mut env = Env::new();
    // No resync happens by chance while a runtime waits for its step.
    env.settings.resync = Duration::from_hours(1_000);
    for lane in Lane::ALL {
        let settings = env.settings.rollouts.get_mut(lane);
        *settings = one_by_one(settings, 0);
    }
    let clusters = env.converge(&NAMES).await;
    until_completed(&env, |_| true).await;
    let (backup, before) = (backup(&env), revisions(&env));
    env.stop().await;
    NEXT_IMAGE.clone_into(&mut env.image);
    env.content.password = Some("two");
    env.publish();
    env.start();
    let is_new = |it: &[Value; 2]| it[0] != before[0] && it[1] != before[1];
    until_completed(&env, is_new).await;
    env.stop().await;
    for cluster in &clusters {
        cluster.take();
    }
    let after = revisions(&env);
    (env, clusters, backup, after)
}

fn restore(env: &Env, backup: Vec<Value>) {
    for object in backup {
        env.kcp.put(object);
    }
}

#[tokio::test]
async fn older_statuses_and_state_lead_to_no_write_on_a_runtime() {
    let (mut env, clusters, backup, after) = changed_after_a_backup().await;
    restore(&env, backup);
    assert_ne!(revisions(&env), after);
    env.start();
    until_completed(&env, |it| *it == after).await;
    for (name, cluster) in NAMES.iter().zip(&clusters) {
        assert_eq!(cluster.take(), [""; 0], "{name} has everything");
        let uid = format!("cluster-{name}");
        assert_eq!(env.status(name)["clusterUID"], uid.as_str());
    }
}

/// The sources and the flags are older, too, and both are applied again later.
#[tokio::test]
async fn older_sources_are_rolled_out_and_so_are_the_current_ones_after_them() {
    let (mut env, clusters, backup, after) = changed_after_a_backup().await;
    let found = |cluster: &RuntimeCluster| {
        let secret = cluster.kyma("secrets/registry-credentials").unwrap();
        let deployment = cluster.find(DEPLOYMENT).unwrap();
        let pods = &deployment["spec"]["template"]["spec"];
        (
            secret["data"].clone(),
            pods["containers"][0]["image"].clone(),
        )
    };
    let before = found(&clusters[0]);
    restore(&env, backup);
    let older = revisions(&env);
    env.image = "registry.example/webhook:0.1.0".to_owned();
    env.content.password = Some("one");
    env.publish();
    env.start();
    env.until("the older state", |_| {
        clusters.iter().all(|it| {
            let (secret, image) = found(it);
            secret != before.0 && image != before.1
        })
    })
    .await;
    until_completed(&env, |it| *it == older).await;
    env.stop().await;
    NEXT_IMAGE.clone_into(&mut env.image);
    env.content.password = Some("two");
    env.publish();
    env.start();
    until_completed(&env, |it| *it == after).await;
    for cluster in &clusters {
        assert_eq!(found(cluster), before);
    }
}

fn edit(env: &Env, lane: &str, status: &Value) {
    let before = progress(env, lane);
    env.kcp.merge(ROLLOUTS, lane, &json!({"status": status}));
    assert_ne!(progress(env, lane), before);
}

/// Each field from which the next leader would continue.
#[rstest]
#[case::step(json!({"step": "1/9"}))]
#[case::revision(json!({"revision": "0", "completedRevision": "0"}))]
#[case::history(json!({"history": null}))]
#[case::failed(json!({"runtimes": {"failed": 1}, "failedRuntimes": ["a"]}))]
#[case::not_completed(json!({"conditions": null}))]
#[case::all(Value::Null)]
#[tokio::test]
async fn a_status_that_another_client_edits_is_written_again_once(#[case] status: Value) {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let lanes = [CONFIGURATION_LANE, WEBHOOK_LANE];
    env.until("the last statuses", |it| {
        let is_last = |lane| progress(it, lane)["observedGeneration"] == 1;
        are_completed(it) && lanes.into_iter().all(is_last)
    })
    .await;
    let before = lanes.map(|it| progress(&env, it));
    drop(env.kcp.take_requests());
    // The second status is written again after the pause between two writes, in which the first one would be written twice.
    for lane in lanes {
        edit(&env, lane, &status);
        env.until("written again", |it| {
            lanes.map(|lane| progress(it, lane)) == before
        })
        .await;
    }
    let writes = env.kcp.writes_of(ROLLOUTS);
    let written: Vec<&str> = writes.iter().map(|it| it.asked.name.as_str()).collect();
    assert_eq!(written, lanes);
}
