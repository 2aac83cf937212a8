//! Direct mode begins where the signal ended.

use rstest::rstest;
use serde_json::json;

use super::world::*;

const OWN: &str = "rt-bootstrapper-direct-state";

/// A source that is deleted between the end of one mode and the first start of the other.
#[rstest]
#[case::usual("kcp-system")]
#[case::another("elsewhere")]
#[tokio::test]
async fn what_the_signal_rolled_out_and_is_gone_is_removed(#[case] namespace: &'static str) {
    let mut world = World::new();
    world.kcp.lock().store.namespace = namespace;
    namespace.clone_into(&mut world.settings.namespace);
    let skrs = world.converge(&["a"]).await;
    world.stop().await;
    let mut record = world.kcp.get("configmaps", OWN).unwrap();
    record["metadata"]["name"] = json!("rt-bootstrapper-signal-state");
    world.kcp.put("configmaps", record);
    world.kcp.delete("configmaps", OWN);
    world.content.roots = None;
    world.publish();
    world.start();
    world
        .until("removed", |_| skrs[0].get(BUNDLE).is_none())
        .await;
    let own = world.kcp.get("configmaps", OWN).unwrap();
    assert_eq!(own["data"]["lastSeen.trustBundle"], "deleted");
}

/// What was known is remembered here before anything else happens, though nothing changed.
#[tokio::test]
async fn what_the_signal_rolled_out_is_remembered() {
    let (mut world, _skrs) = World::converged(&["a"]).await;
    world.stop().await;
    let before = world.kcp.get("configmaps", OWN).unwrap();
    let mut record = before.clone();
    record["metadata"]["name"] = json!("rt-bootstrapper-signal-state");
    world.kcp.put("configmaps", record);
    world.kcp.delete("configmaps", OWN);
    world.start();
    world
        .until("remembered", |it| it.kcp.get("configmaps", OWN).is_some())
        .await;
    let own = world.kcp.get("configmaps", OWN).unwrap();
    assert_eq!(own["data"], before["data"]);
}
