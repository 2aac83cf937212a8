//! Tests of Pods that wait for their trust bundle.

use std::time::Duration;

use policy::repairs::EvictionSettings;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::env::*;

const NOT_STARTED: &str = r#"trust_bundle_pods_not_started{node="node-1"}"#;

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_trust_bundle_is_counted_and_reported_once_until_it_starts() {
    let env = Environment::start(EvictionSettings::default()).await;
    for (name, is_adapted) in [("web", true), ("without-volume", false)] {
        env.put_pod(name, is_adapted);
        env.wait_for_volumes("shop", name);
    }
    // A Pod in a Namespace that is not covered.
    let mut other = env.server.get("pods", "shop", "web").unwrap();
    other["metadata"] = json!({"name": "web", "namespace": "other"});
    env.server.put(&other);
    sleep(Duration::from_secs(110)).await;
    assert_eq!(env.value(NOT_STARTED), None, "a kubelet takes its time");
    env.until(NOT_STARTED, Some(1.0)).await;
    // Neither another list of all Pods nor a write of the Pod repeats the Event.
    env.put_document("mirror.example/hub");
    sleep(Duration::from_secs(30)).await;
    env.server.edit("pods", ("shop", "web"), |pod| {
        pod["metadata"]["labels"] = json!({"team": "a"});
    });
    sleep(Duration::from_mins(5)).await;
    assert_eq!(env.value(NOT_STARTED), Some(1.0));
    let events = env.server.requests_of("create|patch events").into_iter();
    let events = events.filter(|it| it.body["reason"] == "TrustBundleNotMounted");
    let events: Vec<Value> = events.map(|it| it.body).collect();
    let [event] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(event["regarding"]["namespace"], "shop");
    assert_eq!(event["regarding"]["name"], "web");
    let note = event["note"].as_str().unwrap();
    for part in ["node-1", "FailedMount", "ClusterTrustBundleProjection"] {
        assert!(note.contains(part), "{note}");
    }
    env.put_pod("web", true);
    env.until(NOT_STARTED, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_or_a_leader_that_ends_leaves_no_figure_of_a_node() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    for name in ["web", "api"] {
        env.put_pod(name, true);
        env.wait_for_volumes("shop", name);
    }
    sleep(Duration::from_secs(110)).await;
    env.until(NOT_STARTED, Some(2.0)).await;
    env.server.remove("pods", "shop", "api");
    env.until(NOT_STARTED, Some(1.0)).await;
    // Pods are not watched between two lists, which are ten seconds apart.
    for mirror in ["one.example", "two.example"] {
        env.put_document(mirror);
        sleep(Duration::from_secs(2)).await;
    }
    env.server.remove("pods", "shop", "web");
    env.until(NOT_STARTED, None).await;
    env.put_pod("web", true);
    env.wait_for_volumes("shop", "web");
    sleep(Duration::from_secs(110)).await;
    env.until(NOT_STARTED, Some(1.0)).await;
    env.stop().await;
    assert_eq!(env.value(NOT_STARTED), None);
}
