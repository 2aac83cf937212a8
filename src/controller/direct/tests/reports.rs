//! Tests of Events, of statuses that another client edits, and of resources that cannot be read.

use serde_json::{Value, json};
use testkit::logs::Logs;
use tracing::Level;

use super::env::*;
use super::gates::{
    CONFIGURATION_LANE, NEXT_IMAGE, WEBHOOK_LANE, is_completed, pause, progress, set_paused,
};

/// Returns the reasons and notes of the Events about a runtime.
fn notes(env: &Env, name: &str) -> Vec<(String, String)> {
    let events = env.kcp.requests_of("create events").into_iter();
    let of_runtime = events.filter(|it| it.body["regarding"]["name"] == name);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_runtime
        .map(|it| (text(&it.body["reason"]), text(&it.body["note"])))
        .collect()
}

#[tokio::test]
async fn a_change_of_ready_is_an_event_with_runtime_and_revisions_and_one_a_minute_at_most() {
    let (env, clusters) = Env::converged(&["a", "b"]).await;
    let all = notes(&env, "a");
    assert_eq!(all.len(), 1, "{all:?}");
    let (reason, note) = &all[0];
    assert_eq!(reason, "Ready");
    let revision = env.status("a")["configuration"]["revision"].clone();
    let revision = revision.as_str().unwrap();
    let expected = format!("runtime ID id-a; configuration {revision}; webhook 0.1.0");
    assert_eq!(*note, expected);
    let outage = clusters[0].outage(503);
    env.touch("a");
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    outage.stop();
    env.until_ready("a").await;
    env.settle().await;
    assert_eq!(notes(&env, "a").len(), 1, "within the same minute");
    assert_eq!(notes(&env, "b").len(), 1);
}

#[tokio::test]
async fn a_status_that_another_client_edits_is_written_again() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let written = env.status("a");
    let edit = json!({"status": {"runtimeID": "another", "webhook": {"readyReplicas": 7}}});
    env.kcp.merge("runtimebootstrappers", "a", &edit);
    env.pass("a").await;
    env.until("written again", |it| it.status("a") == written)
        .await;
    drop(env.kcp.take_requests());
    env.pass("a").await;
    // Another task writes the progress of rollouts once a second.
    let mut writes = env.kcp.writes();
    writes.retain(|it| !it.contains("runtimebootstrapperrollouts"));
    assert_eq!(writes, [""; 0], "once");
}

#[tokio::test]
async fn a_condition_of_another_controller_is_no_reason_to_write_the_status() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let mut conditions = env.status("a")["conditions"].clone();
    let mut other = conditions[0].clone();
    other["type"] = json!("Backup");
    conditions.as_array_mut().unwrap().push(other);
    let edit = json!({"status": {"conditions": conditions}});
    env.kcp.merge("runtimebootstrappers", "a", &edit);
    drop(env.kcp.take_requests());
    env.pass("a").await;
    assert_eq!(env.kcp.count("apply runtimebootstrappers/status"), 0);
}

#[tokio::test]
async fn a_status_that_the_control_plane_rejects_is_sent_again_by_the_next_reconcile() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let status = "apply runtimebootstrappers/status";
    let refusal = env.kcp.fault(status).times(1).status(422);
    let _outage = clusters[0].outage(503);
    env.touch("a");
    env.until("refused", |_| refusal.hits() == 1).await;
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
}

#[tokio::test]
async fn what_is_written_is_logged_without_its_content() {
    let (mut env, _clusters) = Env::converged(&["a"]).await;
    let logs = Logs::of(Level::INFO);
    env.content.password = Some("hunter2");
    env.publish();
    let written = |line: &String| {
        line.contains("objects on runtime written") && line.contains("registry-credentials")
    };
    env.until("logged", |_| logs.lines().iter().any(written))
        .await;
    assert!(!logs.lines().concat().contains("hunter2"));
}

/// Waits for a log line with this message and these fields.
async fn until_logged(env: &Env, logs: &Logs, message: &str, fields: &[String]) {
    let is_line = |line: &String| {
        let (_, said) = line.split_once(message).unwrap_or_default();
        !said.is_empty() && fields.iter().all(|it| said.contains(&**it))
    };
    env.until(&format!("{message} {fields:?}"), |_| {
        logs.lines().iter().any(is_line)
    })
    .await;
}

#[tokio::test]
async fn a_change_of_ready_is_logged_with_runtime_and_revision() {
    const MESSAGE: &str = "condition Ready changed";
    let logs = Logs::of(Level::INFO);
    let (env, clusters) = Env::converged(&["a"]).await;
    let revision = env.status("a")["configuration"]["revision"].clone();
    let common = |ready: &str| {
        [
            r#"runtime="a""#.to_owned(),
            format!("revision={revision}"),
            r#"version="0.1.0""#.to_owned(),
            format!("ready={ready}"),
        ]
    };
    let reason = |it: &str| format!(r#"reason="{it}""#);
    let ready = [&common("True")[..], &[reason("Ready")]].concat();
    until_logged(&env, &logs, MESSAGE, &ready).await;
    let lines = || {
        logs.lines()
            .iter()
            .filter(|it| it.contains(MESSAGE))
            .count()
    };
    let before = lines();
    env.pass("a").await;
    assert_eq!(lines(), before, "nothing changed");
    let _outage = clusters[0].outage(503);
    env.touch("a");
    // The message of the condition is a field of its own: in JSON it would replace the message of the line.
    let message = r#"condition_message="Reachable: API server returned 503""#.to_owned();
    let lost = [&common("False")[..], &[reason("APIServerError"), message]].concat();
    until_logged(&env, &logs, MESSAGE, &lost).await;
    assert_eq!(lines(), before + 1);
}

#[tokio::test]
async fn a_change_of_the_phase_of_a_rollout_is_logged_with_its_revision() {
    const MESSAGE: &str = "rollout changed";
    let logs = Logs::of(Level::INFO);
    let (mut env, _clusters) = Env::converged(&["a"]).await;
    let revision = |env: &Env| progress(env, CONFIGURATION_LANE)["revision"].clone();
    env.until("completed", |it| is_completed(it, CONFIGURATION_LANE))
        .await;
    let first = revision(&env);
    pause(&env, CONFIGURATION_LANE).await;
    env.content.registry("two.example");
    env.publish();
    env.until("another rollout", |it| revision(it) != first)
        .await;
    let fields = |stopped: &str, counts: &str| {
        let rollout = format!(
            r#"rollout="{CONFIGURATION_LANE}" revision={}"#,
            revision(&env)
        );
        let step = r#"step="1/1""#.to_owned();
        [
            rollout,
            step,
            format!("stopped={stopped}"),
            counts.to_owned(),
        ]
    };
    let paused = fields("Some(Paused)", "done=0 failed=0 waiting=1");
    until_logged(&env, &logs, MESSAGE, &paused).await;
    set_paused(&env, CONFIGURATION_LANE, false);
    let completed = fields("None", "done=1 failed=0 waiting=0");
    until_logged(&env, &logs, MESSAGE, &completed).await;
}

/// This also occurs after a downgrade. The other lane continues.
#[tokio::test]
async fn a_rollout_that_cannot_be_read_is_paused_and_stops_nothing_else() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    env.until("completed", |it| is_completed(it, WEBHOOK_LANE))
        .await;
    env.stop().await;
    let spec = |paused: &Value| json!({"spec": {"paused": paused}});
    let rollouts = "runtimebootstrapperrollouts";
    env.kcp
        .merge(rollouts, WEBHOOK_LANE, &spec(&json!("perhaps")));
    NEXT_IMAGE.clone_into(&mut env.image);
    env.content.registry("two.example");
    env.publish();
    env.start();
    env.until("written", |_| clusters[0].take() == [INSTALL[4]])
        .await;
    env.settle().await;
    assert_eq!(clusters[0].take(), [""; 0]);
    env.kcp.merge(rollouts, WEBHOOK_LANE, &spec(&json!(false)));
    env.until("upgraded", |_| {
        clusters[0].take().contains(&INSTALL[5].to_owned())
    })
    .await;
}

/// This occurs after a downgrade: the resource contains a value that this version does not support.
#[tokio::test]
async fn a_resource_that_cannot_be_read_stops_no_other_runtime() {
    let mut env = Env::new();
    let a = env.add("a").await;
    env.kcp
        .put(bootstrapper("a", &json!({"deletionPolicy": "Archive"})));
    let _b = env.converge(&["b"]).await;
    assert!(env.metric("unreadable_resources", 1));
    assert_eq!(a.requests().len(), 0);
    // The resource can become unreadable while the controller runs, and readable again.
    let policy = |policy: &str| json!({"spec": {"deletionPolicy": policy}});
    env.kcp
        .merge("runtimebootstrappers", "a", &policy("Orphan"));
    env.until_ready("a").await;
    assert!(env.metric("unreadable_resources", 0));
    env.kcp
        .merge("runtimebootstrappers", "a", &policy("Archive"));
    env.until("noted", |it| it.metric("unreadable_resources", 1))
        .await;
    a.take();
    env.content.registry("two.example");
    env.publish();
    env.until("the other runtime", |it| {
        is_completed(it, CONFIGURATION_LANE)
            && progress(it, CONFIGURATION_LANE)["runtimes"]["total"] == 1
    })
    .await;
    env.settle().await;
    assert_eq!(a.requests().len(), 0, "what it asks for is unknown");
}

#[tokio::test]
async fn a_deleted_rollout_is_created_again() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    env.until("completed", |it| is_completed(it, CONFIGURATION_LANE))
        .await;
    let before = progress(&env, CONFIGURATION_LANE);
    env.kcp
        .delete("runtimebootstrapperrollouts", CONFIGURATION_LANE);
    env.until("created again", |it| {
        progress(it, CONFIGURATION_LANE)["completedRevision"] == before["completedRevision"]
    })
    .await;
}
