//! Tests of the settings of the webhook: of the controller, of a single runtime, and of the configuration document.

use serde_json::{Value, json};

use super::env::*;
use super::gates::{WEBHOOK_LANE, progress};
use crate::runtime_cluster::RuntimeCluster;

const ROLE: &str = "clusterroles rt-bootstrapper";

fn arguments(cluster: &RuntimeCluster) -> Value {
    let deployment = cluster.find(DEPLOYMENT).unwrap_or_default();
    let place = "/spec/template/spec/containers/0/args";
    deployment.pointer(place).cloned().unwrap_or_default()
}

async fn until_landscape(env: &Env, cluster: &RuntimeCluster, landscape: &str) {
    let expected = json!([format!("--landscape={landscape}")]);
    env.until(landscape, |_| arguments(cluster) == expected)
        .await;
}

fn set(env: &Env, name: &str, webhook: &Value) {
    let spec = json!({"spec": {"webhook": webhook}});
    env.kcp.merge("runtimebootstrappers", name, &spec);
}

#[tokio::test]
async fn landscape_of_the_controller_reaches_runtimes_and_a_change_of_it_rolls_out() {
    let mut env = Env::new();
    env.webhook.landscape = Some("eu-1".to_owned());
    let clusters = env.converge(&["a"]).await;
    assert_eq!(arguments(&clusters[0]), json!(["--landscape=eu-1"]));
    env.stop().await;
    env.webhook.landscape = Some("eu-2".to_owned());
    env.start();
    until_landscape(&env, &clusters[0], "eu-2").await;
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[5]]);
}

#[tokio::test]
async fn landscape_of_a_resource_reaches_that_runtime_alone_and_drift_of_it_is_repaired() {
    let mut env = Env::new();
    env.webhook.landscape = Some("all".to_owned());
    let clusters = env.converge(&["a", "b"]).await;
    env.resync_every(std::time::Duration::from_millis(400))
        .await;
    set(&env, "a", &json!({"landscape": "own"}));
    until_landscape(&env, &clusters[0], "own").await;
    env.until_ready("a").await;
    clusters[0].change(DEPLOYMENT, |it| {
        it["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--landscape=edited"]);
    });
    until_landscape(&env, &clusters[0], "own").await;
    set(&env, "a", &json!({"landscape": null}));
    until_landscape(&env, &clusters[0], "all").await;
    assert_eq!(arguments(&clusters[1]), json!(["--landscape=all"]));
    assert_eq!(clusters[1].take(), [""; 0]);
}

/// The webhook of the runtime reads the objects by these names.
#[tokio::test]
async fn names_in_a_resource_are_the_names_under_which_the_controller_writes() {
    let mut env = Env::new();
    let clusters = env.add_all(&["a"]).await;
    let names = json!({"configMapName": "our-config", "pullSecretName": "our-pulls"});
    set(&env, "a", &names);
    env.start();
    env.until_ready("a").await;
    let document = clusters[0].kyma("configmaps/our-config").unwrap();
    let secret = clusters[0].kyma("secrets/our-pulls").unwrap();
    let annotation = |object: &Value, key: &str| {
        object["metadata"]["annotations"][format!("rt-bootstrapper.kyma-project.io/{key}")].clone()
    };
    let required = annotation(&document, "requires-pull-secret");
    assert_eq!(required, annotation(&secret, "content-hash"));
    assert_ne!(required, Value::Null);
    assert_eq!(clusters[0].kyma("configmaps/rt-bootstrapper-config"), None);
    assert_eq!(clusters[0].kyma("secrets/registry-credentials"), None);
}

/// Without the permission, the webhook could not copy the Secret.
#[tokio::test]
async fn secret_that_the_document_names_is_permitted_to_the_webhook() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    assert_eq!(clusters[0].find(ROLE), None);
    let document = json!({"overrides": {}, "imagePullSecret": {"name": "theirs"}});
    env.content.document = Some(document.to_string());
    env.publish();
    let named = |name: &str| {
        let role = clusters[0].find(ROLE).unwrap_or_default();
        role["rules"][0]["resourceNames"] == json!([name])
    };
    env.until("the right", |_| named("theirs")).await;
    env.until_ready("a").await;
    // An invalid document does not change the permission.
    env.content.document = Some("{".to_owned());
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", "False InvalidSource")
        .await;
    env.pass("a").await;
    assert!(named("theirs"));
    env.until("the rollout is reported", |it| {
        let revision = &progress(it, WEBHOOK_LANE)["revision"];
        *revision == it.status("a")["webhook"]["updateRevision"]
    })
    .await;
    // The next leader has not read a valid document.
    for document in [Some("{".to_owned()), None] {
        env.stop().await;
        env.content.document = document;
        env.publish();
        env.start();
        env.pass("a").await;
        env.settle().await;
        assert!(named("theirs"));
    }
}
