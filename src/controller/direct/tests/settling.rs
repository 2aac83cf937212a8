//! Tests of a new installation, and of unchanged runtimes, which are not written to.

use std::time::Duration;

use serde_json::json;
use testkit::apiserver::Recorded;

use super::env::*;
use super::gates::{CONFIGURATION_LANE, WEBHOOK_LANE, is_completed, progress};

#[tokio::test]
async fn created_resource_installs_the_webhook_with_its_configuration_last() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.stop_rollouts();
    env.start();
    env.until_condition("a", "Installed", "False Installing")
        .await;
    env.until("the Deployment", |_| cluster.find(DEPLOYMENT).is_some())
        .await;
    assert!(
        cluster.find(WEBHOOK).is_none(),
        "no Pod may be sent to a webhook that does not run"
    );
    cluster.roll_out();
    env.until_ready("a").await;
    for apply in cluster.requests_of("apply") {
        let query = "?fieldManager=rt-bootstrapper-controller&force=true";
        assert!(apply.uri.ends_with(query), "{}", apply.uri);
    }
    let writes = cluster.take();
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

/// Kubeconfigs and other Secrets of the control plane are read only with single requests.
#[tokio::test]
async fn secrets_of_the_control_plane_are_listed_and_watched_without_their_data() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    for verb in ["list", "watch"] {
        let requests = env.kcp.requests_of(&format!("{verb} secrets"));
        assert!(!requests.is_empty(), "{verb}");
        let partial = |it: &Recorded| it.accept.contains("as=PartialObjectMetadata");
        assert!(requests.iter().all(partial), "{requests:?}");
    }
    let resources = env.kcp.requests_of("list runtimebootstrappers");
    assert!(!resources[0].accept.contains("PartialObjectMetadata"));
}

#[tokio::test]
async fn the_status_says_what_is_there() {
    let (env, clusters) = Env::converged(&["a"]).await;
    for kind in [
        "Reachable",
        "IdentityVerified",
        "Installed",
        "ConfigurationSynchronized",
        "Ready",
    ] {
        assert!(env.condition("a", kind).starts_with("True "), "{kind}");
    }
    let status = env.status("a");
    assert_eq!(status["clusterUID"], "cluster-a");
    assert_eq!(status["runtimeID"], "id-a");
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["webhook"]["version"], "0.1.0");
    assert_eq!(status["webhook"]["readyReplicas"], 2);
    let hash = "rt-bootstrapper.kyma-project.io/content-hash";
    for (key, object) in [
        (
            "pullSecretHash",
            clusters[0].kyma("secrets/registry-credentials"),
        ),
        ("trustBundleHash", clusters[0].find(BUNDLE)),
        (
            "configMapHash",
            clusters[0].kyma("configmaps/rt-bootstrapper-config"),
        ),
    ] {
        let said = status["configuration"][key].as_str().unwrap();
        assert_eq!(said, object.unwrap()["metadata"]["annotations"][hash]);
        assert_eq!(said.len(), 64);
    }
    let resource = env.kcp.object("runtimebootstrappers", "a").unwrap();
    let finalizers = &resource["metadata"]["finalizers"];
    assert_eq!(
        *finalizers,
        json!(["rt-bootstrapper.kyma-project.io/finalizer"])
    );
}

/// The API server sends no Pod before the webhook has written its `caBundle`, and no event reports that write to the
/// controller.
#[tokio::test]
async fn a_runtime_is_ready_once_its_webhook_can_be_called() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.behave(|it| it.ca_bundle = None);
    env.start();
    env.until("the webhook configuration is applied", |it| {
        it.status("a").to_string().contains("has no caBundle")
    })
    .await;
    env.until_condition("a", "Ready", "False Installing").await;
    cluster.change("mutatingwebhookconfigurations rt-bootstrapper", |it| {
        it["webhooks"][0]["clientConfig"]["caBundle"] = json!("Q0E=");
    });
    env.until_ready("a").await;
}

#[tokio::test]
async fn converged_runtimes_are_not_written_to_even_after_a_restart() {
    let (mut env, clusters) = Env::converged(&["a", "b", "c"]).await;
    // The progress of rollouts is written once a second.
    env.until("progress", |it| {
        [CONFIGURATION_LANE, WEBHOOK_LANE]
            .iter()
            .all(|lane| is_completed(it, lane) && progress(it, lane)["observedGeneration"] == 1)
    })
    .await;
    env.settle().await;
    drop(env.kcp.take_requests());
    env.publish();
    env.pass("a").await;
    env.stop().await;
    for cluster in &clusters {
        cluster.take();
    }
    // The time of the resync is random, and must not occur during the test.
    env.settings.resync = std::time::Duration::from_hours(24);
    env.start();
    env.until_passes(3).await;
    // Waits longer than the delay of the status of a rollout.
    let mut interval = tokio::time::interval(std::time::Duration::from_millis(1200));
    interval.tick().await;
    interval.tick().await;
    env.settle().await;
    assert_eq!(env.kcp.writes(), [""; 0]);
    for cluster in &clusters {
        // The manifests of complete runtimes are read at the resync, not all at once after a start.
        assert_eq!(cluster.count("get serviceaccounts"), 0);
        assert_eq!(cluster.take(), [""; 0]);
        assert_eq!(cluster.open(), 0, "an idle runtime holds no connection");
    }
}

#[tokio::test]
async fn drift_of_content_and_of_the_installation_is_repaired_at_the_resync() {
    let mut env = Env::new();
    env.settings.resync = std::time::Duration::from_millis(400);
    let cluster = env.add("a").await;
    env.start();
    env.until_ready("a").await;
    cluster.take();
    cluster.change(BUNDLE, |it| it["spec"]["trustBundle"] = json!("foreign"));
    cluster.drop_object(WEBHOOK);
    env.until("repaired", |_| {
        cluster.find(WEBHOOK).is_some()
            && cluster.find(BUNDLE).unwrap()["spec"]["trustBundle"] != "foreign"
    })
    .await;
    let mut writes = cluster.take();
    writes.sort_unstable();
    assert_eq!(writes, [INSTALL[3], INSTALL[6]]);
}

/// As many keys as an API server stores. Their removal and other changes do not wait for each other.
#[tokio::test]
async fn keys_that_fill_the_config_map_are_removed() {
    let mut env = Env::new();
    env.settings.resync = std::time::Duration::from_millis(400);
    let cluster = env.add("a").await;
    env.start();
    env.until_ready("a").await;
    let expected = cluster.find(DOCUMENT).unwrap()["data"].clone();
    cluster.change(DOCUMENT, |it| {
        let mut fields = serde_json::Map::new();
        for number in 0..75_000 {
            it["data"][format!("{number:x}")] = json!("");
            fields.insert(format!("f:{number:x}"), json!({}));
        }
        let owner = json!({
            "manager": "customer", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": fields},
        });
        it["metadata"]["managedFields"]
            .as_array_mut()
            .unwrap()
            .push(owner);
    });
    env.until("removed", |_| {
        cluster.find(DOCUMENT).unwrap()["data"] == expected
    })
    .await;
    env.until_ready("a").await;
}

#[tokio::test]
async fn an_upgrade_keeps_the_webhook_in_force_and_is_seen_in_the_status() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    env.stop().await;
    env.image = "registry.example/webhook:0.2.0".to_owned();
    env.start();
    env.until("upgraded", |it| {
        it.status("a")["webhook"]["version"] == "0.2.0"
    })
    .await;
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[5]]);
}

#[tokio::test]
async fn an_image_without_manifests_is_said_and_keeps_what_is_there() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let image = json!({"spec": {"webhook": {"image": "registry.example/webhook:broken"}}});
    env.kcp.merge("runtimebootstrappers", "a", &image);
    env.until_condition("a", "Installed", "False ApplyFailed")
        .await;
    assert_eq!(clusters[0].take(), [""; 0]);
    // The resource can still be deleted, which deletes the installation.
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("gone", |it| {
        it.kcp.object("runtimebootstrappers", "a").is_none()
    })
    .await;
    assert!(clusters[0].find(DEPLOYMENT).is_none());
}

/// An installation takes several reconciles, and each reconcile enables the next one. A slow Deployment does not
/// delay the following steps.
#[tokio::test]
async fn a_step_of_an_installation_follows_the_one_before_without_a_growing_delay() {
    let mut env = Env::new();
    env.settings.progress_backoff.cap = Duration::from_hours(1);
    let cluster = env.add("a").await;
    cluster.stop_rollouts();
    env.start();
    env.until("the Deployment", |_| cluster.find(DEPLOYMENT).is_some())
        .await;
    // After thirteen reads without a change, the next delay is at least 40 seconds.
    for _ in 0..13 {
        env.pass("a").await;
    }
    cluster.roll_out();
    env.touch("a");
    env.until_ready("a").await;
}

/// A Runtime exists long before its cluster. The time without a kubeconfig must not delay the installation.
#[tokio::test]
async fn failures_before_the_kubeconfig_existed_do_not_delay_the_installation() {
    let mut env = Env::new();
    // After a dozen attempts, the delay exceeds the time limit of the test.
    env.settings.progress_backoff.cap = Duration::from_hours(1);
    let cluster = env.add("a").await;
    cluster.stop_rollouts();
    env.kcp.delete("secrets", "kubeconfig-id-a");
    env.start();
    env.until("many attempts", |it| it.passes() > 14).await;
    env.connect("a", &cluster, "first");
    env.until("the Deployment", |_| cluster.find(DEPLOYMENT).is_some())
        .await;
    cluster.roll_out();
    env.until_ready("a").await;
}
