//! Tests of a change from the controller `signal` to the controller `direct`.

use rstest::rstest;
use serde_json::json;

use super::env::*;

const OWN: &str = "rt-bootstrapper-direct-state";

/// A source is deleted after the controller `signal` stopped and before the first start of the controller `direct`.
#[rstest]
#[case::usual("kcp-system")]
#[case::another("elsewhere")]
#[tokio::test]
async fn what_the_signal_rolled_out_and_is_gone_is_removed(#[case] namespace: &'static str) {
    let mut env = Env::on(ControlPlane::in_namespace(Mode::Direct, namespace));
    let clusters = env.converge(&["a"]).await;
    env.stop().await;
    let mut record = env.kcp.object("configmaps", OWN).unwrap();
    record["metadata"]["name"] = json!("rt-bootstrapper-signal-state");
    env.kcp.put(record);
    env.kcp.delete("configmaps", OWN);
    env.content.roots = None;
    env.publish();
    env.start();
    env.until("removed", |_| clusters[0].find(BUNDLE).is_none())
        .await;
    let own = env.kcp.object("configmaps", OWN).unwrap();
    assert_eq!(own["data"]["lastSeen.trustBundle"], "deleted");
}

/// The state of the controller `signal` is stored first, although no source changed.
#[tokio::test]
async fn what_the_signal_rolled_out_is_remembered() {
    let (mut env, _clusters) = Env::converged(&["a"]).await;
    env.stop().await;
    let before = env.kcp.object("configmaps", OWN).unwrap();
    let mut record = before.clone();
    record["metadata"]["name"] = json!("rt-bootstrapper-signal-state");
    env.kcp.put(record);
    env.kcp.delete("configmaps", OWN);
    env.start();
    env.until("remembered", |it| {
        it.kcp.object("configmaps", OWN).is_some()
    })
    .await;
    let own = env.kcp.object("configmaps", OWN).unwrap();
    assert_eq!(own["data"], before["data"]);
}
