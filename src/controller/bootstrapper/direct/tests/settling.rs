//! From nothing to everything, and that nothing follows from nothing.

use super::world::*;
use serde_json::json;

#[tokio::test]
async fn created_resource_installs_the_webhook_with_its_configuration_last() {
    let mut world = World::new();
    let skr = world.add("a").await;
    skr.lock().rolls = false;
    world.start();
    world
        .until_condition("a", "Installed", "False Installing")
        .await;
    world
        .until("the Deployment", |_| skr.get(DEPLOYMENT).is_some())
        .await;
    assert!(skr.get(WEBHOOK).is_none(), "no Pod may be sent to nobody");
    skr.roll_out();
    world.until_ready("a").await;
    let writes = skr.take();
    assert_eq!(writes.first().unwrap(), INSTALL[0], "{writes:?}");
    assert_eq!(writes.last().unwrap(), INSTALL[6], "{writes:?}");
    let document = writes.iter().position(|it| it == INSTALL[4]).unwrap();
    for part in [INSTALL[2], INSTALL[3]] {
        let part = writes.iter().position(|it| it == part).unwrap();
        assert!(part < document, "{writes:?}");
    }
    let installs = |it: &&String| [INSTALL[1], INSTALL[5]].contains(&it.as_str());
    let install = writes.iter().find(installs);
    let install = writes.iter().position(|it| Some(it) == install).unwrap();
    assert!(document < install, "content goes first: {writes:?}");
    let mut sorted = writes.clone();
    sorted.sort_unstable();
    let mut expected = INSTALL.map(str::to_owned).to_vec();
    expected.sort_unstable();
    assert_eq!(sorted, expected, "each object once");
}

#[tokio::test]
async fn the_status_says_what_is_there() {
    let (world, skrs) = World::converged(&["a"]).await;
    for kind in [
        "Reachable",
        "IdentityVerified",
        "Installed",
        "ConfigurationSynchronized",
        "Ready",
    ] {
        assert!(world.condition("a", kind).starts_with("True "), "{kind}");
    }
    let status = world.status("a");
    assert_eq!(status["clusterUID"], "cluster-a");
    assert_eq!(status["runtimeID"], "id-a");
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["webhook"]["version"], "0.1.0");
    assert_eq!(status["webhook"]["readyReplicas"], 2);
    let hash = "rt-bootstrapper.kyma-project.io/content-hash";
    for (key, object) in [
        (
            "pullSecretHash",
            skrs[0].kyma("secrets/registry-credentials"),
        ),
        ("trustBundleHash", skrs[0].get(BUNDLE)),
        (
            "configMapHash",
            skrs[0].kyma("configmaps/rt-bootstrapper-config"),
        ),
    ] {
        let said = status["configuration"][key].as_str().unwrap();
        assert_eq!(said, object.unwrap()["metadata"]["annotations"][hash]);
        assert_eq!(said.len(), 64);
    }
    let resource = world.kcp.get("runtimebootstrappers", "a").unwrap();
    let finalizers = &resource["metadata"]["finalizers"];
    assert_eq!(
        *finalizers,
        json!(["rt-bootstrapper.kyma-project.io/finalizer"])
    );
}

#[tokio::test]
async fn converged_runtimes_are_not_written_to_even_after_a_restart() {
    let (mut world, skrs) = World::converged(&["a", "b", "c"]).await;
    // The rollout's progress is written once a second.
    world
        .until("progress", |it| {
            it.written("apply configmaps/rt-bootstrapper-rollout") > 0
        })
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    world.kcp.lock().writes.clear();
    world.publish();
    world.pass("a").await;
    world.stop().await;
    world.start();
    world.until("passes", |it| it.passes() >= 3).await;
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    world.settle().await;
    assert_eq!(world.kcp.lock().writes, [""; 0]);
    for skr in &skrs {
        assert_eq!(skr.take(), [""; 0]);
        assert_eq!(skr.open(), 0, "an idle runtime holds no connection");
    }
}

#[tokio::test]
async fn drift_of_content_and_of_the_installation_is_repaired_at_the_resync() {
    let mut world = World::new();
    world.settings.resync = std::time::Duration::from_millis(400);
    let skr = world.add("a").await;
    world.start();
    world.until_ready("a").await;
    skr.take();
    skr.edit(BUNDLE, |it| it["spec"]["trustBundle"] = json!("foreign"));
    skr.lock().objects.remove(WEBHOOK);
    world
        .until("repaired", |_| {
            skr.get(WEBHOOK).is_some()
                && skr.get(BUNDLE).unwrap()["spec"]["trustBundle"] != "foreign"
        })
        .await;
    let mut writes = skr.take();
    writes.sort_unstable();
    assert_eq!(writes, [INSTALL[3], INSTALL[6]]);
}

#[tokio::test]
async fn an_upgrade_keeps_the_webhook_in_force_and_is_seen_in_the_status() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    world.stop().await;
    world.image = "registry.example/webhook:0.2.0".to_owned();
    world.start();
    world
        .until("upgraded", |it| {
            it.status("a")["webhook"]["version"] == "0.2.0"
        })
        .await;
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[5]]);
}

#[tokio::test]
async fn an_image_without_manifests_is_said_and_keeps_what_is_there() {
    let (world, skrs) = World::converged(&["a"]).await;
    let image = json!({"spec": {"webhook": {"image": "registry.example/webhook:broken"}}});
    world.kcp.merge("runtimebootstrappers", "a", &image);
    world
        .until_condition("a", "Installed", "False ApplyFailed")
        .await;
    assert_eq!(skrs[0].take(), [""; 0]);
    // It can be taken off all the same.
    world.kcp.delete("runtimebootstrappers", "a");
    world
        .until("gone", |it| {
            it.kcp.get("runtimebootstrappers", "a").is_none()
        })
        .await;
    assert!(skrs[0].get(DEPLOYMENT).is_none());
}
