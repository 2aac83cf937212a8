//! Tests of a configuration document that the webhook on a runtime supports only partly: it waits for a webhook that
//! supports all of it.

use rstest::rstest;
use serde_json::{Value, json};

use super::env::*;
use crate::runtime_cluster::RuntimeCluster;

/// Returns a document with a key that the public manager does not support, and this webhook supports since 0.1.0.
fn newer() -> String {
    let document = json!({"overrides": {}, "fipsVariables": ["X"]});
    document.to_string()
}

fn has_newer(cluster: &RuntimeCluster) -> bool {
    let map = cluster.find(DOCUMENT).unwrap();
    map["data"].to_string().contains("fipsVariables")
}

/// Waits until the document waits for another webhook. Returns the message of the condition.
async fn until_held_back(env: &Env) -> String {
    env.until_condition(
        "a",
        "ConfigurationSynchronized",
        "False IncompatibleWebhookVersion",
    )
    .await;
    let conditions = env.status("a")["conditions"].as_array().unwrap().clone();
    let found = conditions
        .iter()
        .find(|it| it["type"] == "ConfigurationSynchronized");
    found.unwrap()["message"].as_str().unwrap().to_owned()
}

/// No other source changes, so nothing is written before the upgrade.
#[rstest]
#[case::ours_and_older("0.0.9", "0.0.9 is running")]
#[case::ours_without_a_version("latest", "another one is running")]
#[tokio::test]
async fn a_document_waits_for_the_upgrade_of_the_webhook(
    #[case] version: &str,
    #[case] running: &str,
) {
    let mut env = Env::new();
    env.image = format!("registry.example/webhook:{version}");
    let clusters = env.converge(&["a"]).await;
    let before = clusters[0].find(DOCUMENT);
    env.content.document = Some(newer());
    env.publish();
    let said = until_held_back(&env).await;
    for part in [
        "key fipsVariables",
        "requires webhook version 0.1.0",
        running,
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(
        env.condition("a", "Ready"),
        "False IncompatibleWebhookVersion"
    );
    env.pass("a").await;
    assert_eq!(clusters[0].take(), [""; 0]);
    assert_eq!(clusters[0].find(DOCUMENT), before);
    let upgrade = json!({"spec": {"webhook": {"image": "registry.example/webhook:0.1.0"}}});
    env.kcp.merge("runtimebootstrappers", "a", &upgrade);
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[5], INSTALL[4]]);
    assert!(has_newer(&clusters[0]));
}

/// Installs the webhook of KIM. Its Deployment has no annotation of the controller, and its version does not show
/// which keys it supports.
fn installers(cluster: &RuntimeCluster) -> Option<Value> {
    cluster.put(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "rt-bootstrapper-controller-manager", "namespace": "kyma-system",
            "labels": {"app.kubernetes.io/version": "1.7.0"},
        },
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "rt-bootstrapper"}}},
    }));
    cluster.put(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rt-bootstrapper-config", "namespace": "kyma-system"},
        "data": {"rt-bootstrapper-config.json": "{\"overrides\":{}}"},
    }));
    cluster.find(DOCUMENT)
}

/// The document of KIM stays until the last Pod of KIM is deleted, because these Pods read the document, too.
#[tokio::test]
async fn a_document_waits_until_the_webhook_of_another_installer_is_replaced() {
    let mut env = Env::new();
    env.content.document = Some(newer());
    env.publish();
    let cluster = env.add("a").await;
    let before = installers(&cluster);
    cluster.stop_rollouts();
    env.start();
    let said = until_held_back(&env).await;
    assert!(said.contains("another one is running"), "{said}");
    env.until("the Deployment is replaced", |_| {
        cluster.answered(INSTALL[5])
    })
    .await;
    env.more_passes(4).await;
    assert_eq!(
        env.condition("a", "ConfigurationSynchronized"),
        "False IncompatibleWebhookVersion"
    );
    assert!(!cluster.take().iter().any(|it| it == INSTALL[4]));
    assert_eq!(cluster.find(DOCUMENT), before);
    cluster.roll_out();
    env.until_ready("a").await;
    assert!(has_newer(&cluster));
    let writes = cluster.take();
    assert_eq!(writes.iter().filter(|it| *it == INSTALL[4]).count(), 1);
}
