//! Tests of sources that are deleted on the control plane, and of the grace period until the deletion is rolled out.

use std::time::Duration;

use serde_json::{Value, json};

use super::env::*;
use crate::runtime_cluster::RuntimeCluster;

const RECORD: &str = "rt-bootstrapper-direct-state";
const SINCE: &str = "lastSeen.pullSecret.missing-since";
const PENDING: &str = "False DeletionPending";

/// Returns one runtime that has converged. `grace` is the grace period of a missing source.
async fn waiting_for(grace: Duration) -> (Env, RuntimeCluster) {
    let mut env = Env::new();
    env.settings.deletion_grace = grace;
    env.patience = Duration::from_mins(1);
    let cluster = env.converge(&["a"]).await.remove(0);
    (env, cluster)
}

/// Deletes the pull Secret on the control plane, and waits until the deletion is pending.
async fn delete_pull_secret(env: &mut Env) {
    env.content.password = None;
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", PENDING)
        .await;
}

fn is_there(cluster: &RuntimeCluster) -> bool {
    cluster.kyma("secrets/registry-credentials").is_some()
}

fn message(env: &Env) -> String {
    let conditions = env.status("a")["conditions"].clone();
    let all = conditions.as_array().unwrap();
    let found = all
        .iter()
        .find(|it| it["type"] == "ConfigurationSynchronized");
    found.unwrap()["message"].as_str().unwrap().to_owned()
}

fn remembered(env: &Env, key: &str) -> Value {
    env.kcp.object("configmaps", RECORD).unwrap()["data"][key].clone()
}

fn is_counted(env: &Env, pending: u32) -> bool {
    let series = "source_deletion_pending{source=\"pullSecret\",controller=\"direct\"}";
    env.metric(series, pending)
}

#[tokio::test]
async fn deleted_source_is_kept_on_runtimes_until_the_grace_period_ends() {
    let (mut env, cluster) = waiting_for(Duration::from_secs(15)).await;
    delete_pull_secret(&mut env).await;
    assert!(is_there(&cluster));
    assert_eq!(cluster.take(), [""; 0]);
    env.until("removed", |_| !is_there(&cluster)).await;
    env.until("not pending", |it| is_counted(it, 0)).await;
    assert_eq!(remembered(&env, "lastSeen.pullSecret"), "deleted");
    assert_eq!(remembered(&env, SINCE), Value::Null);
}

#[tokio::test]
async fn pending_deletion_says_what_is_deleted_and_when() {
    let (mut env, _cluster) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut env).await;
    let since: jiff::Timestamp = remembered(&env, SINCE).as_str().unwrap().parse().unwrap();
    let at = since.checked_add(Duration::from_hours(1)).unwrap();
    let said = message(&env);
    assert!(
        said.starts_with("Secret kcp-system/pull was deleted"),
        "{said}"
    );
    let at = at.strftime("%FT%TZ").to_string();
    assert!(said.contains(&at), "{said}: {at}");
    assert_eq!(
        env.condition("a", "Ready"),
        PENDING,
        "an alert on Ready sees it"
    );
    assert!(is_counted(&env, 1));
    env.until("an Event", |it| it.kcp.events_of("DeletionPending") == 1)
        .await;
    let mut events = env.kcp.requests_of("create events");
    events.retain(|it| it.body["reason"] == "DeletionPending");
    let event = events.remove(0).body;
    assert_eq!(event["regarding"]["name"], RECORD);
    let note = event["note"].as_str().unwrap();
    assert!(
        note.contains("Secret kcp-system/pull") && note.contains(&at),
        "{note}"
    );
}

#[tokio::test]
async fn source_that_is_created_again_in_time_is_no_change() {
    let (mut env, cluster) = waiting_for(Duration::from_hours(1)).await;
    let before = env.status("a")["configuration"].clone();
    delete_pull_secret(&mut env).await;
    env.content.password = Some("one");
    env.publish();
    env.until_ready("a").await;
    env.settle().await;
    assert_eq!(cluster.take(), [""; 0]);
    assert_eq!(env.status("a")["configuration"], before);
    assert_eq!(remembered(&env, SINCE), Value::Null);
    assert!(is_counted(&env, 0));
}

#[tokio::test]
async fn source_that_is_created_again_with_other_content_is_an_update() {
    let (mut env, cluster) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut env).await;
    env.content.password = Some("two");
    env.publish();
    env.until_ready("a").await;
    assert_eq!(cluster.take(), [INSTALL[2], INSTALL[4]]);
}

/// The next leader continues the grace period of the previous leader. It does not restart the period, and it does not
/// delete a copy before the end of the period. It also observes the absence for one minute itself, even if the period
/// has ended.
#[tokio::test]
async fn grace_period_goes_on_under_the_next_leader() {
    let (mut env, cluster) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut env).await;
    let since = remembered(&env, SINCE);
    env.stop().await;
    env.start();
    env.pass("a").await;
    assert_eq!(remembered(&env, SINCE), since);
    assert!(is_there(&cluster));
    env.stop().await;
    let passed = jiff::Timestamp::now()
        .checked_sub(Duration::from_mins(61))
        .unwrap();
    let data = json!({"data": {SINCE: passed.to_string()}});
    env.kcp.merge("configmaps", RECORD, &data);
    let restarted = jiff::Timestamp::now();
    env.start();
    env.until("the deletion is announced", |it| {
        let text = message(it);
        let mut words = text.split(|it: char| it.is_whitespace() || it == ',' || it == ';');
        let at = words.find_map(|it| it.parse::<jiff::Timestamp>().ok());
        at.is_some_and(|at| (55..90).contains(&at.duration_since(restarted).as_secs()))
    })
    .await;
    assert!(is_there(&cluster));
}

/// A missing source does not delay the other sources on runtimes, including a runtime that is added later.
#[tokio::test]
async fn other_sources_are_synchronized_while_a_deletion_is_pending() {
    let (mut env, cluster) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut env).await;
    env.content.registry("two.example");
    env.publish();
    env.until("the document", |_| {
        let map = cluster.kyma("configmaps/rt-bootstrapper-config").unwrap();
        map.to_string().contains("two.example")
    })
    .await;
    let other = env.add("b").await;
    env.until_condition("b", "Installed", "True Installed")
        .await;
    let map = other.kyma("configmaps/rt-bootstrapper-config").unwrap();
    let requires = "rt-bootstrapper.kyma-project.io/requires-pull-secret";
    assert_eq!(map["metadata"]["annotations"][requires], Value::Null);
    assert!(!is_there(&other));
}
