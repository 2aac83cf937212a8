//! Sources that are deleted, and the time until that is signaled.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::world::*;

const SINCE: &str = "lastSeen.pullSecret.missing-since";

/// One whose pull Secret was rolled out and has just been deleted.
async fn deleted(names: &[&str]) -> World {
    let mut world = World::new(names);
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.quiet().await;
    world.kcp.delete("secrets", "pull");
    world
        .until("the absence is remembered", |it| {
            let record = it.kcp.object("configmaps", RECORD).unwrap();
            record["data"][SINCE].is_string()
        })
        .await;
    world
}

fn is_counted(world: &World, pending: u8) -> bool {
    world.metric(&format!(
        "source_deletion_pending{{source=\"pullSecret\",controller=\"signal\"}} {pending}"
    ))
}

#[tokio::test(start_paused = true)]
async fn deletion_is_signaled_at_the_end_of_the_grace_period() {
    let world = deleted(&["a"]).await;
    let began = Instant::now();
    assert!(is_counted(&world, 1));
    world.until_signalled(&["a"]).await;
    let took = began.elapsed();
    let grace = Duration::from_mins(5);
    let tolerance = Duration::from_secs(1);
    assert!(grace.abs_diff(took) < tolerance, "{took:?}");
    assert!(is_counted(&world, 0));
    assert_eq!(
        world.events(),
        ["StateInitialized", "DeletionPending", "SourcesChanged"]
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_that_is_undone_in_time_is_not_signaled() {
    let world = deleted(&["a"]).await;
    sleep(Duration::from_mins(4)).await;
    world.kcp.put("secrets", pull_secret("one"));
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    assert!(is_counted(&world, 0));
    world.kcp.put("secrets", pull_secret("two"));
    world.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_that_becomes_another_content_in_time_is_a_change() {
    let world = deleted(&["a"]).await;
    world.kcp.put("secrets", pull_secret("two"));
    let began = Instant::now();
    world.until_signalled(&["a"]).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn grace_period_goes_on_under_the_next_leader() {
    let mut world = deleted(&["a"]).await;
    world.kill().await;
    let passed = Timestamp::now()
        .checked_sub(Duration::from_mins(3))
        .unwrap();
    let data = json!({"data": {SINCE: passed.to_string()}});
    world.kcp.merge("configmaps", RECORD, &data);
    world.start().await;
    let began = Instant::now();
    world.until_signalled(&["a"]).await;
    let took = began.elapsed();
    let left = Duration::from_mins(2);
    let tolerance = Duration::from_secs(5);
    assert!(left.abs_diff(took) < tolerance, "{took:?}");
}

/// KIM looks at all three sources at each signal: one for another source would carry the deletion out.
#[tokio::test(start_paused = true)]
async fn other_changes_are_not_signaled_while_a_deletion_is_pending() {
    let world = deleted(&["a"]).await;
    world.change("two.example");
    sleep(Duration::from_mins(4)).await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    world.kcp.put("secrets", pull_secret("one"));
    world.until_signalled(&["a"]).await;
}

/// KIM may take it while the source is missing, and is told again once it is there.
#[tokio::test(start_paused = true)]
async fn signal_that_stands_when_a_source_goes_missing_is_followed_by_another() {
    let mut world = World::new(&["a"]);
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.kcp.delete("secrets", "pull");
    sleep(Duration::from_mins(1)).await;
    world.take("a", "annotations");
    sleep(Duration::from_mins(1)).await;
    world.kcp.put("secrets", pull_secret("one"));
    world.until_signalled(&["a", "a"]).await;
}
