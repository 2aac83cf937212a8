//! Tests of restrictions of a runtime: the condition names the restriction, and missing objects are written when it is removed.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Rights;

use super::env::*;
use super::gates;
use crate::runtime_cluster::RuntimeCluster;

const KYMA: &str = "namespaces kyma-system";

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_not_written_into() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    clusters[0].change(KYMA, |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    env.content.registry("two.example");
    env.publish();
    for kind in ["Installed", "ConfigurationSynchronized"] {
        env.until_condition("a", kind, "False NamespaceTerminating")
            .await;
    }
    env.until("the other one is written", |_| {
        !clusters[1].take().is_empty()
    })
    .await;
    env.more_passes(3).await;
    assert_eq!(clusters[0].take(), [""; 0]);
    clusters[0].change(KYMA, |it| {
        let metadata = it["metadata"].as_object_mut().unwrap();
        metadata.remove("deletionTimestamp");
    });
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn a_quota_that_is_exhausted_is_named_and_nothing_requires_what_is_not_there() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    clusters[0].drop_object("secrets kyma-system/registry-credentials");
    clusters[0].behave(|it| it.quota_exceeded = true);
    env.content.password = Some("two");
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    let conditions = env.status("a")["conditions"].to_string();
    assert!(conditions.contains("a quota is exceeded"), "{conditions}");
    env.until("the other one is written", |_| {
        clusters[1].writes() == [INSTALL[2], INSTALL[4]]
    })
    .await;
    assert!(clusters[0].writes().iter().all(|it| it == INSTALL[2]));
    clusters[0].behave(|it| it.quota_exceeded = false);
    env.until_ready("a").await;
    // The write that succeeds may have been sent before the quota was removed.
    let mut writes = clusters[0].take();
    assert_eq!(writes.pop().as_deref(), Some(INSTALL[4]));
    assert!(!writes.is_empty() && writes.iter().all(|it| it == INSTALL[2]));
}

const CONTENT_HASH: &str = "rt-bootstrapper.kyma-project.io/content-hash";

/// The configuration is complete, and the later write of the webhook configuration is rejected.
#[tokio::test]
async fn the_configuration_that_arrived_is_said_although_a_later_write_is_refused() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    env.resync_every(Duration::from_millis(400)).await;
    let cluster = &clusters[0];
    let before = env.status("a")["configuration"].clone();
    cluster.refuse(INSTALL[6], 422);
    cluster.drop_object(WEBHOOK);
    env.until_condition("a", "Installed", "False ApplyFailed")
        .await;
    cluster.take();
    env.content.password = Some("two");
    env.publish();
    env.until("tried again with the new document", |_| {
        let writes = cluster.writes();
        let document = writes.iter().position(|it| it == INSTALL[4]);
        document.is_some_and(|at| writes[at..].iter().filter(|it| *it == INSTALL[6]).count() >= 3)
    })
    .await;
    assert_eq!(env.condition("a", "Installed"), "False ApplyFailed");
    let said = env.condition("a", "ConfigurationSynchronized");
    assert_eq!(said, "True Synchronized");
    let secret = cluster.kyma("secrets/registry-credentials").unwrap();
    let hash = &secret["metadata"]["annotations"][CONTENT_HASH];
    let content = env.status("a")["configuration"].clone();
    assert_eq!(content["pullSecretHash"], *hash);
    assert_ne!(content["pullSecretHash"], before["pullSecretHash"]);
    assert_eq!(content["configMapHash"], before["configMapHash"]);
    assert!(content["revision"].is_string(), "{content}");
    assert_ne!(content["revision"], before["revision"]);
}

/// The pull Secret is new, and the later write of the document is rejected.
#[tokio::test]
async fn a_configuration_that_arrived_in_part_is_said_as_it_is() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let before = env.status("a")["configuration"].clone();
    cluster.refuse(INSTALL[4], 422);
    env.content.password = Some("two");
    env.content.registry("two.example");
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    let secret = cluster.kyma("secrets/registry-credentials").unwrap();
    let hash = &secret["metadata"]["annotations"][CONTENT_HASH];
    let content = env.status("a")["configuration"].clone();
    assert_eq!(content["pullSecretHash"], *hash);
    assert_eq!(content["configMapHash"], before["configMapHash"]);
    assert!(content["revision"].is_null(), "{content}");
}

const SERVICE_ACCOUNT: &str = "serviceaccounts kyma-system/rt-bootstrapper";

/// Returns a runtime on which only a manifest of the webhook is missing. Its API server rejects that manifest.
async fn with_a_refused_manifest() -> (Env, RuntimeCluster) {
    let mut env = Env::new();
    let cluster = env.converge(&["a"]).await.remove(0);
    env.resync_every(Duration::from_millis(400)).await;
    cluster.refuse(INSTALL[1], 422);
    cluster.drop_object(SERVICE_ACCOUNT);
    env.until_condition("a", "Installed", "False ApplyFailed")
        .await;
    (env, cluster)
}

/// An API server may fail to return single objects: one that it cannot decrypt, or of an extension that is down.
#[rstest]
#[case::deployment(DEPLOYMENT)]
#[case::another_manifest(SERVICE_ACCOUNT)]
#[tokio::test]
async fn credentials_arrive_while_an_object_of_the_webhook_cannot_be_read(#[case] object: &str) {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let fault = cluster.fault(&format!("get {object}")).status(500);
    env.touch("a");
    env.until_condition("a", "Installed", "False APIServerError")
        .await;
    assert_eq!(env.condition("a", "Reachable"), "True Connected");
    let conditions = env.status("a")["conditions"].to_string();
    let text = "rt-bootstrapper-controller-manager: API server returned 500";
    assert_eq!(conditions.contains(text), object == DEPLOYMENT);
    env.content.password = Some("two");
    env.publish();
    env.until("written", |_| cluster.writes() == [INSTALL[2], INSTALL[4]])
        .await;
    env.until_condition("a", "ConfigurationSynchronized", "True Synchronized")
        .await;
    fault.stop();
    env.until_ready("a").await;
}

#[tokio::test]
async fn all_other_objects_are_repaired_while_the_trust_bundle_cannot_be_read() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let fault = cluster.fault("list clustertrustbundles").status(500);
    cluster.drop_object(SERVICE_ACCOUNT);
    cluster.drop_object("secrets kyma-system/registry-credentials");
    env.touch("a");
    let failed = "False APIServerError";
    env.until_condition("a", "ConfigurationSynchronized", failed)
        .await;
    env.until("repaired", |_| cluster.find(SERVICE_ACCOUNT).is_some())
        .await;
    env.until_installed("a").await;
    assert_eq!(cluster.take(), [INSTALL[2], INSTALL[1]]);
    fault.stop();
    env.until_ready("a").await;
    assert_eq!(cluster.take(), [""; 0]);
}

/// A rejected write would count as a failure of the rollout of the webhook, so it waits for the review.
#[tokio::test]
async fn credentials_arrive_while_permissions_cannot_be_reviewed() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    clusters[0]
        .fault("create selfsubjectrulesreviews")
        .status(500);
    env.content.password = Some("two");
    env.publish();
    env.until("written", |_| {
        clusters[0].writes() == [INSTALL[2], INSTALL[4]]
    })
    .await;
    env.touch("a");
    env.until_condition("a", "Installed", "False APIServerError")
        .await;
}

fn annotation(object: &Value, key: &str) -> Option<String> {
    let key = format!("rt-bootstrapper.kyma-project.io/{key}");
    object["metadata"]["annotations"][key]
        .as_str()
        .map(str::to_owned)
}

/// The document is written after the rotated Secret: a document that requires the previous Secret would prevent the
/// webhook from using the new Secret.
#[tokio::test]
async fn rotated_credentials_and_their_document_arrive_beside_a_refused_manifest() {
    let (mut env, cluster) = with_a_refused_manifest().await;
    let secret = || cluster.kyma("secrets/registry-credentials").unwrap();
    let before = annotation(&secret(), "content-hash");
    env.content.password = Some("two");
    env.publish();
    env.until("required by the document", |_| {
        let now = annotation(&secret(), "content-hash");
        let document = cluster.find(DOCUMENT).unwrap();
        now != before && annotation(&document, "requires-pull-secret") == now
    })
    .await;
    env.until_condition("a", "ConfigurationSynchronized", "True Synchronized")
        .await;
    assert_eq!(env.condition("a", "Installed"), "False ApplyFailed");
}

#[tokio::test]
async fn revoked_credentials_are_deleted_beside_a_refused_manifest() {
    let (mut env, cluster) = with_a_refused_manifest().await;
    env.content.password = None;
    env.publish();
    env.until("deleted", |_| {
        cluster.kyma("secrets/registry-credentials").is_none()
    })
    .await;
    // The condition was the same before the reconcile that deletes the Secret.
    env.until("reported", |it| {
        it.status("a")["configuration"]["pullSecretHash"].is_null()
    })
    .await;
    assert_eq!(env.condition("a", "Installed"), "False ApplyFailed");
}

/// A policy of the customer rejects the trust bundle. The document is not written, and would still require the Secret.
#[tokio::test]
async fn revoked_credentials_are_deleted_beside_a_refused_trust_bundle() {
    let mut env = Env::new();
    let cluster = env.converge(&["a"]).await.remove(0);
    env.resync_every(Duration::from_millis(400)).await;
    cluster.refuse(INSTALL[3], 422);
    env.content.roots = Some(roots());
    env.content.password = None;
    env.publish();
    env.until("deleted", |_| {
        cluster.kyma("secrets/registry-credentials").is_none()
    })
    .await;
    let document = cluster.find(DOCUMENT).unwrap();
    assert_eq!(
        annotation(&document, "requires-pull-secret").as_deref(),
        Some("none")
    );
    env.until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
}

/// The credentials were synchronized under another name before, and the webhook lane waits.
#[tokio::test]
async fn credentials_under_an_earlier_name_are_revoked_while_the_rollout_of_the_webhook_is_paused()
{
    let mut env = Env::new();
    let cluster = env.converge(&["a"]).await.remove(0);
    let mut earlier = cluster.kyma("secrets/registry-credentials").unwrap();
    earlier["metadata"]["name"] = json!("earlier");
    cluster.put(&earlier);
    cluster.change("configmaps kyma-system/rt-bootstrapper-owner", |it| {
        let listed = it["data"]["inventory"].as_str().unwrap();
        it["data"]["inventory"] = format!("{listed}v1 Secret kyma-system/earlier\n").into();
    });
    env.until("the first rollout is completed", |it| {
        gates::is_completed(it, gates::WEBHOOK_LANE)
    })
    .await;
    gates::pause(&env, gates::WEBHOOK_LANE).await;
    env.stop().await;
    env.image = gates::NEXT_IMAGE.to_owned();
    env.start();
    let waits = |it: &Env| gates::count(it, gates::WEBHOOK_LANE, "waiting") == 1;
    env.until("the webhook lane waits", waits).await;
    assert!(cluster.kyma("secrets/earlier").is_some());
    cluster.take();
    env.content.password = None;
    env.publish();
    env.until("deleted", |_| cluster.kyma("secrets/earlier").is_none())
        .await;
    assert!(waits(&env) && !cluster.answered(INSTALL[5]));
}

/// The other direction: a rejected pull Secret does not prevent the installation of the webhook.
#[tokio::test]
async fn the_webhook_is_installed_beside_a_refused_configuration() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.refuse(INSTALL[2], 422);
    env.start();
    env.until_condition("a", "Installed", "True Installed")
        .await;
    let said = env.condition("a", "ConfigurationSynchronized");
    assert_eq!(said, "False ApplyFailed");
    assert!(cluster.answered(INSTALL[6]));
}

/// The kubeconfig has all permissions for the configuration, and not all permissions for the webhook.
#[tokio::test]
async fn missing_permissions_of_the_webhook_do_not_keep_the_configuration_away() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let all = ["get", "list", "create", "patch", "delete"];
    let role = json!({"kind": "ClusterRole", "rules": [
        {"apiGroups": [""], "resources": ["namespaces", "secrets", "configmaps"], "verbs": all},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": all},
        {"apiGroups": ["apps", "admissionregistration.k8s.io"], "resources": ["*"], "verbs": all},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "create", "patch"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]},
    ]});
    cluster.behave(|it| it.rights = Rights::of_roles([&role]));
    env.start();
    env.until_condition("a", "ConfigurationSynchronized", "True Synchronized")
        .await;
    assert_eq!(
        env.condition("a", "Installed"),
        "False InsufficientPermissions"
    );
    let conditions = env.status("a")["conditions"].to_string();
    assert!(
        conditions.contains("missing permissions: delete serviceaccounts"),
        "{conditions}"
    );
    let mut written = cluster.take();
    written.sort();
    let mut expected = [INSTALL[0], INSTALL[2], INSTALL[3], INSTALL[4]];
    expected.sort_unstable();
    assert_eq!(written, expected);
}
