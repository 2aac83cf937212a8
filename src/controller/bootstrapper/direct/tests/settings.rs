//! Settings of the webhook: the controller's, a runtime's own, and what the configuration document asks for.

use serde_json::{Value, json};

use super::skr::Skr;
use super::world::*;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/rt-bootstrapper";

fn arguments(skr: &Skr) -> Value {
    let deployment = skr.get(DEPLOYMENT).unwrap_or_default();
    let place = "/spec/template/spec/containers/0/args";
    deployment.pointer(place).cloned().unwrap_or_default()
}

async fn until_landscape(world: &World, skr: &Skr, landscape: &str) {
    let expected = json!([format!("--landscape={landscape}")]);
    world.until(landscape, |_| arguments(skr) == expected).await;
}

fn set(world: &World, name: &str, webhook: &Value) {
    let spec = json!({"spec": {"webhook": webhook}});
    world.kcp.merge("runtimebootstrappers", name, &spec);
}

#[tokio::test]
async fn landscape_of_the_controller_reaches_runtimes_and_a_change_of_it_rolls_out() {
    let mut world = World::new();
    world.webhook.landscape = Some("eu-1".to_owned());
    let skrs = world.converge(&["a"]).await;
    assert_eq!(arguments(&skrs[0]), json!(["--landscape=eu-1"]));
    world.stop().await;
    world.webhook.landscape = Some("eu-2".to_owned());
    world.start();
    until_landscape(&world, &skrs[0], "eu-2").await;
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[5]]);
}

#[tokio::test]
async fn landscape_of_a_resource_reaches_that_runtime_alone_and_drift_of_it_is_repaired() {
    let mut world = World::new();
    world.settings.resync = std::time::Duration::from_millis(400);
    world.webhook.landscape = Some("all".to_owned());
    let skrs = world.converge(&["a", "b"]).await;
    set(&world, "a", &json!({"landscape": "own"}));
    until_landscape(&world, &skrs[0], "own").await;
    world.until_ready("a").await;
    skrs[0].edit(DEPLOYMENT, |it| {
        it["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--landscape=edited"]);
    });
    until_landscape(&world, &skrs[0], "own").await;
    set(&world, "a", &json!({"landscape": null}));
    until_landscape(&world, &skrs[0], "all").await;
    assert_eq!(arguments(&skrs[1]), json!(["--landscape=all"]));
    assert_eq!(skrs[1].take(), [""; 0]);
}

/// The webhook of that runtime reads the objects by these names.
#[tokio::test]
async fn names_in_a_resource_are_the_names_under_which_the_controller_writes() {
    let mut world = World::new();
    let skrs = world.add_all(&["a"]).await;
    let names = json!({"configMapName": "our-config", "pullSecretName": "our-pulls"});
    set(&world, "a", &names);
    world.start();
    world.until_ready("a").await;
    let document = skrs[0].kyma("configmaps/our-config").unwrap();
    let secret = skrs[0].kyma("secrets/our-pulls").unwrap();
    let annotation = |object: &Value, key: &str| {
        object["metadata"]["annotations"][format!("rt-bootstrapper.kyma-project.io/{key}")].clone()
    };
    let required = annotation(&document, "requires-pull-secret");
    assert_eq!(required, annotation(&secret, "content-hash"));
    assert_ne!(required, Value::Null);
    assert_eq!(skrs[0].kyma("configmaps/rt-bootstrapper-config"), None);
    assert_eq!(skrs[0].kyma("secrets/registry-credentials"), None);
}

/// Without the right to it the webhook could not copy it.
#[tokio::test]
async fn secret_that_the_document_names_is_permitted_to_the_webhook() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    assert_eq!(skrs[0].get(ROLE), None);
    let document = json!({"overrides": {}, "imagePullSecret": {"name": "theirs"}});
    world.content.document = Some(document.to_string());
    world.publish();
    let named = |name: &str| {
        let role = skrs[0].get(ROLE).unwrap_or_default();
        role["rules"][0]["resourceNames"] == json!([name])
    };
    world.until("the right", |_| named("theirs")).await;
    world.until_ready("a").await;
    // A document that cannot be read says nothing about it.
    world.content.document = Some("{".to_owned());
    world.publish();
    world
        .until_condition("a", "ConfigurationSynchronized", "False InvalidSource")
        .await;
    world.pass("a").await;
    assert!(named("theirs"));
}
