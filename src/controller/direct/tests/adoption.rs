//! Tests of objects that KIM, or an earlier version of the controller, left on a runtime.

pub(super) mod public;

use rstest::rstest;
use serde_json::{Value, json};

use super::env::*;
use crate::runtime_cluster::{BARE, RuntimeCluster};

const LEGACY: &str = "serviceaccounts kyma-system/rt-bootstrapper-legacy";
const MARKER: &str = "configmaps kyma-system/rt-bootstrapper-owner";
const ELECTION: &str = "rt-bootstrapper-leader-election-role";
const INVENTORY: &str = "apply configmaps kyma-system/rt-bootstrapper-owner";

/// Returns the fields of the Deployment of the public manifests that differ, with these owners of its fields.
fn public_deployment(managers: &Value) -> Value {
    let labels = json!({"app": "rt-bootstrapper"});
    let container =
        json!({"name": "manager", "image": "public:1.7.0", "command": ["/manager"], "tty": true});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "rt-bootstrapper-controller-manager", "namespace": "kyma-system",
            "managedFields": managers,
        },
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "config", "configMap": {"name": "rt-bootstrapper-config"}}],
                },
            },
        },
    })
}

/// Returns the managed fields of a manager that created the Deployment.
fn creation(manager: &str) -> Value {
    let container = json!({".": {}, "f:name": {}, "f:image": {}, "f:command": {}, "f:tty": {}});
    let volume = json!({".": {}, "f:name": {}, "f:configMap": {".": {}, "f:name": {}}});
    let pod = json!({
        "f:containers": {r#"k:{"name":"manager"}"#: container},
        "f:volumes": {".": {}, r#"k:{"name":"config"}"#: volume},
    });
    let spec = json!({"f:replicas": {}, "f:selector": {}, "f:template": {"f:spec": pod}});
    json!([{
        "manager": manager, "operation": "Update", "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec},
    }])
}

#[rstest]
#[case::created_under_the_default_manager(creation("manager"))]
#[case::created_under_another_manager(creation("infrastructure-manager"))]
#[case::no_managers(json!([]))]
#[tokio::test]
async fn adopted_deployment_has_only_fields_of_the_manifest(#[case] managers: Value) {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.put(&public_deployment(&managers));
    cluster.put(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": ELECTION, "namespace": "kyma-system", "labels": {"app.kubernetes.io/name": "rt-bootstrapper"}},
        "rules": [],
    }));
    env.start();
    env.until_ready("a").await;
    env.settle().await;
    let pod = cluster.find(DEPLOYMENT).unwrap()["spec"]["template"]["spec"].clone();
    for field in ["command", "tty"] {
        assert_eq!(pod["containers"][0][field], Value::Null, "{pod}");
    }
    assert_eq!(pod["volumes"], Value::Null, "{pod}");
    assert!(
        cluster
            .find(&format!("roles kyma-system/{ELECTION}"))
            .is_none()
    );
    assert!(!inventory(&cluster).contains(ELECTION));
    cluster.take();
    env.pass("a").await;
    assert_eq!(cluster.take(), [""; 0]);
}

fn inventory(cluster: &RuntimeCluster) -> String {
    let marker = cluster.find(MARKER).unwrap();
    marker["data"]["inventory"].as_str().unwrap().to_owned()
}

/// Returns a runtime on which an earlier version with one more object is installed.
async fn earlier() -> (Env, RuntimeCluster) {
    let mut env = Env::new();
    env.image = format!("registry.example/webhook:{OLD_VERSION}");
    let mut clusters = env.converge(&["a"]).await;
    let cluster = clusters.remove(0);
    assert!(cluster.find(LEGACY).is_some());
    (env, cluster)
}

async fn upgraded() -> (Env, RuntimeCluster) {
    let (mut env, cluster) = earlier().await;
    env.stop().await;
    env.image = "registry.example/webhook:0.2.0".to_owned();
    env.start();
    env.until("the old object is gone", |_| cluster.find(LEGACY).is_none())
        .await;
    env.until_ready("a").await;
    env.settle().await;
    (env, cluster)
}

#[tokio::test]
async fn upgrade_deletes_an_object_that_the_version_no_longer_has() {
    let (env, cluster) = upgraded().await;
    let writes = cluster.take();
    let deletion = format!("delete {LEGACY}");
    assert_eq!(
        writes,
        [
            "apply deployments kyma-system/rt-bootstrapper-controller-manager",
            &*deletion,
            INVENTORY
        ]
    );
    assert!(!inventory(&cluster).contains("legacy"));
    env.pass("a").await;
    assert_eq!(cluster.take(), [""; 0]);
}

#[tokio::test]
async fn uninstallation_by_a_later_version_deletes_what_only_the_inventory_lists() {
    let (mut env, cluster) = earlier().await;
    env.stop().await;
    env.image = "registry.example/webhook:0.2.0".to_owned();
    env.kcp.delete("runtimebootstrappers", "a");
    env.start();
    let is_gone = |it: &Env| it.kcp.object("runtimebootstrappers", "a").is_none();
    env.until("the resource is gone", is_gone).await;
    assert_eq!(cluster.inventory(), BARE);
}

/// A client of the runtime adds objects to the inventory that do not exist, and an own object that has a copy of the hash.
#[tokio::test]
async fn inventory_that_a_client_writes_deletes_nothing_of_others() {
    let (env, cluster) = upgraded().await;
    let hash = "rt-bootstrapper.kyma-project.io/manifest-hash";
    cluster.put(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": "rt-bootstrapper-legacy", "namespace": "kyma-system", "annotations": {hash: "x"},
        },
    }));
    let lines = (0..10_000).map(|it| format!("v1 Service kube-system/{it}"));
    let legacy = "v1 ServiceAccount kyma-system/rt-bootstrapper-legacy".to_owned();
    let written = std::iter::once(legacy)
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n");
    cluster.change(MARKER, |it| it["data"]["inventory"] = json!(written));
    cluster.take();
    env.pass("a").await;
    env.settle().await;
    assert!(cluster.find(LEGACY).is_some());
    let writes = cluster.take();
    assert!(writes.iter().all(|it| it == INVENTORY), "{writes:?}");
    env.kcp.delete("runtimebootstrappers", "a");
    let is_gone = |it: &Env| it.kcp.object("runtimebootstrappers", "a").is_none();
    env.until("the resource is gone", is_gone).await;
    assert!(cluster.find(LEGACY).is_some());
}

/// A client of the runtime adds large objects to the inventory, which together exceed the memory of the controller.
#[tokio::test]
async fn objects_that_only_the_inventory_lists_are_read_one_after_the_other() {
    let (env, cluster) = upgraded().await;
    for number in 0..20 {
        let name = format!("large-{number}");
        cluster.put(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"},
        }));
    }
    let lines = (0..20).map(|it| format!("v1 ConfigMap kube-system/large-{it}\n"));
    let written: String = lines.collect();
    cluster.change(MARKER, |it| it["data"]["inventory"] = json!(written));
    let first = cluster.fault("get configmaps kube-system/large-0").hold();
    env.touch("a");
    env.until("the first is read", |_| first.hits() > 0).await;
    env.settle().await;
    let reads = || {
        let mut reads = cluster.requests_of("get configmaps");
        reads.retain(|it| it.asked.name.starts_with("large-"));
        reads.len()
    };
    assert_eq!(reads(), 1);
    drop(first);
    env.until("they are not listed any more", |_| {
        !inventory(&cluster).contains("large")
    })
    .await;
    assert_eq!(reads(), 20);
}
