//! Faults: of runtimes, of the control plane, and of our own.

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;

use super::skr::{RESET, Skr};
use super::world::*;

#[tokio::test]
async fn unreachable_runtime_delays_no_other_and_is_asked_at_growing_intervals() {
    let mut world = World::new();
    world.settings.passes = 1;
    let dead = world.add("a").await;
    dead.lock().fault = Some((503, 0));
    let skrs = world.add_all(&["b", "c"]).await;
    world.start();
    for name in ["b", "c"] {
        world.until_ready(name).await;
    }
    world
        .until_condition("a", "Reachable", "False APIServerError")
        .await;
    dead.lock().faults.clear();
    // A pass asks for several things at once, so only the longest silence tells how rare passes are.
    let faults = || dead.lock().faults.clone();
    let span = |all: &[Instant]| {
        all.last()
            .map_or(Duration::ZERO, |it| it.duration_since(all[0]))
    };
    world
        .until("asked", |_| span(&faults()) > Duration::from_secs(1))
        .await;
    let silences = faults();
    let silences = silences.windows(2).map(|it| it[1].duration_since(it[0]));
    let longest = silences.max().unwrap();
    assert!(longest >= Duration::from_millis(190), "{longest:?}");
    let writes = world.written("apply runtimebootstrappers/a/status");
    assert!(writes <= 2, "the same trouble is not said again: {writes}");
    drop(skrs);
}

#[tokio::test]
async fn who_waits_for_a_place_is_connected_and_has_asked_for_nothing() {
    let mut world = World::new();
    world.settings.connected = 1;
    world.settings.handshakes = 2;
    let skrs = world.add_all(&["a", "b", "c", "d"]).await;
    let closed = futures::future::join_all(skrs.iter().map(Skr::close)).await;
    world.start();
    let connected = || skrs.iter().filter(|it| it.open() > 0).count();
    world
        .until("three are connected", |_| connected() == 3)
        .await;
    let is_asked = |skr: &&Skr| skr.waiting() > 0;
    world
        .until("one is asked", |_| skrs.iter().any(|it| is_asked(&it)))
        .await;
    assert_eq!(skrs.iter().filter(is_asked).count(), 1);
    assert_eq!(connected(), 3);
    drop(closed);
    for name in ["a", "b", "c", "d"] {
        world.until_ready(name).await;
    }
}

#[tokio::test]
async fn retry_after_is_honoured_whatever_changes() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    skrs[0].lock().fault = Some((429, 1));
    world.content.registry("two.example");
    world.publish();
    world
        .until_condition("a", "Reachable", "False APIServerError")
        .await;
    let asked = *skrs[0].lock().faults.last().unwrap();
    skrs[0].lock().fault = None;
    skrs[0].lock().tokens.clear();
    world.content.registry("three.example");
    world.publish();
    let touch = json!({"metadata": {"annotations": {"touched": "now"}}});
    world.kcp.merge("runtimebootstrappers", "a", &touch);
    world
        .until("asked again", |_| !skrs[0].lock().tokens.is_empty())
        .await;
    assert!(
        asked.elapsed() >= Duration::from_millis(990),
        "{:?}",
        asked.elapsed()
    );
    world.until_ready("a").await;
}

#[rstest]
#[case::error(500)]
#[case::conflict(409)]
#[case::reset(RESET)]
#[tokio::test]
async fn failed_write_is_followed_by_the_missing_writes_alone(#[case] status: u16) {
    let (mut world, skrs) = World::converged(&["a"]).await;
    skrs[0].lock().refusals.push_back((INSTALL[4], status));
    world.content.password = Some("two");
    world.publish();
    world
        .until("twice", |_| skrs[0].lock().writes.len() == 3)
        .await;
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[2], INSTALL[4], INSTALL[4]]);
}

#[tokio::test]
async fn a_panic_in_a_pass_does_not_lose_the_runtime() {
    let mut world = World::new();
    let _skr = world.add("a").await;
    world.kcp.lock().panics = 2;
    world.start();
    world.until_ready("a").await;
    assert_eq!(world.kcp.lock().panics, 0);
}

#[tokio::test]
async fn a_change_during_a_pass_leads_to_another_one_and_never_to_two_at_once() {
    let (world, _skrs) = World::converged(&["a"]).await;
    world.kcp.lock().holds = true;
    let before = world.kcp.lock().kubeconfig_reads.len();
    let touch = |text: &str| {
        let annotation = json!({"metadata": {"annotations": {"touched": text}}});
        world.kcp.merge("runtimebootstrappers", "a", &annotation);
    };
    touch("once");
    world
        .until("begun", |it| {
            it.kcp.lock().kubeconfig_reads.len() == before + 1
        })
        .await;
    touch("twice");
    touch("three times");
    world.settle().await;
    assert_eq!(world.kcp.lock().kubeconfig_reads.len(), before + 1);
    world.kcp.release();
    world
        .until("again", |it| {
            it.kcp.lock().kubeconfig_reads.len() == before + 2
        })
        .await;
    world.settle().await;
    assert_eq!(world.kcp.lock().kubeconfig_reads.len(), before + 2);
}

#[tokio::test]
async fn a_change_while_a_runtime_in_trouble_is_tried_again_reaches_it() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    skrs[0].lock().fault = Some((503, 0));
    world.content.registry("two.example");
    world.publish();
    world
        .until_condition("a", "Reachable", "False APIServerError")
        .await;
    // It is there again, and the pass that finds it so was begun for the second document.
    let before = {
        let mut kcp = world.kcp.lock();
        kcp.holds = true;
        kcp.kubeconfig_reads.len()
    };
    world
        .until("tried again", |it| {
            it.kcp.lock().kubeconfig_reads.len() > before
        })
        .await;
    skrs[0].lock().fault = None;
    world.content.registry("three.example");
    world.publish();
    world.settle().await;
    world.kcp.release();
    let document = || {
        let map = skrs[0].kyma("configmaps/rt-bootstrapper-config");
        map.unwrap_or_default()["data"].to_string()
    };
    world
        .until("it has the third", |_| document().contains("three.example"))
        .await;
}

#[tokio::test]
async fn a_lost_lease_stops_the_writes() {
    let mut world = World::new();
    let skr = world.add("a").await;
    world.kcp.lock().holds = true;
    world.start();
    world
        .until("begun", |it| it.kcp.lock().kubeconfig_reads.len() == 1)
        .await;
    world.stop().await;
    let writes = world.kcp.lock().writes.len();
    world.kcp.release();
    world.settle().await;
    assert_eq!(skr.lock().tokens, [""; 0]);
    assert_eq!(world.kcp.lock().writes.len(), writes);
    world.start();
    world.until_ready("a").await;
}

#[tokio::test]
async fn the_control_plane_may_refuse_statuses_and_finalizers_for_a_while() {
    let mut world = World::new();
    let _skr = world.add("a").await;
    {
        let refusals = &mut world.kcp.lock().refusals;
        refusals.insert("patch runtimebootstrappers", (409, 2));
        refusals.insert("apply runtimebootstrappers/a/status", (409, 1));
    }
    world.start();
    world.until_ready("a").await;
    assert_eq!(world.written("refused "), 3);
}

#[tokio::test]
async fn a_conflict_of_the_finalizer_is_looked_at_once_more() {
    let (world, skrs) = World::converged(&["a"]).await;
    // The pass that is about to end knows an older version of the resource than there is then.
    world
        .kcp
        .lock()
        .refusals
        .insert("patch runtimebootstrappers", (409, 1));
    world.kcp.delete("runtimebootstrappers", "a");
    world
        .until("gone", |it| {
            it.kcp.get("runtimebootstrappers", "a").is_none()
        })
        .await;
    assert!(skrs[0].get(WEBHOOK).is_none());
    let reads = world.written("patch runtimebootstrappers/a");
    assert_eq!(reads, 2, "the finalizer put there and taken away");
}
