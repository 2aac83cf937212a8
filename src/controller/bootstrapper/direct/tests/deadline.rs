//! The deadline of a deletion passes while the controller runs, and nothing happens then that would tell it so.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;

use super::world::*;

/// The least that the definition allows.
const DEADLINE: SignedDuration = SignedDuration::from_secs(60);

/// How much of it is left once the control plane's clock has been moved.
const LEFT: SignedDuration = SignedDuration::from_secs(2);

#[rstest]
#[case::uninstall("Delete")]
#[case::hand_back("Orphan")]
#[tokio::test]
async fn a_runtime_in_trouble_is_waited_for_until_the_deadline_and_no_longer(#[case] policy: &str) {
    let (world, skrs) = World::converged(&["a"]).await;
    skrs[0].lock().fault = Some((503, 0));
    let spec = json!({"deletionPolicy": policy, "deletionTimeoutSeconds": DEADLINE.as_secs()});
    world
        .kcp
        .merge("runtimebootstrappers", "a", &json!({"spec": spec}));
    world
        .until_condition("a", "Reachable", "False APIServerError")
        .await;
    world.kcp.delete("runtimebootstrappers", "a");
    let passes = world.passes();
    world
        .until("tried again and again", |it| it.passes() > passes + 5)
        .await;
    let resource = world.kcp.get("runtimebootstrappers", "a").unwrap();
    let ours = "rt-bootstrapper.kyma-project.io/finalizer";
    assert_eq!(resource["metadata"]["finalizers"], json!([ours]));
    let abandoned = |it: &World| it.metrics().contains("deletion_timeouts_total 1");
    assert!(!abandoned(&world));
    // Time is a matter of when the control plane says that the deletion was asked for.
    let deadline = Timestamp::now() + LEFT;
    let since = (deadline - DEADLINE).to_string();
    let moved = json!({"metadata": {"deletionTimestamp": since}});
    world.kcp.merge("runtimebootstrappers", "a", &moved);
    let is_gone = |it: &World| it.kcp.get("runtimebootstrappers", "a").is_none();
    world.until("the resource is gone", is_gone).await;
    assert!(Timestamp::now() >= deadline, "it was given up too early");
    assert!(abandoned(&world));
    // What is on the runtime stays.
    assert_eq!(skrs[0].take(), [""; 0]);
    assert!(skrs[0].get(WEBHOOK).is_some());
}
