//! Tests of a deletion timeout that expires while the controller runs, without any event at that time.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;

use super::env::*;

/// The minimum that the CustomResourceDefinition allows.
const DEADLINE: SignedDuration = SignedDuration::from_secs(60);

/// The time until the deadline after the test changed the deletion timestamp.
const LEFT: SignedDuration = SignedDuration::from_secs(2);

#[rstest]
#[case::uninstall("Delete")]
#[case::hand_back("Orphan")]
#[tokio::test]
async fn an_unreachable_runtime_is_waited_for_until_the_deadline_passes(#[case] policy: &str) {
    let (env, clusters) = Env::converged(&["a"]).await;
    clusters[0].outage(503);
    let spec = json!({"deletionPolicy": policy, "deletionTimeoutSeconds": DEADLINE.as_secs()});
    env.kcp
        .merge("runtimebootstrappers", "a", &json!({"spec": spec}));
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    env.kcp.delete("runtimebootstrappers", "a");
    let passes = env.passes();
    env.until("tried again and again", |it| it.passes() > passes + 5)
        .await;
    let resource = env.kcp.object("runtimebootstrappers", "a").unwrap();
    let ours = "rt-bootstrapper.kyma-project.io/finalizer";
    assert_eq!(resource["metadata"]["finalizers"], json!([ours]));
    let abandoned = |it: &Env| it.metric("deletion_timeouts_total", 1);
    assert!(!abandoned(&env));
    // The deadline depends on the deletion timestamp of the control plane.
    let deadline = Timestamp::from_second(Timestamp::now().as_second()).unwrap() + LEFT;
    let since = (deadline - DEADLINE).to_string();
    let moved = json!({"metadata": {"deletionTimestamp": since}});
    env.kcp.merge("runtimebootstrappers", "a", &moved);
    let is_gone = |it: &Env| it.kcp.object("runtimebootstrappers", "a").is_none();
    env.until("the resource is gone", is_gone).await;
    assert!(Timestamp::now() >= deadline, "it was given up too early");
    assert!(abandoned(&env));
    // The objects on the runtime stay.
    assert_eq!(clusters[0].take(), [""; 0]);
    assert!(clusters[0].find(WEBHOOK).is_some());
}
