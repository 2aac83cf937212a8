//! Tests of deleted sources, and of the grace period until the deletion is signaled.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::env::*;

const SINCE: &str = "lastSeen.pullSecret.missing-since";

/// Returns an environment whose pull Secret was rolled out and has just been deleted.
async fn deleted(names: &[&str]) -> Env {
    let mut env = Env::new(names);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.kcp.delete("secrets", "pull");
    env.until("the absence is remembered", |it| {
        let record = it.kcp.object("configmaps", STATE).unwrap();
        record["data"][SINCE].is_string()
    })
    .await;
    env
}

fn is_counted(env: &Env, pending: u32) -> bool {
    env.metric(
        "source_deletion_pending{source=\"pullSecret\",controller=\"signal\"}",
        pending,
    )
}

#[tokio::test(start_paused = true)]
async fn deletion_is_signaled_at_the_end_of_the_grace_period() {
    let env = deleted(&["a"]).await;
    let began = Instant::now();
    assert!(is_counted(&env, 1));
    env.until_signalled(&["a"]).await;
    let took = began.elapsed();
    let grace = Duration::from_mins(5);
    let tolerance = Duration::from_secs(1);
    assert!(grace.abs_diff(took) < tolerance, "{took:?}");
    assert!(is_counted(&env, 0));
    assert_eq!(
        env.events(),
        ["StateInitialized", "DeletionPending", "SourcesChanged"]
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_that_is_undone_in_time_is_not_signaled() {
    let env = deleted(&["a"]).await;
    sleep(Duration::from_mins(4)).await;
    env.kcp.put(pull_secret("one"));
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    assert!(is_counted(&env, 0));
    env.kcp.put(pull_secret("two"));
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_that_becomes_another_content_in_time_is_a_change() {
    let env = deleted(&["a"]).await;
    env.kcp.put(pull_secret("two"));
    let began = Instant::now();
    env.until_signalled(&["a"]).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn grace_period_goes_on_under_the_next_leader() {
    let mut env = deleted(&["a"]).await;
    env.kill().await;
    let passed = Timestamp::now()
        .checked_sub(Duration::from_mins(3))
        .unwrap();
    let data = json!({"data": {SINCE: passed.to_string()}});
    env.kcp.merge("configmaps", STATE, &data);
    env.start().await;
    let began = Instant::now();
    env.until_signalled(&["a"]).await;
    let took = began.elapsed();
    let left = Duration::from_mins(2);
    let tolerance = Duration::from_secs(5);
    assert!(left.abs_diff(took) < tolerance, "{took:?}");
}

/// KIM copies all three sources at each signal, so a signal for another source would carry out the deletion.
#[tokio::test(start_paused = true)]
async fn other_changes_are_not_signaled_while_a_deletion_is_pending() {
    let env = deleted(&["a"]).await;
    env.change("two.example");
    sleep(Duration::from_mins(4)).await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["a"]).await;
}

/// KIM may acknowledge the signal while the source is missing, and is signaled again when the source exists.
#[tokio::test(start_paused = true)]
async fn signal_that_stands_when_a_source_goes_missing_is_followed_by_another() {
    let mut env = Env::new(&["a"]);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.kcp.delete("secrets", "pull");
    sleep(Duration::from_mins(1)).await;
    env.take("a", "annotations");
    sleep(Duration::from_mins(1)).await;
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["a", "a"]).await;
}
