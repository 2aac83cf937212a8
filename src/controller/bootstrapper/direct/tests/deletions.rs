//! Sources that are deleted on the control plane, and the time until that is carried out.

use std::time::Duration;

use serde_json::{Value, json};

use super::skr::Skr;
use super::world::*;

const RECORD: &str = "rt-bootstrapper-direct-state";
const SINCE: &str = "lastSeen.pullSecret.missing-since";
const PENDING: &str = "False DeletionPending";

/// One runtime that has converged; a source that is missing is waited for as long as that.
async fn waiting_for(grace: Duration) -> (World, Skr) {
    let mut world = World::new();
    world.settings.deletion_grace = grace;
    let skr = world.converge(&["a"]).await.remove(0);
    (world, skr)
}

/// The pull Secret is deleted on the control plane.
async fn delete_pull_secret(world: &mut World) {
    world.content.password = None;
    world.publish();
    world
        .until_condition("a", "ConfigurationSynchronized", PENDING)
        .await;
}

fn is_there(skr: &Skr) -> bool {
    skr.kyma("secrets/registry-credentials").is_some()
}

fn message(world: &World) -> String {
    let conditions = world.status("a")["conditions"].clone();
    let all = conditions.as_array().unwrap();
    let found = all
        .iter()
        .find(|it| it["type"] == "ConfigurationSynchronized");
    found.unwrap()["message"].as_str().unwrap().to_owned()
}

fn remembered(world: &World, key: &str) -> Value {
    world.kcp.get("configmaps", RECORD).unwrap()["data"][key].clone()
}

fn is_counted(world: &World, pending: u8) -> bool {
    let line =
        format!("source_deletion_pending{{source=\"pullSecret\",controller=\"direct\"}} {pending}");
    world.metrics().lines().any(|it| it == line)
}

#[tokio::test]
async fn deleted_source_is_kept_on_runtimes_until_the_grace_period_ends() {
    let (mut world, skr) = waiting_for(Duration::from_secs(1)).await;
    delete_pull_secret(&mut world).await;
    assert!(is_there(&skr));
    assert_eq!(skr.take(), [""; 0]);
    world.until("removed", |_| !is_there(&skr)).await;
    world.until("not pending", |it| is_counted(it, 0)).await;
    assert_eq!(remembered(&world, "lastSeen.pullSecret"), "deleted");
    assert_eq!(remembered(&world, SINCE), Value::Null);
}

#[tokio::test]
async fn pending_deletion_says_what_is_deleted_and_when() {
    let (mut world, _skr) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut world).await;
    let since: jiff::Timestamp = remembered(&world, SINCE).as_str().unwrap().parse().unwrap();
    let at = since.checked_add(Duration::from_hours(1)).unwrap();
    let said = message(&world);
    assert!(
        said.starts_with("Secret kcp-system/pull was deleted"),
        "{said}"
    );
    let at = at.strftime("%FT%TZ").to_string();
    assert!(said.contains(&at), "{said}: {at}");
    assert_eq!(
        world.condition("a", "Ready"),
        PENDING,
        "an alert on Ready sees it"
    );
    assert!(is_counted(&world, 1));
    world
        .until("an Event", |it| it.written("create events") == 1)
        .await;
    let event = world.kcp.lock().store.list_all("events").remove(0);
    assert_eq!(event["reason"], "DeletionPending");
    assert_eq!(event["regarding"]["name"], RECORD);
    let note = event["note"].as_str().unwrap();
    assert!(
        note.contains("Secret kcp-system/pull") && note.contains(&at),
        "{note}"
    );
}

#[tokio::test]
async fn source_that_is_created_again_in_time_is_no_change() {
    let (mut world, skr) = waiting_for(Duration::from_hours(1)).await;
    let before = world.status("a")["configuration"].clone();
    delete_pull_secret(&mut world).await;
    world.content.password = Some("one");
    world.publish();
    world.until_ready("a").await;
    world.settle().await;
    assert_eq!(skr.take(), [""; 0]);
    assert_eq!(world.status("a")["configuration"], before);
    assert_eq!(remembered(&world, SINCE), Value::Null);
    assert!(is_counted(&world, 0));
}

#[tokio::test]
async fn source_that_is_created_again_with_other_content_is_an_update() {
    let (mut world, skr) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut world).await;
    world.content.password = Some("two");
    world.publish();
    world.until_ready("a").await;
    assert_eq!(skr.take(), [INSTALL[2], INSTALL[4]]);
}

/// The next leader goes on where the one before stopped: it neither begins anew nor carries out what is not due.
#[tokio::test]
async fn grace_period_goes_on_under_the_next_leader() {
    let (mut world, skr) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut world).await;
    let since = remembered(&world, SINCE);
    world.stop().await;
    world.start();
    world.pass("a").await;
    assert_eq!(remembered(&world, SINCE), since);
    assert!(is_there(&skr));
    world.stop().await;
    let passed = jiff::Timestamp::now()
        .checked_sub(Duration::from_mins(61))
        .unwrap();
    let data = json!({"data": {SINCE: passed.to_string()}});
    world.kcp.merge("configmaps", RECORD, &data);
    world.start();
    world.until("removed", |_| !is_there(&skr)).await;
}

/// What is said about a missing source does not keep the others from runtimes, nor from one that comes meanwhile.
#[tokio::test]
async fn other_sources_are_synchronized_while_a_deletion_is_pending() {
    let (mut world, skr) = waiting_for(Duration::from_hours(1)).await;
    delete_pull_secret(&mut world).await;
    world.content.registry("two.example");
    world.publish();
    world
        .until("the document", |_| {
            let map = skr.kyma("configmaps/rt-bootstrapper-config").unwrap();
            map.to_string().contains("two.example")
        })
        .await;
    let other = world.add("b").await;
    world
        .until_condition("b", "Installed", "True Installed")
        .await;
    let map = other.kyma("configmaps/rt-bootstrapper-config").unwrap();
    let requires = "rt-bootstrapper.kyma-project.io/requires-pull-secret";
    assert_eq!(map["metadata"]["annotations"][requires], Value::Null);
    assert!(!is_there(&other));
}
