//! Waves, their budget, and pauses.

use std::num::NonZeroU32;

use policy::convergence::waves::{Budget, Settings};
use serde_json::{Value, json};

use super::skr::Skr;
use super::world::*;

async fn waves(names: &[&str]) -> (World, Vec<Skr>) {
    let mut world = World::new();
    world.settings.waves = Settings {
        size: NonZeroU32::new(1),
        failure_budget: Budget::Count(0),
        ..world.settings.waves
    };
    let skrs = world.converge(names).await;
    (world, skrs)
}

fn progress(world: &World) -> Value {
    let map = world.kcp.get("configmaps", "rt-bootstrapper-rollout");
    let text = map.unwrap_or_default()["data"]["progress"].clone();
    text.as_str()
        .map_or(Value::Null, |it| serde_json::from_str(it).unwrap())
}

#[tokio::test]
async fn a_wave_that_fails_stops_the_rest_and_everybody_can_see_it() {
    let (mut world, skrs) = waves(&["a", "b", "c"]).await;
    let refusals = std::iter::repeat_n((INSTALL[4], 422), 100);
    skrs[0].lock().refusals.extend(refusals);
    world.content.registry("two.example");
    world.publish();
    world
        .until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    for name in ["b", "c"] {
        let wanted = "False RolloutPending";
        world
            .until_condition(name, "ConfigurationSynchronized", wanted)
            .await;
    }
    world
        .until("said", |it| progress(it)["stopped"].is_string())
        .await;
    assert_eq!((skrs[1].take(), skrs[2].take()), (vec![], vec![]));
    // It recovers, and the others follow one after the other.
    skrs[0].lock().refusals.clear();
    for name in ["a", "b", "c"] {
        world.until_ready(name).await;
    }
    assert_eq!(
        (skrs[1].take(), skrs[2].take()),
        (vec![INSTALL[4].to_owned()], vec![INSTALL[4].to_owned()])
    );
    world
        .until("finished", |it| progress(it)["finished"] == true)
        .await;
}

#[tokio::test]
async fn an_unreachable_or_paused_runtime_holds_up_no_wave() {
    let (mut world, skrs) = waves(&["a", "b", "c"]).await;
    skrs[0].lock().fault = Some((503, 0));
    world.kcp.merge(
        "runtimebootstrappers",
        "b",
        &json!({"spec": {"paused": true}}),
    );
    world.settle().await;
    world.content.registry("two.example");
    world.publish();
    world
        .until("written", |_| !skrs[2].lock().writes.is_empty())
        .await;
    world
        .until_condition("b", "ConfigurationSynchronized", "False Paused")
        .await;
    assert_eq!(skrs[1].take(), [""; 0]);
    // Both catch up.
    skrs[0].lock().fault = None;
    world.kcp.merge(
        "runtimebootstrappers",
        "b",
        &json!({"spec": {"paused": false}}),
    );
    for (name, skr) in ["a", "b"].iter().zip(&skrs) {
        world
            .until("written", |_| !skr.lock().writes.is_empty())
            .await;
        world.until_ready(name).await;
    }
}

fn paused(value: &str) -> Value {
    json!({"metadata": {"annotations": {"rt-bootstrapper.kyma-project.io/paused": value}}})
}

fn has_begun(world: &World) -> bool {
    world.metrics().contains("active_workers 1")
}

async fn pause(world: &World) {
    world.until("progress", |it| !progress(it).is_null()).await;
    world
        .kcp
        .merge("configmaps", "rt-bootstrapper-rollout", &paused("true"));
    world
        .until("paused", |it| progress(it)["stopped"].is_string())
        .await;
}

#[tokio::test]
async fn a_pass_that_a_new_version_overtakes_lets_nobody_begin_with_it() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    pause(&world).await;
    let closed = skrs[0].close().await;
    let touch = json!({"metadata": {"annotations": {"touched": "now"}}});
    world.kcp.merge("runtimebootstrappers", "a", &touch);
    world.until("the pass has begun", has_begun).await;
    let before = progress(&world)["contentVersion"].clone();
    world.content.registry("two.example");
    world.publish();
    world
        .until("another rollout", |it| {
            progress(it)["contentVersion"] != before
        })
        .await;
    drop(closed);
    world
        .until_condition("a", "ConfigurationSynchronized", "False RolloutPending")
        .await;
    world.settle().await;
    assert_eq!(skrs[0].take(), [""; 0]);
}

async fn until_both_wait(world: &World) {
    for name in ["a", "b"] {
        let wanted = "False RolloutPending";
        world
            .until_condition(name, "ConfigurationSynchronized", wanted)
            .await;
    }
}

#[tokio::test]
async fn an_operator_pauses_the_rollout_and_lets_it_go_on() {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    pause(&world).await;
    world.content.registry("two.example");
    world.publish();
    until_both_wait(&world).await;
    assert_eq!((skrs[0].take(), skrs[1].take()), (vec![], vec![]));
    world
        .kcp
        .merge("configmaps", "rt-bootstrapper-rollout", &paused("false"));
    for (name, skr) in ["a", "b"].iter().zip(&skrs) {
        world.until_ready(name).await;
        assert_eq!(skr.take(), [INSTALL[4]]);
    }
}

/// Whoever leads next, or is upgraded meanwhile, begins no pass before it has heard whether there is a pause.
#[tokio::test]
async fn a_pause_holds_over_a_restart_however_late_it_is_heard_of() {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    pause(&world).await;
    world.stop().await;
    world.content.registry("two.example");
    world.publish();
    let refusal = (500, usize::MAX);
    let list = "list configmaps";
    world.kcp.lock().refusals.insert(list, refusal);
    world.start();
    world
        .until("refused", |it| it.written("refused list configmaps") > 0)
        .await;
    world.settle().await;
    assert_eq!((skrs[0].take(), skrs[1].take()), (vec![], vec![]));
    assert_eq!(world.passes(), 0);
    assert!(!world.readiness.is_ready());
    world.kcp.lock().refusals.clear();
    until_both_wait(&world).await;
    assert_eq!((skrs[0].take(), skrs[1].take()), (vec![], vec![]));
    assert!(world.readiness.is_ready());
}

/// One wave for all, as it is without settings: what the one leader learnt the next one knows.
#[tokio::test]
async fn a_rollout_that_its_budget_stopped_stays_stopped_under_the_next_leader() {
    let mut world = World::new();
    world.settings.passes = 1;
    world.settings.waves.failure_budget = Budget::Count(0);
    let names = ["a", "b", "c"];
    let skrs = world.converge(&names).await;
    for skr in &skrs {
        let refusals = std::iter::repeat_n((INSTALL[4], 422), 100);
        skr.lock().refusals.extend(refusals);
    }
    world.content.registry("two.example");
    world.publish();
    world
        .until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    let tried = || {
        let tried = |it: &&Skr| !it.lock().writes.is_empty();
        skrs.iter().filter(tried).count()
    };
    assert_eq!(tried(), 1);
    world.stop().await;
    // From now on all may begin at once.
    world.settings.passes = 3;
    world.start();
    world
        .until("passes", |it| it.passes() > 3 && tried() > 0)
        .await;
    world.settle().await;
    assert_eq!(tried(), 1);
    assert_eq!(progress(&world)["stopped"], "budgetSpent");
    // It is mended, and the others follow.
    for skr in &skrs {
        skr.lock().refusals.clear();
    }
    for (name, skr) in names.iter().zip(&skrs) {
        let written = |_: &World| skr.lock().writes.contains(&INSTALL[4].to_owned());
        world.until("written", written).await;
        world.until_ready(name).await;
    }
}
