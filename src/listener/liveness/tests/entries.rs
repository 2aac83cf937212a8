//! Tests of resyncs after the webhook entries of a manager were written.

use super::resync::{current, last};
use super::*;

/// A client deleted the webhook configuration, and the controller created it again. The replicas have its hash one after the other.
#[tokio::test(start_paused = true)]
async fn webhook_entries_that_are_written_again_require_one_resync() {
    let mut listening = Listening::new();
    let rounds = [
        ("one", "one", 0),
        ("two", "one", 1),
        ("two", "one", 0),
        ("two", "two", 0),
        ("one", "two", 1),
        ("one", "one", 0),
    ];
    for (round, (a, b, expected)) in rounds.into_iter().enumerate() {
        for (watcher, hash) in [("a", a), ("b", b)] {
            let mut heartbeat = current(watcher, 0, 0);
            heartbeat.webhook_entry_hash = Some(hash.to_owned());
            listening.send("r", heartbeat);
        }
        listening.pass(Duration::from_mins(1)).await;
        assert_eq!(listening.resyncs(), expected, "round {round}");
    }
}

/// The operator reconciled everything when the listener started. The watchers say since when they know the entries.
#[rstest]
#[case::before_the_start(30, 0)]
#[case::after_the_start(29, 1)]
#[tokio::test(start_paused = true)]
async fn webhook_entries_that_were_written_after_the_start_require_one_resync(
    #[case] age: u64,
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.liveness.check(&listening.queue);
    listening.pass(Duration::from_secs(30)).await;
    for minute in 0..3 {
        for watcher in ["a", "b"] {
            let mut heartbeat = current(watcher, 0, 0);
            heartbeat.webhook_entry_hash = Some("one".to_owned());
            heartbeat.webhook_entry_age_seconds = Some(age + 60 * minute);
            listening.send("r", heartbeat);
        }
        listening.pass(Duration::from_mins(1)).await;
    }
    assert_eq!(listening.resyncs(), expected);
}

/// The watcher ran before its webhook existed: its first heartbeats have no hash.
#[rstest]
#[case::of_a_running_watcher(["a", "b"], 1)]
#[case::of_a_newer_release(["c", "d"], 0)]
#[tokio::test(start_paused = true)]
async fn first_webhook_entries_require_one_resync(
    #[case] watchers: [&str; 2],
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    let make = |it: &str| current(it, 0, 0);
    listening.beats(make, &["a", "b"]).await;
    for ended in ["a", "b"] {
        if !watchers.contains(&ended) {
            listening.send("r", last(ended, 0));
        }
    }
    let make = |it: &str| {
        let mut heartbeat = current(it, 0, 0);
        heartbeat.webhook_entry_hash = Some("one".to_owned());
        heartbeat.webhook_entry_age_seconds = Some(5);
        heartbeat
    };
    listening.beats(make, &watchers).await;
    assert_eq!(listening.resyncs(), expected);
}
