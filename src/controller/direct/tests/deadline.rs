//! The deadline of a deletion passes while the controller runs, and nothing happens then that would tell it so.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;

use super::env::*;

/// The least that the definition allows.
const DEADLINE: SignedDuration = SignedDuration::from_secs(60);

/// How much of it is left once the control plane's clock has been moved.
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
    // Time is a matter of when the control plane says that the deletion was asked for.
    let deadline = Timestamp::from_second(Timestamp::now().as_second()).unwrap() + LEFT;
    let since = (deadline - DEADLINE).to_string();
    let moved = json!({"metadata": {"deletionTimestamp": since}});
    env.kcp.merge("runtimebootstrappers", "a", &moved);
    let is_gone = |it: &Env| it.kcp.object("runtimebootstrappers", "a").is_none();
    env.until("the resource is gone", is_gone).await;
    assert!(Timestamp::now() >= deadline, "it was given up too early");
    assert!(abandoned(&env));
    // What is on the runtime stays.
    assert_eq!(clusters[0].take(), [""; 0]);
    assert!(clusters[0].find(WEBHOOK).is_some());
}
