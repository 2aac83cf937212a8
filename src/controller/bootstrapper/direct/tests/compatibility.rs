//! A document that the webhook on a runtime would understand in part only waits for one that understands it all.

use rstest::rstest;
use serde_json::{Value, json};

use super::skr::Skr;
use super::world::*;

const DOCUMENT: &str = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";

/// A document with a key that the public manager does not know, and ours since 0.1.0.
fn newer() -> String {
    let document = json!({"overrides": {}, "fipsVariables": ["X"]});
    document.to_string()
}

fn has_newer(skr: &Skr) -> bool {
    let map = skr.get(DOCUMENT).unwrap();
    map["data"].to_string().contains("fipsVariables")
}

/// What is said of the content while the document waits.
async fn until_held_back(world: &World) -> String {
    world
        .until_condition(
            "a",
            "ConfigurationSynchronized",
            "False IncompatibleWebhookVersion",
        )
        .await;
    let conditions = world.status("a")["conditions"].as_array().unwrap().clone();
    let found = conditions
        .iter()
        .find(|it| it["type"] == "ConfigurationSynchronized");
    found.unwrap()["message"].as_str().unwrap().to_owned()
}

/// Nothing else changes, so nothing at all is written before the upgrade.
#[rstest]
#[case::ours_and_older("0.0.9", "0.0.9 is running")]
#[case::ours_without_a_version("latest", "another one is running")]
#[tokio::test]
async fn a_document_waits_for_the_upgrade_of_the_webhook(
    #[case] version: &str,
    #[case] running: &str,
) {
    let mut world = World::new();
    world.image = format!("registry.example/webhook:{version}");
    let skrs = world.converge(&["a"]).await;
    let before = skrs[0].get(DOCUMENT);
    world.content.document = Some(newer());
    world.publish();
    let said = until_held_back(&world).await;
    for part in [
        "key fipsVariables",
        "requires webhook version 0.1.0",
        running,
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(
        world.condition("a", "Ready"),
        "False IncompatibleWebhookVersion"
    );
    world.pass("a").await;
    assert_eq!(skrs[0].take(), [""; 0]);
    assert_eq!(skrs[0].get(DOCUMENT), before);
    let upgrade = json!({"spec": {"webhook": {"image": "registry.example/webhook:0.1.0"}}});
    world.kcp.merge("runtimebootstrappers", "a", &upgrade);
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[5], INSTALL[4]]);
    assert!(has_newer(&skrs[0]));
}

/// The installer's webhook: its Deployment has no annotation of ours, and its version number says nothing about ours.
fn installers(skr: &Skr) -> Value {
    let label = json!({"app.kubernetes.io/version": "1.7.0"});
    let replicas = json!({
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [{"type": "Available", "status": "True"}],
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"uid": "u1", "resourceVersion": "1", "generation": 1, "labels": label},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "rt-bootstrapper"}}},
        "status": replicas,
    });
    let document = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "u2", "resourceVersion": "2"},
        "data": {"rt-bootstrapper-config.json": "{\"overrides\":{}}"},
    });
    let objects = &mut skr.lock().objects;
    objects.insert(DEPLOYMENT.to_owned(), deployment);
    objects.insert(DOCUMENT.to_owned(), document.clone());
    document
}

/// Until the last of the installer's Pods is gone, its document stays: they read it too.
#[tokio::test]
async fn a_document_waits_until_the_webhook_of_another_installer_is_replaced() {
    let mut world = World::new();
    world.content.document = Some(newer());
    world.publish();
    let skr = world.add("a").await;
    let before = installers(&skr);
    skr.lock().rolls = false;
    world.start();
    let said = until_held_back(&world).await;
    assert!(said.contains("another one is running"), "{said}");
    world
        .until("the Deployment is replaced", |_| {
            skr.lock().writes.iter().any(|it| it == INSTALL[5])
        })
        .await;
    let passes = world.passes();
    world
        .until("more passes", |it| it.passes() > passes + 3)
        .await;
    assert_eq!(
        world.condition("a", "ConfigurationSynchronized"),
        "False IncompatibleWebhookVersion"
    );
    assert!(!skr.take().iter().any(|it| it == INSTALL[4]));
    assert_eq!(skr.get(DOCUMENT), Some(before));
    skr.roll_out();
    world.until_ready("a").await;
    assert!(has_newer(&skr));
    let writes = skr.take();
    assert_eq!(writes.iter().filter(|it| *it == INSTALL[4]).count(), 1);
}
