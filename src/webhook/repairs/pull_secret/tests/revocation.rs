//! A source that is deleted revokes the credentials: its copies are removed, whatever uses them.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::world::World;
use super::*;
use crate::knowledge::version::{Requirements, Seen};

/// Longer than the time that an absence may take without being a deletion, and far shorter than all other timers.
const SOON: Duration = Duration::from_secs(15);

/// Two namespaces with a copy and one with a foreign Secret.
async fn copied() -> World {
    let mut world = World::new();
    for name in ["a", "b", "shop"] {
        world.namespace(name, true);
    }
    world.put(&foreign("shop"));
    let naming = json!({"spec": {"imagePullSecrets": [{"name": NAME}]}});
    world.running_pod("a", "p", &naming);
    world.start();
    world.until_value("a", Some(ONE)).await;
    world.until_value("b", Some(ONE)).await;
    world
}

fn delete_source(world: &World) {
    let absent = PullSecretSource::none(Seen::absent(NAME));
    world.knowledge.set_pull_secret(absent);
}

async fn until_revoked(world: &World) {
    let began = Instant::now();
    world.until_value("a", None).await;
    world.until_value("b", None).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn deleted_source_takes_its_copies_along_and_leaves_foreign_secrets() {
    let world = copied().await;
    delete_source(&world);
    until_revoked(&world).await;
    world.quiet().await;
    assert_eq!(world.value("shop").as_deref(), Some(TWO));
    let mut writes = world.writes();
    writes.sort();
    assert_eq!(writes, ["apply a", "apply b", "delete a", "delete b"]);
    assert!(world.metric("pull_secret_copies 0"));
}

#[tokio::test(start_paused = true)]
async fn source_that_is_created_again_within_seconds_keeps_its_copies() {
    let world = copied().await;
    delete_source(&world);
    sleep(Duration::from_secs(5)).await;
    world.knowledge.set_pull_secret(source(ONE));
    world.quiet().await;
    let mut writes = world.writes();
    writes.sort();
    assert_eq!(writes, ["apply a", "apply b"]);
}

#[tokio::test(start_paused = true)]
async fn source_that_is_created_again_later_is_copied_again() {
    let world = copied().await;
    delete_source(&world);
    until_revoked(&world).await;
    world.delete_secret("shop", NAME);
    world.quiet().await;
    world.knowledge.set_pull_secret(source(TWO));
    world.until_value("a", Some(TWO)).await;
    world.until_value("b", Some(TWO)).await;
}

/// The controller says it in the document before it deletes the Secret.
#[tokio::test(start_paused = true)]
async fn version_without_a_pull_secret_takes_the_copies_along() {
    let world = copied().await;
    let requires = json!({"annotations": {api::runtimes::REQUIRES_PULL_SECRET: "none"}});
    let requires = Requirements::read(&serde_json::from_value(requires).unwrap());
    world.knowledge.offer(with_feature(), requires);
    until_revoked(&world).await;
}

/// What is not known to be absent is not deleted.
#[rstest]
#[case::not_seen_yet(PullSecretSource::default())]
#[case::unusable(PullSecretSource::none(Seen::of(&serde_json::from_value(json!({"name": NAME})).unwrap())))]
#[tokio::test(start_paused = true)]
async fn source_of_which_nothing_is_known_keeps_its_copies(#[case] unknown: PullSecretSource) {
    let world = copied().await;
    world.knowledge.set_pull_secret(unknown);
    world.quiet().await;
    let mut writes = world.writes();
    writes.sort();
    assert_eq!(writes, ["apply a", "apply b"]);
}

/// The distance to the next look at its Pods has grown to minutes by then.
#[tokio::test(start_paused = true)]
async fn copy_that_is_kept_for_a_pod_is_removed_when_the_source_is_deleted() {
    let world = copied().await;
    world.knowledge.set_configuration(configuration("", ""));
    world.until_value("b", None).await;
    sleep(Duration::from_hours(3)).await;
    assert_eq!(world.value("a").as_deref(), Some(ONE));
    delete_source(&world);
    until_revoked(&world).await;
}

/// The leader that comes up finds copies and no source.
#[tokio::test(start_paused = true)]
async fn source_that_was_deleted_under_no_leader_takes_its_copies_along() {
    let mut world = World::new();
    world.namespace("a", true);
    world.namespace("b", false);
    world.put(&copy("a", ONE));
    world.put(&copy("b", ONE));
    delete_source(&world);
    world.start();
    until_revoked(&world).await;
}
