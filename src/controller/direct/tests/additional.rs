//! Tests of the permission to evict Pods of additional namespaces. Customers own these namespaces: one that is missing, is being
//! deleted, or rejects the RoleBinding affects nothing else on the runtime.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::env::*;
use super::gates::{NEXT_IMAGE, WEBHOOK_LANE, count, is_completed};
use crate::runtime_cluster::{BARE, RESET, RuntimeCluster};

const BINDING: &str = "rolebindings shop/rt-bootstrapper-pod-restarter-rolebinding";
const WRITE: &str = "apply rolebindings shop/rt-bootstrapper-pod-restarter-rolebinding";
const NOT_WRITTEN: &str = "RoleBinding shop/rt-bootstrapper-pod-restarter-rolebinding not written:";

/// Returns a controller that is not started, and its runtime, which has no Namespace `shop`.
async fn prepared() -> (Env, RuntimeCluster) {
    let mut env = Env::new();
    env.webhook.pod_restart_namespaces = Some(vec!["shop".to_owned()]);
    env.settings.resync = Duration::from_millis(400);
    let cluster = env.add("a").await;
    (env, cluster)
}

/// Returns a controller whose runtime has a Namespace `shop` with the RoleBinding.
async fn converged() -> (Env, RuntimeCluster) {
    let (mut env, cluster) = prepared().await;
    cluster.namespace("shop");
    env.start();
    env.until_ready("a").await;
    env.until("written", |_| cluster.find(BINDING).is_some())
        .await;
    (env, cluster)
}

async fn until_reported(env: &Env, cause: &str) {
    let text = format!("{NOT_WRITTEN} {cause}");
    env.until(&text, |it| {
        let conditions = it.status("a")["conditions"].clone();
        let all = conditions.as_array().into_iter().flatten();
        let mut installed = all.filter(|it| it["type"] == "Installed");
        installed.any(|it| it["status"] == "True" && it["message"] == text)
    })
    .await;
    assert_eq!(env.condition("a", "Ready"), "True Ready");
}

/// Upgrades the webhook, and waits until the rollout is complete.
async fn upgrade(env: &mut Env) {
    env.stop().await;
    env.image = NEXT_IMAGE.to_owned();
    env.start();
    env.until("upgraded", |it| {
        it.status("a")["webhook"]["version"] == "0.2.0" && is_completed(it, WEBHOOK_LANE)
    })
    .await;
}

#[tokio::test]
async fn a_webhook_is_installed_without_its_additional_namespace_and_the_permission_follows() {
    let (mut env, cluster) = prepared().await;
    env.start();
    env.until_ready("a").await;
    until_reported(
        &env,
        "API server returned 404 (NotFound: the namespace does not exist)",
    )
    .await;
    env.until("completed", |it| is_completed(it, WEBHOOK_LANE))
        .await;
    let writes = cluster.take();
    let at = |write: &str| writes.iter().position(|it| it == write);
    assert!(at(INSTALL[5]) < at(WRITE), "{writes:?}");
    cluster.namespace("shop");
    env.until("written", |_| cluster.find(BINDING).is_some())
        .await;
    env.until("reported", |it| {
        !it.status("a").to_string().contains("not written")
    })
    .await;
}

#[rstest]
#[case::gone(
    false,
    "API server returned 404 (NotFound: the namespace does not exist)"
)]
#[case::terminating(
    true,
    "API server returned 403 (Forbidden: the namespace is being deleted)"
)]
#[tokio::test]
async fn a_customer_who_deletes_the_namespace_stops_no_upgrade(
    #[case] is_held: bool,
    #[case] cause: &str,
) {
    let (mut env, cluster) = converged().await;
    if is_held {
        cluster.put(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": "shop", "finalizers": ["example.com/held"]},
        }));
    }
    cluster.delete("namespaces", "", "shop");
    assert_eq!(cluster.find("namespaces shop").is_some(), is_held);
    assert_eq!(cluster.find(BINDING), None);
    until_reported(&env, cause).await;
    upgrade(&mut env).await;
    until_reported(&env, cause).await;
    cluster.drop_object(WEBHOOK);
    env.until("repaired", |_| cluster.find(WEBHOOK).is_some())
        .await;
}

/// A policy of the customer rejects the write, or an admission webhook of the customer fails or does not answer.
#[rstest]
#[case::policy(403, "API server returned 403 (Forbidden)")]
#[case::invalid(422, "API server returned 422 (Invalid)")]
#[case::webhook(500, "API server returned 500")]
#[case::throttled(429, "API server returned 429")]
#[case::reset(RESET, "connection failed: HTTP exchange aborted")]
#[tokio::test]
async fn a_refused_permission_keeps_nothing_else_away(#[case] status: u16, #[case] cause: &str) {
    let (mut env, cluster) = prepared().await;
    cluster.namespace("shop");
    let refusal = cluster.refuse(WRITE, status);
    env.start();
    env.until_ready("a").await;
    let text = format!("{NOT_WRITTEN} {cause}");
    env.until("reported", |it| it.status("a").to_string().contains(&text))
        .await;
    upgrade(&mut env).await;
    refusal.stop();
    env.until("written", |_| cluster.find(BINDING).is_some())
        .await;
}

/// The kubeconfig has no permission for RoleBindings of other namespaces, or the API server fails to return one.
#[rstest]
#[case::forbidden(403, "missing permission: get rolebindings.rbac.authorization.k8s.io")]
#[case::failed(
    500,
    "failed to read RoleBinding rt-bootstrapper-pod-restarter-rolebinding: API server returned 500"
)]
#[tokio::test]
async fn a_permission_that_cannot_be_read_keeps_nothing_else_away(
    #[case] status: u16,
    #[case] cause: &str,
) {
    let (mut env, cluster) = prepared().await;
    cluster.namespace("shop");
    cluster.fault(&format!("get {BINDING}")).status(status);
    env.start();
    env.until_ready("a").await;
    until_reported(&env, cause).await;
    upgrade(&mut env).await;
    assert!(!cluster.answered(WRITE));
    // The namespace is not an additional one any more.
    env.stop().await;
    env.webhook.pod_restart_namespaces = None;
    env.start();
    env.until("completed", |it| is_completed(it, WEBHOOK_LANE))
        .await;
    until_reported(&env, cause).await;
    until_uninstalled(&env).await;
    let expected: Vec<&str> = BARE.into_iter().chain(["namespaces shop"]).collect();
    assert_eq!(cluster.inventory(), expected);
}

/// An admission webhook of a customer may deny with any status. A write in another namespace does not wait for it.
#[tokio::test]
async fn a_throttled_write_in_one_namespace_keeps_no_other_away() {
    let (mut env, cluster) = prepared().await;
    let namespaces: Vec<String> = (0..40).map(|it| format!("n{it:02}")).collect();
    for namespace in &namespaces {
        cluster.namespace(namespace);
    }
    cluster.refuse(&WRITE.replace("shop/", "n00/"), 429);
    env.webhook.pod_restart_namespaces = Some(namespaces.clone());
    env.start();
    env.until_ready("a").await;
    env.until("written", |_| {
        let binding = |it: &String| cluster.find(&BINDING.replace("shop/", &format!("{it}/")));
        namespaces[1..].iter().all(|it| binding(it).is_some())
    })
    .await;
    let text = NOT_WRITTEN.replace("shop/", "n00/") + " API server returned 429";
    env.until("reported", |it| it.status("a").to_string().contains(&text))
        .await;
}

/// A customer who undoes each write would keep the runtime in its soak otherwise.
#[tokio::test]
async fn a_write_in_an_additional_namespace_starts_no_soak() {
    let (mut env, cluster) = converged().await;
    env.until("completed", |it| is_completed(it, WEBHOOK_LANE))
        .await;
    env.stop().await;
    env.settings.rollouts.webhook.soak = Duration::from_hours(1);
    env.start();
    env.until_ready("a").await;
    cluster.drop_object(BINDING);
    env.until("written", |_| cluster.find(BINDING).is_some())
        .await;
    // The status of the rollout is written a second after a change.
    env.more_passes(8).await;
    assert_eq!(count(&env, WEBHOOK_LANE, "soaking"), 0);
}

/// A RoleBinding of the customer with another role, which must be deleted first.
#[tokio::test]
async fn a_permission_that_must_not_be_replaced_keeps_nothing_else_away() {
    let (mut env, cluster) = converged().await;
    let refusal = cluster.refuse(&WRITE.replace("apply", "delete"), 403);
    cluster.change(BINDING, |it| it["roleRef"]["name"] = json!("view"));
    until_reported(&env, "API server returned 403 (Forbidden)").await;
    upgrade(&mut env).await;
    refusal.stop();
    env.until("replaced", |_| {
        let found = cluster.find(BINDING);
        found.is_some_and(|it| it["roleRef"]["name"] == "rt-bootstrapper-pod-restarter-role")
    })
    .await;
}

/// The namespace is not an additional one any more, and its policies reject the deletion.
#[tokio::test]
async fn an_obsolete_permission_that_must_not_be_deleted_keeps_nothing_else_away() {
    let (mut env, cluster) = converged().await;
    let refusal = cluster.refuse(&WRITE.replace("apply", "delete"), 403);
    env.webhook.pod_restart_namespaces = None;
    upgrade(&mut env).await;
    until_reported(&env, "API server returned 403 (Forbidden)").await;
    refusal.stop();
    env.until("deleted and forgotten", |_| {
        let owner = cluster.kyma("configmaps/rt-bootstrapper-owner").unwrap();
        cluster.find(BINDING).is_none() && !owner["data"].to_string().contains("shop/")
    })
    .await;
}

async fn until_uninstalled(env: &Env) {
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("the resource is gone", |it| {
        it.kcp.object("runtimebootstrappers", "a").is_none()
    })
    .await;
}

#[rstest]
#[case::there(true)]
#[case::gone(false)]
#[tokio::test]
async fn uninstallation_removes_the_permission(#[case] is_there: bool) {
    let (env, cluster) = converged().await;
    if !is_there {
        cluster.delete("namespaces", "", "shop");
    }
    until_uninstalled(&env).await;
    let shop = is_there.then_some("namespaces shop");
    let expected: Vec<&str> = BARE.into_iter().chain(shop).collect();
    assert_eq!(cluster.inventory(), expected);
}

/// The policies of the customer reject the deletion for ever.
#[tokio::test]
async fn uninstallation_ends_although_the_permission_must_not_be_deleted() {
    let (env, cluster) = converged().await;
    cluster.refuse(&WRITE.replace("apply", "delete"), 403);
    until_uninstalled(&env).await;
    let binding = [BINDING].into_iter();
    let expected: Vec<&str> = binding.chain(BARE).chain(["namespaces shop"]).collect();
    assert_eq!(cluster.inventory(), expected);
}
