//! Faults of runtimes, of the control plane, and of the controller itself.

use std::time::Duration;

use rstest::rstest;
use testkit::apiserver::Hold;
use testkit::logs::Logs;
use tokio::time::Instant;
use tracing::Level;

use super::env::*;
use crate::runtime_cluster::RESET;

#[tokio::test]
async fn unreachable_runtime_delays_no_other_and_is_asked_at_growing_intervals() {
    let mut env = Env::new();
    env.settings.max_concurrent_reconciles = 1;
    let dead = env.add("a").await;
    dead.outage(503);
    let clusters = env.add_all(&["b", "c"]).await;
    env.start();
    for name in ["b", "c"] {
        env.until_ready(name).await;
    }
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    dead.take();
    // A reconcile sends several requests at once, so only the longest pause shows the interval between reconciles.
    let faults = || -> Vec<Instant> { dead.requests().iter().map(|it| it.begin).collect() };
    let span = |all: &[Instant]| {
        all.last()
            .map_or(Duration::ZERO, |it| it.duration_since(all[0]))
    };
    env.until("asked", |_| span(&faults()) > Duration::from_secs(1))
        .await;
    let silences = faults();
    let silences = silences.windows(2).map(|it| it[1].duration_since(it[0]));
    let longest = silences.max().unwrap();
    assert!(longest >= Duration::from_millis(190), "{longest:?}");
    let writes = env
        .kcp
        .count("apply runtimebootstrappers/status kcp-system/a");
    assert!(
        writes <= 2,
        "the same fault is not reported again: {writes}"
    );
    drop(clusters);
}

#[tokio::test]
async fn runtime_that_waits_for_a_permit_is_connected_and_asked_for_nothing() {
    let mut env = Env::new();
    env.settings.max_connections = 1;
    env.settings.max_handshakes = 2;
    // While a runtime is slow, another one gets a permit.
    env.settings.slow_after = Duration::from_hours(1);
    let clusters = env.add_all(&["a", "b", "c", "d"]).await;
    let holds: Vec<Hold> = clusters.iter().map(|it| it.fault("*").hold()).collect();
    env.start();
    let connected = || clusters.iter().filter(|it| it.open() > 0).count();
    env.until("three are connected", |_| connected() == 3).await;
    let asked = || holds.iter().filter(|it| it.hits() > 0).count();
    env.until("one is asked", |_| asked() > 0).await;
    assert_eq!(asked(), 1);
    assert_eq!(connected(), 3);
    drop(holds);
    for name in ["a", "b", "c", "d"] {
        env.until_ready(name).await;
    }
}

#[tokio::test]
async fn retry_after_is_honoured_whatever_changes() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let outage = clusters[0].fault("*").status_after(429, 1);
    env.content.registry("two.example");
    env.publish();
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    let asked = clusters[0].requests().last().unwrap().begin;
    outage.stop();
    clusters[0].take();
    env.content.registry("three.example");
    env.publish();
    env.touch("a");
    env.until("asked again", |_| !clusters[0].tokens().is_empty())
        .await;
    assert!(
        asked.elapsed() >= Duration::from_millis(990),
        "{:?}",
        asked.elapsed()
    );
    env.until_ready("a").await;
}

#[rstest]
#[case::error(500)]
#[case::conflict(409)]
#[case::reset(RESET)]
#[tokio::test]
async fn failed_write_is_followed_by_the_missing_writes_alone(#[case] status: u16) {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    match status {
        RESET => clusters[0].fault(INSTALL[4]).times(1).reset(),
        status => clusters[0].fault(INSTALL[4]).times(1).status(status),
    };
    env.content.password = Some("two");
    env.publish();
    env.until("twice", |_| clusters[0].writes().len() == 3)
        .await;
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[2], INSTALL[4], INSTALL[4]]);
}

#[tokio::test]
async fn a_panic_in_a_pass_does_not_lose_the_runtime() {
    let mut env = Env::new();
    let _cluster = env.add("a").await;
    let reads = env.kcp.fault("get secrets").times(2);
    let panics = reads.before(|_| panic!("a fault of the controller, as the test wants it"));
    env.start();
    env.until_ready("a").await;
    assert_eq!(panics.hits(), 2);
}

#[tokio::test]
async fn a_change_during_a_pass_leads_to_another_one_and_never_to_two_at_once() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let hold = env.kcp.fault("get secrets").hold();
    env.touch("a");
    env.until("begun", |_| hold.hits() == 1).await;
    env.touch("a");
    env.touch("a");
    env.settle().await;
    assert_eq!(hold.hits(), 1);
    let before = env.kcp.count("get secrets");
    drop(hold);
    env.until("again", |it| it.kcp.count("get secrets") == before + 1)
        .await;
    env.settle().await;
    assert_eq!(env.kcp.count("get secrets"), before + 1);
}

#[tokio::test]
async fn a_change_while_an_unreachable_runtime_is_tried_again_reaches_it() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let outage = clusters[0].outage(503);
    env.content.registry("two.example");
    env.publish();
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    // The runtime is reachable again. The reconcile that detects this started for the second document.
    let hold = env.kcp.fault("get secrets").hold();
    env.until("tried again", |_| hold.hits() > 0).await;
    outage.stop();
    env.content.registry("three.example");
    env.publish();
    env.settle().await;
    drop(hold);
    let document = || {
        let map = clusters[0].kyma("configmaps/rt-bootstrapper-config");
        map.unwrap_or_default()["data"].to_string()
    };
    env.until("it has the third", |_| document().contains("three.example"))
        .await;
}

#[tokio::test]
async fn a_lost_lease_stops_the_writes() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let hold = env.kcp.fault("get secrets").hold();
    env.start();
    env.until("begun", |_| hold.hits() == 1).await;
    env.abort().await;
    let writes = env.kcp.writes();
    drop(hold);
    env.settle().await;
    assert_eq!(cluster.tokens(), [""; 0]);
    assert_eq!(env.kcp.writes(), writes);
    env.start();
    env.until_ready("a").await;
}

#[tokio::test]
async fn a_reconcile_that_runs_at_the_end_of_the_process_is_completed() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let [secret, document] = [INSTALL[2], INSTALL[4]];
    let hold = clusters[0].fault(secret).hold();
    env.content.password = Some("two");
    env.content.registry("two.example");
    env.publish();
    env.until("begun", |_| hold.hits() == 1).await;
    // The document is written after the pull Secret.
    tokio::join!(env.stop(), async { drop(hold) });
    assert_eq!(clusters[0].take(), [secret, document]);
}

#[tokio::test]
async fn runtimes_are_reconciled_while_the_state_is_being_saved() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let hold = env.kcp.fault("update configmaps").hold();
    env.content.registry("two.example");
    env.publish();
    env.until("saving", |_| hold.hits() == 1).await;
    clusters[0].drop_object(DOCUMENT);
    env.pass("a").await;
    // The missing object is created again. The change waits for the state.
    assert_eq!(clusters[0].take(), [INSTALL[4]]);
    let document = || clusters[0].find(DOCUMENT).unwrap()["data"].to_string();
    assert!(!document().contains("two.example"));
    drop(hold);
    env.until("written", |_| document().contains("two.example"))
        .await;
}

#[tokio::test]
async fn a_failing_control_plane_is_logged_once_and_not_for_every_runtime() {
    let (env, _clusters) = Env::converged(&["a", "b", "c"]).await;
    let logs = Logs::of(Level::WARN);
    let refusal = env.kcp.fault("get secrets").status(500);
    for name in ["a", "b", "c"] {
        env.touch(name);
    }
    env.until("tried", |_| refusal.hits() >= 6).await;
    let lines = logs.lines().into_iter();
    let failed = lines.filter(|it| it.contains("KCP API request failed"));
    assert_eq!(failed.count(), 1);
}

#[tokio::test]
async fn a_kubeconfig_that_is_listed_late_is_waited_for() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let hold = env.kcp.fault("list secrets").hold();
    env.start();
    env.until("asked for the list", |_| hold.hits() == 1).await;
    env.settle().await;
    assert_eq!(cluster.tokens(), [""; 0]);
    drop(hold);
    env.until_ready("a").await;
}

#[tokio::test]
async fn the_control_plane_may_refuse_statuses_and_finalizers_for_a_while() {
    let mut env = Env::new();
    let _cluster = env.add("a").await;
    let finalizers = env.kcp.fault("patch runtimebootstrappers");
    let finalizers = finalizers.times(2).status(409);
    let statuses = env.kcp.fault("apply runtimebootstrappers/status");
    let statuses = statuses.times(1).status(409);
    env.start();
    env.until_ready("a").await;
    assert_eq!((finalizers.hits(), statuses.hits()), (2, 1));
}

#[tokio::test]
async fn a_conflict_of_the_finalizer_is_looked_at_once_more() {
    let (env, clusters) = Env::converged(&["a"]).await;
    // The running reconcile has an older version of the resource than KCP.
    let finalizers = env.kcp.fault("patch runtimebootstrappers");
    finalizers.times(1).status(409);
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("gone", |it| {
        it.kcp.object("runtimebootstrappers", "a").is_none()
    })
    .await;
    assert!(clusters[0].find(WEBHOOK).is_none());
    let patches = env
        .kcp
        .requests_of("patch runtimebootstrappers kcp-system/a");
    let codes: Vec<Option<u16>> = patches.iter().map(|it| it.status).collect();
    assert_eq!(
        codes,
        [Some(200), Some(409), Some(200)],
        "put there and, at the second try, taken away"
    );
}
