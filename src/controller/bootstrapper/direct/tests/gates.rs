//! Which runtimes a paused, stopped or waiting rollout leaves untouched, also when many reconciles run at once.

use std::num::NonZeroU32;
use std::time::Duration;

use policy::convergence::waves::{Budget, Settings};
use rstest::rstest;
use serde_json::{Value, json};

use super::skr::Skr;
use super::world::*;

pub(super) const ROLLOUT: &str = "rt-bootstrapper-rollout";

pub(super) const NEXT_IMAGE: &str = "registry.example/webhook:0.2.0";

/// A controller to which a busy machine may give little time for its TLS handshakes, and the names of its runtimes.
fn crowd(size: usize) -> (World, Vec<String>) {
    let mut world = World::new();
    world.connect_timeout = Duration::from_secs(10);
    world.patience = Duration::from_mins(2);
    let names = (0..size).map(|number| format!("r{number:03}"));
    (world, names.collect())
}

async fn converge(world: &mut World, names: &[String]) -> Vec<Skr> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.converge(&names).await
}

pub(super) fn progress(world: &World) -> Value {
    let map = world.kcp.get("configmaps", ROLLOUT).unwrap_or_default();
    let text = map["data"]["progress"].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

pub(super) fn annotate_paused(world: &World, value: &str) {
    let annotation = json!({"rt-bootstrapper.kyma-project.io/paused": value});
    let patch = json!({"metadata": {"annotations": annotation}});
    world.kcp.merge("configmaps", ROLLOUT, &patch);
}

pub(super) async fn pause(world: &World) {
    world.until("progress", |it| !progress(it).is_null()).await;
    annotate_paused(world, "true");
    world
        .until("paused", |it| progress(it)["stopped"] == "paused")
        .await;
}

/// Restarts the controller with the next image of the webhook, and waits until it has reconciled as often as there are
/// runtimes.
async fn upgrade(world: &mut World, runtimes: usize) {
    world.stop().await;
    world.image = NEXT_IMAGE.to_owned();
    world.start();
    world
        .until("as many reconciles as runtimes", |it| {
            it.passes() >= u64::try_from(runtimes).unwrap()
        })
        .await;
    world
        .until("the rollout's progress", |it| {
            progress(it)["webhookVersion"] == "0.2.0"
        })
        .await;
}

/// Places of the runtimes on which the Deployment was to be written.
fn upgraded(skrs: &[Skr]) -> Vec<usize> {
    let is_upgraded = |skr: &Skr| skr.lock().writes.iter().any(|it| it == INSTALL[5]);
    let found = skrs.iter().enumerate().filter(|(_, it)| is_upgraded(it));
    found.map(|(place, _)| place).collect()
}

#[rstest]
#[case(60)]
#[case(120)]
#[tokio::test]
async fn a_paused_upgrade_touches_no_runtime(#[case] size: usize) {
    let (mut world, names) = crowd(size);
    let skrs = converge(&mut world, &names).await;
    pause(&world).await;
    upgrade(&mut world, size).await;
    world.settle().await;
    assert_eq!(upgraded(&skrs), [0; 0]);
    let counts = &progress(&world)["counts"];
    assert_eq!(counts["waiting"], size, "{counts}");
    for name in &names {
        let installed = world.condition(name, "Installed");
        assert_eq!(installed, "False RolloutPending", "{name}");
    }
    annotate_paused(&world, "false");
    world
        .until("all are upgraded", |_| upgraded(&skrs).len() == size)
        .await;
}

#[rstest]
#[case(60)]
#[case(120)]
#[tokio::test]
async fn a_spent_failure_limit_keeps_every_later_wave_untouched(#[case] size: usize) {
    let (mut world, names) = crowd(size);
    world.settings.waves = Settings {
        size: NonZeroU32::new(5),
        failure_budget: Budget::Count(0),
        ..world.settings.waves
    };
    let skrs = converge(&mut world, &names).await;
    for skr in &skrs {
        let refusals = std::iter::repeat_n((INSTALL[5], 422), 1000);
        skr.lock().refusals.extend(refusals);
    }
    upgrade(&mut world, size).await;
    world
        .until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    // Those that failed are tried again and again, so nothing is ever quiet.
    let passes = world.passes();
    world
        .until("more reconciles", |it| it.passes() >= passes + 50)
        .await;
    let upgraded = upgraded(&skrs);
    assert!(!upgraded.is_empty());
    assert!(upgraded.iter().all(|place| *place < 5), "{upgraded:?}");
}

#[tokio::test]
async fn a_later_wave_waits_for_the_one_before() {
    const WAVE: u32 = 10;
    let (mut world, names) = crowd(60);
    world.settings.waves.size = NonZeroU32::new(WAVE);
    let skrs = converge(&mut world, &names).await;
    let (first, rest) = skrs.split_at(usize::try_from(WAVE).unwrap());
    for skr in first {
        skr.lock().rolls = false;
    }
    upgrade(&mut world, skrs.len()).await;
    world
        .until("the first wave", |_| upgraded(first).len() == first.len())
        .await;
    // The first wave is looked at again and again, which gives every other runtime its chance.
    let passes = world.passes();
    world
        .until("more reconciles", |it| it.passes() >= passes + 50)
        .await;
    assert_eq!(upgraded(rest), [0; 0]);
    first.iter().for_each(Skr::roll_out);
    world
        .until("all other waves", |_| upgraded(rest).len() == rest.len())
        .await;
}

/// An earlier leader wrote the Deployment. The webhook configuration may follow only once the rollout goes on.
#[tokio::test]
async fn an_installation_that_waits_for_its_pods_is_not_completed_while_the_rollout_is_paused() {
    let mut world = World::new();
    let skr = world.add("a").await;
    skr.lock().rolls = false;
    world.start();
    world
        .until("the Deployment", |_| skr.get(DEPLOYMENT).is_some())
        .await;
    pause(&world).await;
    world.stop().await;
    skr.take();
    world.start();
    let waits = "False RolloutPending";
    world.until_condition("a", "Installed", waits).await;
    skr.roll_out();
    world
        .until("the status says that its Pods are there", |it| {
            it.status("a")["webhook"]["readyReplicas"] == 2
        })
        .await;
    world.settle().await;
    assert_eq!(skr.take(), [""; 0]);
    assert_eq!(world.condition("a", "Installed"), waits);
    annotate_paused(&world, "false");
    world.until_ready("a").await;
    assert_eq!(skr.take(), [INSTALL[6]]);
}

/// Two runtimes that hold everything, before the document on the control plane becomes one that cannot be read.
async fn spoil_document(world: &mut World) -> Vec<Skr> {
    let skrs = world.converge(&["a", "b"]).await;
    world.content.document = Some("{".to_owned());
    world.publish();
    until_all(world, "False InvalidSource").await;
    world.settle().await;
    skrs
}

/// The same with two waves of one runtime each.
async fn with_an_invalid_document() -> (World, Vec<Skr>) {
    let mut world = World::new();
    world.settings.waves = Settings {
        size: NonZeroU32::new(1),
        failure_budget: Budget::Count(0),
        ..world.settings.waves
    };
    let skrs = spoil_document(&mut world).await;
    (world, skrs)
}

async fn until_all(world: &World, synchronized: &str) {
    for name in ["a", "b"] {
        let kind = "ConfigurationSynchronized";
        world.until_condition(name, kind, synchronized).await;
    }
}

fn pull_secret(skr: &Skr) -> Value {
    skr.kyma("secrets/registry-credentials").unwrap()["data"].clone()
}

#[tokio::test]
async fn a_change_beside_an_invalid_document_waits_for_the_end_of_the_pause() {
    let (mut world, skrs) = with_an_invalid_document().await;
    pause(&world).await;
    let before = pull_secret(&skrs[0]);
    world.content.password = Some("two");
    world.publish();
    until_all(&world, "False RolloutPending").await;
    world.settle().await;
    assert_eq!((skrs[0].take(), skrs[1].take()), (vec![], vec![]));
    world
        .until("both wait", |it| progress(it)["counts"]["waiting"] == 2)
        .await;
    annotate_paused(&world, "false");
    world
        .until("written", |_| {
            skrs.iter().all(|it| pull_secret(it) != before)
        })
        .await;
}

#[tokio::test]
async fn a_change_beside_an_invalid_document_goes_out_wave_by_wave() {
    let (mut world, skrs) = with_an_invalid_document().await;
    let refusals = std::iter::repeat_n((INSTALL[2], 422), 1000);
    skrs[0].lock().refusals.extend(refusals);
    world.content.password = Some("two");
    world.publish();
    world
        .until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    world
        .until_condition("b", "ConfigurationSynchronized", "False RolloutPending")
        .await;
    assert_eq!(skrs[1].take(), [""; 0]);
    // An invalid document does not hold the rollout of the rest up for good.
    skrs[0].lock().refusals.clear();
    world
        .until("the second wave", |_| {
            skrs[1].lock().writes.contains(&INSTALL[2].to_owned())
        })
        .await;
    world
        .until("finished", |it| progress(it)["finished"] == true)
        .await;
}

/// One wave for all, and one reconcile at a time until the leader changes.
#[tokio::test]
async fn failures_beside_an_invalid_document_stop_the_rollout_under_the_next_leader_too() {
    let mut world = World::new();
    world.settings.passes = 1;
    world.settings.waves.failure_budget = Budget::Count(0);
    let skrs = spoil_document(&mut world).await;
    for skr in &skrs {
        let refusals = std::iter::repeat_n((INSTALL[2], 422), 1000);
        skr.lock().refusals.extend(refusals);
    }
    world.content.password = Some("two");
    world.publish();
    world
        .until("stopped", |it| progress(it)["stopped"] == "budgetSpent")
        .await;
    world.stop().await;
    world.settings.passes = 2;
    world.start();
    world.until("reconciles", |it| it.passes() >= 4).await;
    let tried = skrs.iter().filter(|it| !it.take().is_empty());
    assert_eq!(tried.count(), 1);
}
