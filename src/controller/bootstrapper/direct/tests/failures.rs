//! What counts against the failure limit of a rollout, and what keeps a wave from going on for ever.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use policy::convergence::waves::{Budget, Settings};
use rstest::rstest;
use serde_json::{Value, json};

use super::gates::progress;
use super::skr::{RESET, Skr};
use super::world::*;

/// Long enough for every reconcile here, and so long that a test can wait for it.
const SHORT: Duration = Duration::from_millis(600);

/// Two waves of one runtime each, both of which hold everything.
async fn waves(allowed: u32, deadline: Option<Duration>) -> (World, Skr, Skr) {
    let mut world = World::new();
    let defaults = world.settings.waves;
    world.settings.waves = Settings {
        size: NonZeroU32::new(1),
        failure_budget: Budget::Count(allowed),
        deadline: deadline.unwrap_or(defaults.deadline),
        ..defaults
    };
    let mut skrs = world.converge(&["a", "b"]).await;
    let second = skrs.pop().unwrap();
    (world, skrs.pop().unwrap(), second)
}

fn refuse(skr: &Skr, write: &'static str, status: u16) {
    let refusals = std::iter::repeat_n((write, status), 10_000);
    skr.lock().refusals.extend(refusals);
}

fn is_stopped(world: &World) -> bool {
    progress(world)["stopped"] == "budgetSpent"
}

async fn until_tried(world: &World, skr: &Skr, write: &str, times: usize) {
    world
        .until("tried again and again", |_| {
            skr.lock().writes.iter().filter(|it| *it == write).count() >= times
        })
        .await;
}

/// Restarts the controller with the next image.
async fn upgrade(world: &mut World) {
    world.stop().await;
    world.image = super::gates::NEXT_IMAGE.to_owned();
    world.start();
}

#[rstest]
#[case::conflict(409)]
#[case::throttled(429)]
#[case::internal(500)]
#[case::unavailable(503)]
#[case::reset(RESET)]
#[tokio::test]
async fn a_write_that_may_succeed_later_is_no_failure(#[case] status: u16) {
    let (mut world, first, second) = waves(0, None).await;
    refuse(&first, INSTALL[4], status);
    world.content.registry("two.example");
    world.publish();
    until_tried(&world, &first, INSTALL[4], 5).await;
    world
        .until("the first wave runs", |it| {
            progress(it)["counts"]["running"] == 1
        })
        .await;
    assert_eq!(progress(&world)["stopped"], Value::Null);
    assert_eq!(second.take(), [""; 0]);
    first.lock().refusals.clear();
    world
        .until("the second wave", |_| second.take() == [INSTALL[4]])
        .await;
}

/// A transfer of fields is refused as invalid if the object changed since it was read.
#[tokio::test]
async fn a_transfer_that_came_too_late_is_no_failure() {
    const TRANSFER: &str = "transfer ConfigMap/rt-bootstrapper-config";
    let (mut world, first, second) = waves(0, None).await;
    refuse(&first, TRANSFER, 422);
    let path = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";
    first.edit(path, |it| {
        it["metadata"]["managedFields"] =
            json!([{"manager": "kim-bootstrapper", "operation": "Update", "fieldsV1": {}}]);
    });
    world.content.registry("two.example");
    world.publish();
    until_tried(&world, &first, TRANSFER, 5).await;
    world
        .until("the first wave runs", |it| {
            progress(it)["counts"]["running"] == 1
        })
        .await;
    assert_eq!(progress(&world)["stopped"], Value::Null);
    assert_eq!(second.take(), [""; 0]);
}

#[tokio::test]
async fn a_write_that_never_succeeds_fails_at_the_deadline() {
    let (mut world, first, second) = waves(0, Some(SHORT)).await;
    refuse(&first, INSTALL[4], 429);
    let since = Instant::now();
    world.content.registry("two.example");
    world.publish();
    world.until("stopped", is_stopped).await;
    assert!(since.elapsed() >= SHORT, "{:?}", since.elapsed());
    assert_eq!(second.take(), [""; 0]);
    first.lock().refusals.clear();
    world
        .until("the second wave", |_| second.take() == [INSTALL[4]])
        .await;
}

#[tokio::test]
async fn pods_that_do_not_come_up_fail_at_the_deadline() {
    let (mut world, first, second) = waves(1, Some(SHORT)).await;
    first.lock().rolls = false;
    upgrade(&mut world).await;
    // One failure is allowed, so the second wave comes; without a deadline it would wait for ever.
    world
        .until("the second wave", |_| {
            second.lock().writes.contains(&INSTALL[5].to_owned())
        })
        .await;
    let is_failed = |it: &World| progress(it)["failedRuntimes"] == json!(["a"]);
    world.until("the first one failed", is_failed).await;
    first.roll_out();
    world
        .until("done after all", |it| progress(it)["counts"]["done"] == 2)
        .await;
}

#[tokio::test]
async fn a_runtime_that_the_control_plane_keeps_from_being_reconciled_holds_up_no_wave_for_ever() {
    let (mut world, first, second) = waves(1, Some(SHORT)).await;
    let kubeconfig = "read secrets/kubeconfig-id-a";
    let refusal = (500, usize::MAX);
    world.kcp.lock().refusals.insert(kubeconfig, refusal);
    world.content.registry("two.example");
    world.publish();
    world
        .until("the second wave", |_| second.take() == [INSTALL[4]])
        .await;
    assert_eq!(first.take(), [""; 0]);
    let is_failed = |it: &World| progress(it)["failedRuntimes"] == json!(["a"]);
    world.until("the first one failed", is_failed).await;
    world.kcp.lock().refusals.clear();
    world
        .until("done after all", |it| progress(it)["counts"]["done"] == 2)
        .await;
}

/// The upgrade itself may be what took the API server down.
#[tokio::test]
async fn a_runtime_that_is_lost_after_it_was_written_is_a_failure_also_for_the_next_leader() {
    let (mut world, first, second) = waves(0, None).await;
    first.lock().rolls = false;
    upgrade(&mut world).await;
    world
        .until("the Deployment is written", |_| {
            first.lock().writes.contains(&INSTALL[5].to_owned())
        })
        .await;
    first.lock().fault = Some((503, 0));
    world.until("stopped", is_stopped).await;
    world
        .until_condition("a", "Reachable", "False APIServerError")
        .await;
    assert_eq!(second.take(), [""; 0]);
    world.stop().await;
    world.start();
    world.until("reconciles", |it| it.passes() >= 5).await;
    world
        .until_condition("b", "Installed", "False RolloutPending")
        .await;
    assert_eq!(second.take(), [""; 0]);
    // Nor does another configuration forget it.
    let before = progress(&world)["contentVersion"].clone();
    world.content.registry("two.example");
    world.publish();
    let is_another = |it: &World| progress(it)["contentVersion"] != before;
    world.until("another rollout", is_another).await;
    assert!(is_stopped(&world), "{}", progress(&world));
    assert_eq!(second.take(), [""; 0]);
    first.lock().fault = None;
    first.roll_out();
    world
        .until("the second wave", |_| {
            second.lock().writes.contains(&INSTALL[5].to_owned())
        })
        .await;
}
