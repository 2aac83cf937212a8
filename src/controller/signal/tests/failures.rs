//! Tests of faults, which do not delay other Runtimes.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::FaultBuilder;
use tokio::time::{Instant, sleep};

use super::env::*;

/// Returns a state ConfigMap.
fn state(labels: &Value, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STATE, "labels": labels}, "data": data,
    })
}

/// Returns a builder of a fault of the writes of a Runtime.
fn refused(env: &Env, name: &str) -> FaultBuilder {
    env.kcp.fault(&format!("patch runtimes {NAMESPACE}/{name}"))
}

#[rstest]
#[case::forbidden(403, "forbidden")]
#[case::conflict(409, "conflict")]
#[case::invalid(422, "refused")]
#[case::busy(429, "throttled")]
#[case::broken(500, "server")]
#[case::away(503, "server")]
#[tokio::test(start_paused = true)]
async fn runtime_that_fails_delays_no_other_and_is_tried_again_at_growing_intervals(
    #[case] code: u16,
    #[case] reason: &str,
) {
    let env = Env::initialized(&["a", "b", "c"]).await;
    refused(&env, "a").times(6).status(code);
    let began = Instant::now();
    env.change("two.example");
    env.until("the others", |it| it.keys("b").1 && it.keys("c").1)
        .await;
    assert!(began.elapsed() < Duration::from_secs(1));
    env.until("the failing one", |it| it.keys("a").1).await;
    env.quiet().await;
    let tries = env.kcp.requests_of("patch runtimes kcp-system/a");
    assert_eq!(tries.len(), 7);
    for (attempt, pair) in tries.windows(2).enumerate() {
        let longest = Duration::from_secs(1 << attempt);
        let distance = pair[1].begin - pair[0].begin;
        assert!(
            distance >= longest / 2 && distance <= longest + Duration::from_millis(100),
            "{attempt}: {distance:?}"
        );
    }
    assert!(
        env.metric(
            &format!("signal_write_errors_total{{reason=\"{reason}\"}}"),
            6
        ),
        "{:?}",
        env.samples()
    );
    assert_eq!(env.signalled().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn the_api_server_says_how_long_to_wait() {
    let env = Env::initialized(&["a"]).await;
    refused(&env, "a").times(1).status_after(503, 60);
    env.change("two.example");
    env.until("tried", |it| it.signals().len() == 1).await;
    let began = Instant::now();
    env.until("tried again", |it| it.signals().len() == 2).await;
    let waited = began.elapsed();
    assert!(
        waited >= Duration::from_mins(1) && waited < Duration::from_secs(62),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_an_admission_plugin_takes_away_is_not_taken_for_set() {
    let env = Env::initialized(&["a"]).await;
    env.kcp.behave(|it| it.stripped = Some(KEY));
    env.change("two.example");
    sleep(Duration::from_secs(20)).await;
    assert!(env.signals().len() > 1);
    assert!(
        env.samples()
            .count("signal_write_errors_total{reason=\"ineffective\"}")
            > 0
    );
    assert_eq!(env.counts(), (1, 0));
    env.kcp.behave(|it| it.stripped = None);
    env.until("signalled", |it| it.keys("a").1).await;
}

/// The revision of the signal is stored without its key, and it cannot be marked as stale at once.
#[tokio::test(start_paused = true)]
async fn a_signal_that_is_taken_away_is_repeated_also_if_the_next_write_fails() {
    let env = Env::initialized(&["a"]).await;
    env.kcp.behave(|it| it.stripped = Some(KEY));
    env.change("two.example");
    env.until("the next write", |it| it.signals().len() == 2)
        .await;
    let fault = refused(&env, "a").times(3).status(500);
    env.until("failed", |_| fault.hits() == 3).await;
    env.kcp.behave(|it| it.stripped = None);
    env.until("signalled", |it| it.keys("a").1).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_change_by_another_client_is_not_lost() {
    let env = Env::initialized(&["a"]).await;
    let mut theirs = runtime("a");
    theirs["metadata"]["annotations"]["theirs"] = json!("kept");
    theirs["spec"]["shoot"]["name"] = json!("renamed");
    // The other client writes between the read and the write of the controller.
    let kcp = env.kcp.clone();
    refused(&env, "a")
        .times(1)
        .before(move |_| kcp.put(theirs.clone()));
    refused(&env, "a").times(1).status(409);
    env.change("two.example");
    env.until("signalled", |it| it.keys("a").1).await;
    let runtime = env.kcp.object("runtimes", "a").unwrap();
    assert_eq!(runtime["metadata"]["annotations"]["theirs"], "kept");
    assert_eq!(runtime["metadata"]["annotations"]["note"], "kept");
    assert_eq!(runtime["spec"]["shoot"]["name"], "renamed");
    assert_eq!(runtime["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_costs_no_second_signal() {
    let env = Env::initialized(&["a"]).await;
    refused(&env, "a").times(1).lose_answers();
    env.change("two.example");
    env.until("stands", |it| it.keys("a").1).await;
    env.quiet().await;
    assert!(env.metric("signal_write_errors_total{reason=\"transport\"}", 1));
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    assert_eq!(env.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn partial_failure_and_a_crash_are_followed_by_the_missing_signals_alone() {
    let mut env = Env::initialized(&["a", "b", "c"]).await;
    let fault = refused(&env, "b").status(500);
    env.change("two.example");
    env.until("the others", |it| it.keys("a").1 && it.keys("c").1)
        .await;
    env.kill().await;
    env.take("a", "annotations");
    fault.stop();
    env.forget();
    env.start().await;
    env.until_signalled(&["b"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["b"]);
    assert_eq!(env.counts(), (0, 2));
}

#[rstest]
#[case::foreign(state(&json!({}), &json!({"theirs": "kept"})), "foreign")]
#[case::garbage(
    state(
        &json!({"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"}),
        &json!({"baseline": "0".repeat(64), "revision": "0".repeat(64), "lastSeen.configuration": "garbage"}),
    ),
    "garbage"
)]
#[case::baseline(
    state(
        &json!({"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"}),
        &json!({"baseline": "garbage", "revision": "0".repeat(64)}),
    ),
    "garbage"
)]
#[case::no_revision(
    state(
        &json!({"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"}),
        &json!({"baseline": "0".repeat(64)}),
    ),
    "garbage"
)]
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_used_signals_no_runtime_and_loses_nothing(
    #[case] unusable: Value,
    #[case] reason: &str,
) {
    let mut env = Env::initialized(&["a"]).await;
    env.stop().await;
    let good = env.kcp.object("configmaps", STATE).unwrap();
    env.kcp.put(unusable.clone());
    env.forget();
    env.change("two.example");
    env.start().await;
    env.quiet().await;
    assert!(env.writes().is_empty());
    assert_eq!(
        env.kcp.object("configmaps", STATE).unwrap()["data"],
        unusable["data"]
    );
    let (ready, report) = env.readiness.report();
    assert!(
        !ready && report.contains("signal: not ready: signals suspended: "),
        "{report}"
    );
    assert!(env.metric(&format!("signal_state_invalid{{reason=\"{reason}\"}}"), 1));
    let events = env.kcp.events();
    assert_eq!(
        events.iter().filter(|it| *it == "InvalidState").count(),
        1,
        "{events:?}"
    );
    // An operator restores the state: the change of the source is still detected.
    env.kcp
        .put(state(&good["metadata"]["labels"], &good["data"]));
    env.until_signalled(&["a"]).await;
    env.until("ready", |it| it.readiness.is_ready()).await;
    assert_eq!(env.samples().matching("signal_state_invalid").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_runtime_is_signalled_while_the_record_cannot_be_stored() {
    let env = Env::initialized(&["a"]).await;
    let writes = env.kcp.fault("update configmaps");
    writes.times(8).status(500);
    env.change("two.example");
    sleep(Duration::from_secs(30)).await;
    assert!(env.signals().is_empty());
    assert!(!env.readiness.is_ready());
    env.until_signalled(&["a"]).await;
    env.until("ready", |it| it.readiness.is_ready()).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_signalled_while_runtimes_cannot_be_listed() {
    let mut env = Env::initialized(&["a"]).await;
    env.kill().await;
    let forbidden = env.kcp.forbid_reads("runtimes");
    env.change("two.example");
    env.start().await;
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert!(!env.readiness.is_ready());
    forbidden.stop();
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_deleted_under_a_running_leader_is_written_anew() {
    let env = Env::initialized(&["a"]).await;
    env.kcp.delete("configmaps", STATE);
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.quiet().await;
    assert_eq!(
        env.state()["revision"],
        env.signaled_revision("a").unwrap().as_str()
    );
    assert!(env.readiness.is_ready());
}

/// The state is read again, and the write in flight is for an earlier revision.
#[tokio::test(start_paused = true)]
async fn change_during_a_write_and_a_conflict_of_the_state_is_signalled_afterwards() {
    let env = Env::initialized(&["a"]).await;
    let hold = refused(&env, "a").hold();
    env.change("two.example");
    env.until("sent", |it| !it.signals().is_empty()).await;
    let theirs = json!({"metadata": {"annotations": {"theirs": "kept"}}});
    env.kcp.merge("configmaps", STATE, &theirs);
    env.change("three.example");
    sleep(Duration::from_secs(10)).await;
    drop(hold);
    env.until("stands", |it| it.keys("a").1).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a", "a"]);
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a", "a"]);
    assert_eq!(env.counts(), (0, 0));
}

#[rstest]
#[case::garbage("garbage")]
#[case::another_revision("0000000000000000000000000000000000000000000000000000000000000000")]
#[case::empty("")]
#[tokio::test(start_paused = true)]
async fn revision_that_another_client_wrote_is_replaced_by_one_signal(#[case] value: &str) {
    let env = Env::initialized(&["a", "b"]).await;
    let edit = json!({"metadata": {"annotations": {REVISION: value}}});
    env.kcp.merge("runtimes", "a", &edit);
    env.until_signalled(&["a"]).await;
    assert_eq!(env.signaled_revision("a"), Some(env.revision()));
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
}
