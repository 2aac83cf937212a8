//! Tests that a fault of one object delays neither credentials nor their removal: each test changes or revokes the pull Secret
//! while the runtime rejects another object, fails to return it, or forbids it.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{FaultHandle, Rights};

use super::env::*;
use crate::runtime_cluster::RuntimeCluster;

const MARKER: &str = "configmaps kyma-system/rt-bootstrapper-owner";
const SECRET: &str = "secrets kyma-system/registry-credentials";

/// Verbs of objects that may be read and not written.
const READ: &[&str] = &["get", "list"];

/// Allows only these verbs for the resource in the API group, and everything for the others.
fn allow_only(cluster: &RuntimeCluster, (group, resource): (&str, &str), verbs: &[&str]) {
    let all = ["*"];
    let core = ["namespaces", "secrets", "configmaps", "serviceaccounts"];
    let others: Vec<&str> = core.into_iter().filter(|it| *it != resource).collect();
    let groups = [
        "apps",
        "admissionregistration.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
    ];
    let groups: Vec<&str> = groups.into_iter().filter(|it| *it != group).collect();
    let role = json!({"kind": "ClusterRole", "rules": [
        {"apiGroups": [""], "resources": others, "verbs": all},
        {"apiGroups": groups, "resources": ["*"], "verbs": all},
        {"apiGroups": [group], "resources": [resource], "verbs": verbs},
    ]});
    cluster.behave(|it| it.rights = Rights::of_roles([&role]));
}

/// Makes the trust bundle inaccessible; see the cases. The handle stops an error of the API server.
fn break_bundle(cluster: &RuntimeCluster, fault: &str) -> Option<FaultHandle> {
    let bundles = ("certificates.k8s.io", "clustertrustbundles");
    match fault {
        "unwritable" => allow_only(cluster, bundles, READ),
        "forbidden" => allow_only(cluster, bundles, &[]),
        _ => return Some(cluster.fault("list clustertrustbundles").status(500)),
    }
    None
}

fn annotation(cluster: &RuntimeCluster, object: &str, key: &str) -> Option<String> {
    let key = format!("rt-bootstrapper.kyma-project.io/{key}");
    let found = cluster.find(object)?;
    found["metadata"]["annotations"][key]
        .as_str()
        .map(str::to_owned)
}

fn hash(cluster: &RuntimeCluster, object: &str) -> Option<String> {
    annotation(cluster, object, "content-hash")
}

/// Waits until the Secret has other content than before, and the document requires this content.
async fn until_rotated(env: &Env, cluster: &RuntimeCluster, before: Option<&str>) {
    env.until("the document requires the rotated Secret", |_| {
        let now = hash(cluster, SECRET);
        now.is_some()
            && now.as_deref() != before
            && annotation(cluster, DOCUMENT, "requires-pull-secret") == now
    })
    .await;
}

#[rstest]
#[case::not_returned(
    "500",
    "False APIServerError",
    "ClusterTrustBundle roots: API server returned 500"
)]
#[case::forbidden(
    "forbidden",
    "False InsufficientPermissions",
    "list clustertrustbundles.certificates.k8s.io"
)]
#[case::unwritable(
    "unwritable",
    "False InsufficientPermissions",
    "patch clustertrustbundles.certificates.k8s.io"
)]
#[tokio::test]
async fn credentials_are_rotated_and_revoked_beside_an_inaccessible_trust_bundle(
    #[case] fault: &str,
    #[case] condition: &str,
    #[case] message: &str,
) {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let before = hash(cluster, SECRET);
    let bundle = annotation(cluster, DOCUMENT, "requires-trust-bundle");
    let content = hash(cluster, DOCUMENT);
    let reported = env.status("a")["configuration"]["trustBundleHash"].clone();
    let _fault = break_bundle(cluster, fault);
    env.content.password = Some("two");
    env.content.roots = Some(roots());
    env.content.registry("two.example");
    env.publish();
    until_rotated(&env, cluster, before.as_deref()).await;
    assert_eq!(
        annotation(cluster, DOCUMENT, "requires-trust-bundle"),
        bundle
    );
    assert_eq!(
        hash(cluster, DOCUMENT),
        content,
        "the document is of the revision of the old bundle"
    );
    env.until("reported", |it| {
        let configuration = &it.status("a")["configuration"];
        configuration["pullSecretHash"].as_str() == hash(cluster, SECRET).as_deref()
    })
    .await;
    assert_eq!(env.condition("a", "ConfigurationSynchronized"), condition);
    assert_eq!(env.condition("a", "Ready"), condition);
    assert_eq!(env.condition("a", "Installed"), "True Installed");
    let status = env.status("a");
    assert!(
        status["conditions"].to_string().contains(message),
        "{status}"
    );
    assert_eq!(status["configuration"]["trustBundleHash"], reported);
    assert_eq!(status["configuration"]["revision"], Value::Null);
    assert_eq!(cluster.take(), [INSTALL[2], INSTALL[4]]);
    env.more_passes(3).await;
    assert_eq!(cluster.take(), [""; 0]);
    env.content.password = None;
    env.publish();
    env.until("revoked", |_| cluster.find(SECRET).is_none())
        .await;
    let required = annotation(cluster, DOCUMENT, "requires-pull-secret");
    assert_eq!(required.as_deref(), Some("none"));
}

/// The webhook becomes ready with the first document, so the document is not kept back until the bundle can be written.
#[rstest]
#[case::not_returned("500")]
#[case::forbidden("forbidden")]
#[case::unwritable("unwritable")]
#[tokio::test]
async fn a_new_runtime_gets_credentials_and_a_document_beside_an_inaccessible_trust_bundle(
    #[case] fault: &str,
) {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let stop = break_bundle(&cluster, fault);
    env.start();
    until_rotated(&env, &cluster, None).await;
    env.until_installed("a").await;
    assert_eq!(
        annotation(&cluster, DOCUMENT, "requires-trust-bundle"),
        None
    );
    assert!(env.condition("a", "Ready").starts_with("False "));
    assert_eq!(cluster.find(BUNDLE), None);
    cluster.take();
    env.more_passes(2).await;
    assert_eq!(cluster.take(), [""; 0]);
    if let Some(fault) = stop {
        fault.stop();
    }
    cluster.behave(|it| it.rights = Rights::with_verbs(&["*"]));
    env.until_ready("a").await;
    let bundle = hash(&cluster, BUNDLE);
    assert!(bundle.is_some());
    assert_eq!(
        annotation(&cluster, DOCUMENT, "requires-trust-bundle"),
        bundle
    );
}

/// The other direction: only the document depends on the pull Secret.
#[tokio::test]
async fn the_trust_bundle_is_written_beside_an_inaccessible_pull_secret() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let required = annotation(cluster, DOCUMENT, "requires-pull-secret");
    let before = hash(cluster, BUNDLE);
    allow_only(cluster, ("", "secrets"), READ);
    env.content.password = Some("two");
    env.content.roots = Some(roots());
    env.publish();
    env.until("the document requires the new bundle", |_| {
        let now = hash(cluster, BUNDLE);
        now != before && annotation(cluster, DOCUMENT, "requires-trust-bundle") == now
    })
    .await;
    assert_eq!(
        annotation(cluster, DOCUMENT, "requires-pull-secret"),
        required
    );
    let lacks = "False InsufficientPermissions";
    env.until_condition("a", "ConfigurationSynchronized", lacks)
        .await;
    assert_eq!(env.condition("a", "Installed"), "True Installed");
    cluster.behave(|it| it.rights = Rights::with_verbs(&["*"]));
    env.until_ready("a").await;
}

/// A policy of the customer rejects the bundle permanently. The webhook would keep the Secret that the document requires.
#[rstest]
#[tokio::test]
async fn the_document_requires_the_rotated_secret_beside_a_refused_trust_bundle(
    #[values(403, 422)] status: u16,
) {
    let mut env = Env::new();
    let cluster = env.converge(&["a"]).await.remove(0);
    env.resync_every(Duration::from_millis(400)).await;
    let [before, document, bundle] = [SECRET, DOCUMENT, BUNDLE].map(|it| hash(&cluster, it));
    let refusal = cluster.refuse(INSTALL[3], status);
    env.content.password = Some("two");
    env.content.roots = Some(roots());
    env.content.registry("two.example");
    env.publish();
    until_rotated(&env, &cluster, before.as_deref()).await;
    assert_eq!(
        annotation(&cluster, DOCUMENT, "requires-trust-bundle"),
        bundle
    );
    assert_eq!(hash(&cluster, DOCUMENT), document);
    let failed = "False ApplyFailed";
    env.until_condition("a", "ConfigurationSynchronized", failed)
        .await;
    let configuration = env.status("a")["configuration"].clone();
    assert_eq!(
        configuration["pullSecretHash"].as_str(),
        hash(&cluster, SECRET).as_deref()
    );
    assert_eq!(configuration["trustBundleHash"].as_str(), bundle.as_deref());
    assert_eq!(configuration["configMapHash"].as_str(), document.as_deref());
    assert_eq!(configuration["revision"], Value::Null);
    cluster.take();
    env.more_passes(3).await;
    let writes = cluster.take();
    assert!(
        !writes.is_empty() && writes.iter().all(|it| it == INSTALL[3]),
        "{writes:?}"
    );
    refusal.stop();
    env.until_ready("a").await;
    assert_eq!(
        annotation(&cluster, DOCUMENT, "requires-trust-bundle"),
        hash(&cluster, BUNDLE)
    );
    assert_ne!(hash(&cluster, DOCUMENT), document);
}

/// The next reconcile will probably write the bundle, and then Pods get one complete revision.
#[tokio::test]
async fn the_document_waits_for_a_trust_bundle_whose_write_fails_temporarily() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let outage = cluster.refuse(INSTALL[3], 500);
    env.content.password = Some("two");
    env.content.roots = Some(roots());
    env.publish();
    env.until("tried three times", |_| outage.hits() >= 3).await;
    assert_eq!(cluster.requests_of(INSTALL[4]).len(), 0);
    outage.stop();
    env.until_ready("a").await;
    assert_eq!(cluster.requests_of(INSTALL[4]).len(), 1);
}

/// Adds an entry to the inventory, which the next complete reconcile would remove.
fn edit_marker(cluster: &RuntimeCluster) {
    cluster.change(MARKER, |it| {
        let listed = it["data"]["inventory"].as_str().unwrap();
        it["data"]["inventory"] = format!("{listed}v1 Service kyma-system/gone\n").into();
    });
}

/// The ownership ConfigMap names the runtime and lists the pull Secret already. Nothing of the webhook is written, since its
/// manifests may be new.
#[tokio::test]
async fn credentials_are_rotated_and_revoked_beside_a_refused_ownership_config_map() {
    let mut env = Env::new();
    let cluster = env.converge(&["a"]).await.remove(0);
    env.resync_every(Duration::from_millis(400)).await;
    let before = hash(&cluster, SECRET);
    let refusal = cluster.refuse("apply configmaps kyma-system/rt-bootstrapper-owner", 422);
    edit_marker(&cluster);
    cluster.drop_object("serviceaccounts kyma-system/rt-bootstrapper");
    env.until("refused", |_| refusal.hits() > 0).await;
    env.content.password = Some("two");
    env.publish();
    until_rotated(&env, &cluster, before.as_deref()).await;
    for kind in ["ConfigurationSynchronized", "Installed"] {
        env.until_condition("a", kind, "False ApplyFailed").await;
    }
    let conditions = env.status("a")["conditions"].to_string();
    assert!(
        conditions.contains("ConfigMap rt-bootstrapper-owner: "),
        "{conditions}"
    );
    env.content.password = None;
    env.publish();
    env.until("revoked", |_| cluster.find(SECRET).is_none())
        .await;
    assert!(!cluster.answered(INSTALL[1]));
    refusal.stop();
    env.until_ready("a").await;
}

/// The ownership ConfigMap is what shows that the cluster is of this runtime.
#[tokio::test]
async fn nothing_is_written_to_a_new_runtime_whose_ownership_config_map_is_refused() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let refusal = cluster.refuse(INSTALL[0], 422);
    env.start();
    env.until("refused", |_| refusal.hits() >= 3).await;
    assert!(cluster.take().iter().all(|it| it == INSTALL[0]));
    refusal.stop();
    env.until_ready("a").await;
}
