//! What goes wrong, and that it costs nobody else anything.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::kcp::Refusal;
use super::world::*;
use crate::bootstrapper::fake::store::key;

fn refuse(world: &World, name: &str, code: u16, times: usize, retry_after: Option<u32>) {
    let refusal = Refusal {
        code,
        times,
        retry_after,
    };
    world
        .kcp
        .lock()
        .refusals
        .insert(key("runtimes", name), refusal);
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
    let world = World::recorded(&["a", "b", "c"]).await;
    refuse(&world, "a", code, 6, None);
    let began = Instant::now();
    world.change("two.example");
    world
        .until("the others", |it| it.keys("b").1 && it.keys("c").1)
        .await;
    assert!(began.elapsed() < Duration::from_secs(1));
    world.until("the failing one", |it| it.keys("a").1).await;
    world.quiet().await;
    let tries = world.kcp.instants("runtimes/a ");
    assert_eq!(tries.len(), 7);
    for (attempt, pair) in tries.windows(2).enumerate() {
        let longest = Duration::from_secs(1 << attempt);
        let distance = pair[1] - pair[0];
        assert!(
            distance >= longest / 2 && distance <= longest + Duration::from_millis(100),
            "{attempt}: {distance:?}"
        );
    }
    assert!(
        world.metric(&format!(
            "signal_write_errors_total{{reason=\"{reason}\"}} 6"
        )),
        "{}",
        world.metrics_text()
    );
    assert_eq!(world.signalled().len(), 9);
}

#[rstest]
#[case::busy(429)]
#[case::away(503)]
#[tokio::test(start_paused = true)]
async fn the_api_server_says_how_long_to_wait(#[case] code: u16) {
    let world = World::recorded(&["a"]).await;
    refuse(&world, "a", code, 1, Some(60));
    world.change("two.example");
    world.until("tried", |it| it.signals().len() == 1).await;
    let began = Instant::now();
    world
        .until("tried again", |it| it.signals().len() == 2)
        .await;
    let waited = began.elapsed();
    assert!(
        waited >= Duration::from_mins(1) && waited < Duration::from_secs(62),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_an_admission_plugin_takes_away_is_not_taken_for_set() {
    let world = World::recorded(&["a"]).await;
    world.kcp.lock().store.stripped = Some(KEY);
    world.change("two.example");
    sleep(Duration::from_secs(20)).await;
    assert!(world.signals().len() > 1);
    assert!(
        world
            .metrics_text()
            .contains("signal_write_errors_total{reason=\"ineffective\"}")
    );
    assert_eq!(
        world.record(),
        [("signal.pending".to_owned(), "a".to_owned())]
    );
    world.kcp.lock().store.stripped = None;
    world.until("signalled", |it| it.keys("a").1).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_change_by_another_client_is_not_lost() {
    let world = World::recorded(&["a"]).await;
    let mut theirs = runtime("a");
    theirs["metadata"]["annotations"]["theirs"] = json!("kept");
    theirs["spec"]["shoot"]["name"] = json!("renamed");
    world
        .kcp
        .lock()
        .quicker
        .insert(key("runtimes", "a"), theirs);
    refuse(&world, "a", 409, 1, None);
    world.change("two.example");
    world.until("signalled", |it| it.keys("a").1).await;
    let runtime = world.kcp.object("runtimes", "a").unwrap();
    assert_eq!(runtime["metadata"]["annotations"]["theirs"], "kept");
    assert_eq!(runtime["metadata"]["annotations"]["note"], "kept");
    assert_eq!(runtime["spec"]["shoot"]["name"], "renamed");
    assert_eq!(runtime["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_costs_no_second_signal_before_the_first_is_taken() {
    let world = World::recorded(&["a"]).await;
    world.change("two.example");
    world
        .until("the change is recorded", |it| !it.record().is_empty())
        .await;
    world.kcp.lock().silent_writes = 1;
    world.until("stands", |it| it.keys("a").1).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
    assert!(world.metric("signal_write_errors_total{reason=\"transport\"} 1"));
    // Whether it was read before or after the change nobody knows: once more.
    world.take("a", "annotations");
    world.until_signalled(&["a", "a"]).await;
    world.take("a", "annotations");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn partial_failure_and_a_crash_are_followed_by_the_missing_signals_alone() {
    let mut world = World::recorded(&["a", "b", "c"]).await;
    refuse(&world, "b", 500, usize::MAX, None);
    world.change("two.example");
    world
        .until("the others", |it| it.keys("a").1 && it.keys("c").1)
        .await;
    // Longer than progress waits to be stored.
    sleep(Duration::from_secs(10)).await;
    world.kill().await;
    world.take("a", "annotations");
    world.kcp.lock().refusals.clear();
    world.forget();
    world.start().await;
    world.until_signalled(&["b"]).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["b"]);
    assert_eq!(
        world.record(),
        [("signal.unacknowledged".to_owned(), "b c".to_owned())]
    );
}

#[rstest]
#[case::foreign(json!({"metadata": {"name": RECORD}, "data": {"theirs": "kept"}}), "foreign")]
#[case::garbage(
    json!({
        "metadata": {"name": RECORD, "labels": {"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"}},
        "data": {"initialized": "true", "lastSeen.configuration": "garbage"},
    }),
    "garbage"
)]
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_used_signals_nobody_and_loses_nothing(
    #[case] unusable: Value,
    #[case] reason: &str,
) {
    let mut world = World::recorded(&["a"]).await;
    world.stop().await;
    let good = world.kcp.object("configmaps", RECORD).unwrap();
    world.kcp.put("configmaps", unusable.clone());
    world.forget();
    world.change("two.example");
    world.start().await;
    world.quiet().await;
    assert!(world.kcp.lock().writes.is_empty());
    assert_eq!(
        world.kcp.object("configmaps", RECORD).unwrap()["data"],
        unusable["data"]
    );
    let (ready, report) = world.readiness.report();
    assert!(
        !ready && report.contains("signal: not ready: signals suspended: "),
        "{report}"
    );
    assert!(world.metric(&format!("signal_state_invalid{{reason=\"{reason}\"}} 1")));
    let events = world.kcp.lock().events.clone();
    assert_eq!(
        events.iter().filter(|it| *it == "InvalidState").count(),
        1,
        "{events:?}"
    );
    // Put right by somebody: the change is still one.
    world.kcp.put("configmaps", json!({
        "metadata": {"name": RECORD, "labels": good["metadata"]["labels"]}, "data": good["data"],
    }));
    world.until_signalled(&["a"]).await;
    world.until("ready", |it| it.readiness.is_ready()).await;
    assert!(!world.metrics_text().contains("signal_state_invalid{"));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_would_not_fit_signals_nobody_and_loses_nothing() {
    let long = |index: usize| format!("{index:04}-{}", "x".repeat(240));
    let mut world = World::new(&[]);
    for index in 0..4000 {
        world.kcp.put("runtimes", runtime(&long(index)));
    }
    world.start().await;
    world.quiet().await;
    world.forget();
    world.change("two.example");
    world.quiet().await;
    assert!(world.kcp.lock().writes.is_empty());
    assert!(world.metric("signal_state_invalid{reason=\"oversized\"} 1"));
    assert!(!world.readiness.is_ready());
    // Some are deleted, and somebody restarts it.
    for index in 10..4000 {
        world.kcp.delete("runtimes", &long(index));
    }
    world.stop().await;
    world.start().await;
    world
        .until("the rest is signalled", |it| it.signals().len() == 10)
        .await;
    assert!(!world.metrics_text().contains("signal_state_invalid{"));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_signalled_while_the_record_cannot_be_stored() {
    let world = World::recorded(&["a"]).await;
    let refusal = Refusal {
        code: 500,
        times: 8,
        retry_after: None,
    };
    world
        .kcp
        .lock()
        .refusals
        .insert(key("configmaps", RECORD), refusal);
    world.change("two.example");
    sleep(Duration::from_secs(30)).await;
    assert!(world.signals().is_empty());
    assert!(!world.readiness.is_ready());
    world.until_signalled(&["a"]).await;
    world.until("ready", |it| it.readiness.is_ready()).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_signalled_while_runtimes_cannot_be_listed() {
    let mut world = World::recorded(&["a"]).await;
    world.kill().await;
    world.kcp.lock().unreadable.insert("runtimes");
    world.change("two.example");
    world.start().await;
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert!(!world.readiness.is_ready());
    world.kcp.lock().unreadable.clear();
    world.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_deleted_under_a_running_leader_is_written_anew() {
    let world = World::recorded(&["a"]).await;
    world.kcp.delete("configmaps", RECORD);
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.quiet().await;
    assert_eq!(
        world.record(),
        [("signal.unacknowledged".to_owned(), "a".to_owned())]
    );
    assert!(world.readiness.is_ready());
}

/// The manager may have been told before the change: no write that began before the record was read anew counts for what
/// came after.
#[tokio::test(start_paused = true)]
async fn a_change_after_the_record_was_read_anew_outdates_a_write_under_way() {
    let world = World::recorded(&["a"]).await;
    world.kcp.lock().latency = Duration::from_secs(10);
    world.change("two.example");
    world.until("sent", |it| !it.signals().is_empty()).await;
    let theirs = json!({"metadata": {"annotations": {"theirs": "kept"}}});
    world.kcp.merge("configmaps", RECORD, &theirs);
    world.change("three.example");
    world.until("stands", |it| it.keys("a").1).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
    world.take("a", "annotations");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a", "a"]);
    world.take("a", "annotations");
    world.quiet().await;
    assert!(world.record().is_empty());
}
