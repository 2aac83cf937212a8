//! Tests of the objects on a runtime after the deletion of its resource: the product's objects are deleted, and all
//! others stay.

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Rights;

use super::env::*;
use crate::runtime_cluster::RuntimeCluster;

const FOREIGN: &str = "kubernetes.io/dockerconfigjson";

/// Returns the names of namespaces of customers.
fn namespaces(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("customer-{number:03}"))
}

/// Returns a runtime with objects of customers, and the list of its objects before the webhook is installed.
async fn with_customers(env: &Env, customers: usize) -> (RuntimeCluster, Vec<String>) {
    let cluster = env.add("a").await;
    // One Secret has the name and type of a copy, the other one has only the label.
    cluster.make_secret("shop", "registry-credentials", FOREIGN, false);
    cluster.make_secret("shop", "another", "Opaque", true);
    namespaces(customers).for_each(|it| cluster.namespace(&it));
    let before = cluster.inventory();
    (cluster, before)
}

/// Returns a runtime with objects of customers on which the webhook is installed and has run.
async fn installed(copies: usize) -> (Env, RuntimeCluster, Vec<String>) {
    let mut env = Env::new();
    let (cluster, before) = with_customers(&env, copies).await;
    env.start();
    env.until_ready("a").await;
    env.settle().await;
    cluster.webhook_runs(namespaces(copies));
    cluster.take();
    (env, cluster, before)
}

fn is_gone(env: &Env) -> bool {
    env.kcp.object("runtimebootstrappers", "a").is_none()
}

fn message(env: &Env) -> Value {
    let conditions = env.status("a")["conditions"].clone();
    let all = conditions.as_array().unwrap();
    let found = all.iter().find(|it| it["type"] == "Installed");
    found.unwrap()["message"].clone()
}

/// The number of copies exceeds one page of a list.
#[tokio::test]
async fn uninstallation_leaves_the_runtime_as_it_was_before_the_installation() {
    let (env, cluster, before) = installed(150).await;
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), before);
    let selectors = [
        "labelSelector=rt-bootstrapper.kyma-project.io%2Fpull-secret-copy%3Dtrue",
        "metadata.name%3Dregistry-credentials",
    ];
    for list in cluster.requests_of("list secrets") {
        for part in [
            "fieldSelector=type%3Dkubernetes.io%2Fdockerconfigjson",
            "limit=",
        ] {
            assert!(list.uri.contains(part), "{}", list.uri);
        }
        assert!(
            selectors.iter().any(|it| list.uri.contains(it)),
            "{}",
            list.uri
        );
        assert!(
            list.accept.contains("as=PartialObjectMetadata"),
            "{}",
            list.accept
        );
    }
    let writes = cluster.take();
    let at = |start: &str| {
        writes
            .iter()
            .position(|it| it.starts_with(start))
            .unwrap_or_else(|| panic!("{start}: {writes:?}"))
    };
    let order = [
        "delete mutatingwebhookconfigurations ",
        "delete deployments ",
        "delete secrets customer-000/registry-credentials",
        "delete configmaps kyma-system/rt-bootstrapper-owner",
    ]
    .map(at);
    assert!(order.is_sorted(), "{writes:?}");
    assert_eq!(order[3], writes.len() - 1, "{writes:?}");
}

/// Returns the pattern of deletions of copies, more than are deleted at once.
fn of_copies() -> String {
    let copies = namespaces(40).map(|it| format!("{it}/registry-credentials"));
    format!("delete secrets {}", copies.collect::<Vec<_>>().join("|"))
}

/// A policy of a customer keeps copies, or a prerequisite of the webhook.
#[rstest]
#[case::copies(of_copies(), 40)]
#[case::account("delete serviceaccounts kyma-system/rt-bootstrapper".to_owned(), 1)]
#[tokio::test]
async fn an_object_that_cannot_be_deleted_leaves_no_other_credentials_behind(
    #[case] kept: String,
    #[case] count: usize,
) {
    let (env, cluster, before) = installed(150).await;
    let refusal = cluster.refuse(&kept, 403);
    env.kcp.delete("runtimebootstrappers", "a");
    let owner = "configmaps kyma-system/rt-bootstrapper-owner";
    let left = || -> Vec<String> {
        let mut left = cluster.inventory();
        left.retain(|it| !before.contains(it));
        left
    };
    env.until("only these and the owner are left", |_| {
        left().len() == count + 1
    })
    .await;
    assert!(cluster.find(owner).is_some(), "{:?}", left());
    for condition in ["Installed", "Ready"] {
        env.until_condition("a", condition, "False ApplyFailed")
            .await;
    }
    assert!(!is_gone(&env));
    refusal.stop();
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), before);
}

/// Whole copies of a page may exceed the limit of a response, because a pull Secret may contain the credentials of
/// many registries.
#[tokio::test]
async fn copies_of_a_large_pull_secret_are_deleted() {
    let (env, cluster, before) = installed(120).await;
    for namespace in namespaces(120) {
        let place = (&*namespace, "registry-credentials");
        cluster.edit("secrets", place, |secret| {
            secret["data"] = json!({".dockerconfigjson": "e30K".repeat(7_000)});
        });
    }
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), before);
}

/// KIM had installed the public webhook, which sets no label on copies, and this webhook never ran.
#[tokio::test]
async fn copies_of_the_public_webhook_are_deleted() {
    let (env, cluster, before) = installed(1).await;
    cluster.put(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": FOREIGN,
        "metadata": {"name": "registry-credentials", "namespace": "customer-000", "managedFields": [{
            "manager": "rt-bootstrapper", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}, "f:type": {}},
        }]},
        "data": {".dockerconfigjson": "e30="},
    }));
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), before);
}

/// A running webhook creates a deleted copy again.
#[tokio::test]
async fn copies_are_deleted_once_the_webhooks_pods_are_gone() {
    let (env, cluster, before) = installed(3).await;
    cluster.behave(|it| it.dependents = true);
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("the webhook is being deleted", |_| {
        cluster.answered("delete deployments")
    })
    .await;
    env.more_passes(4).await;
    assert_eq!(
        cluster.take(),
        [
            "delete mutatingwebhookconfigurations rt-bootstrapper",
            "delete deployments kyma-system/rt-bootstrapper-controller-manager"
        ]
    );
    assert_eq!(env.condition("a", "Installed"), "False Uninstalling");
    cluster.behave(|it| it.dependents = false);
    cluster.drop_object(DEPLOYMENT);
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), before);
}

/// Returns all permissions except this verb on Secrets outside of the product's namespace.
fn all_but(verb: &str) -> Rights {
    let mut verbs = vec![
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let everything = json!([{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}]);
    verbs.retain(|it| *it != verb);
    let others = [
        "configmaps",
        "deployments",
        "mutatingwebhookconfigurations",
        "clustertrustbundles",
    ];
    Rights::of_roles(&[
        json!({"kind": "ClusterRole", "rules": [
            {"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": [verb], "apiGroups": ["*"], "resources": others},
        ]}),
        json!({"kind": "Role", "metadata": {"namespace": "kyma-system"}, "rules": everything}),
    ])
}

/// No deletion starts that cannot be completed, and an incomplete deletion is not reported as complete.
#[rstest]
#[case::may_not_list("list", "list secrets in all namespaces")]
#[case::may_not_delete("delete", "delete secrets in all namespaces")]
#[tokio::test]
async fn uninstallation_without_rights_to_the_copies_says_so_and_begins_nothing(
    #[case] verb: &str,
    #[case] right: &str,
) {
    let (env, cluster, before) = installed(3).await;
    cluster.behave(|it| it.rights = all_but(verb));
    env.kcp.delete("runtimebootstrappers", "a");
    env.until_condition("a", "Installed", "False InsufficientPermissions")
        .await;
    assert_eq!(
        message(&env),
        json!(format!("missing permissions: {right}"))
    );
    env.more_passes(3).await;
    assert_eq!(cluster.take(), [""; 0]);
    assert!(!is_gone(&env));
    cluster.behave(|it| it.rights = Rights::default());
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), before);
}
