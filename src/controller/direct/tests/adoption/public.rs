//! Tests of adopting the public manifests: an adopted installation equals a new installation of the released manifests.

use http::{Method, Request};
use policy::sync::target::Target;
use serde_json::{Value, json};

use crate::direct::tests::env::*;
use crate::runtime_cluster::RuntimeCluster;

/// The public manifests, from the KIM double.
const PUBLIC: &str = include_str!("../../../../../harness/doubles/kim/webhook.yaml");

/// A version of the webhook with the released manifests.
pub(in crate::direct::tests) const REAL: &str = "real";

/// Returns the released manifests.
pub(in crate::direct::tests) fn real() -> Vec<Value> {
    let files = [
        include_str!("../../../../../deploy/webhook/priorityclass.yaml"),
        include_str!("../../../../../deploy/webhook/serviceaccount.yaml"),
        include_str!("../../../../../deploy/webhook/rbac.yaml"),
        include_str!("../../../../../deploy/webhook/networkpolicy.yaml"),
        include_str!("../../../../../deploy/webhook/service.yaml"),
        include_str!("../../../../../deploy/webhook/poddisruptionbudget.yaml"),
        include_str!("../../../../../deploy/webhook/deployment.yaml"),
        include_str!("../../../../../deploy/webhook/mutatingwebhookconfiguration.yaml"),
    ];
    let read = |text: &&str| serde_saphyr::from_multiple::<Value>(text).unwrap();
    files
        .iter()
        .flat_map(read)
        .filter(|it| !it.is_null())
        .collect()
}

/// Creates an object with a field manager, as KIM does, or applies it.
async fn write(cluster: &RuntimeCluster, object: &Value, manager: &str, how: &Method) {
    let target = Target::of(object).unwrap();
    let (path, content) = match *how {
        Method::POST => (target.collection(), "application/json"),
        _ => (target.path(), "application/apply-patch+yaml"),
    };
    let request = Request::builder()
        .method(how)
        .uri(format!("{path}?fieldManager={manager}&force=true"))
        .header("content-type", content)
        .header("authorization", "Bearer first")
        .body(object.to_string().into_bytes())
        .unwrap();
    cluster.client().request_text(request).await.unwrap();
}

/// Creates the objects of the public manifests.
async fn create(cluster: &RuntimeCluster) -> Vec<Value> {
    let public: Vec<Value> = serde_saphyr::from_multiple(PUBLIC).unwrap();
    for object in &public {
        write(cluster, object, "manager", &Method::POST).await;
    }
    public
}

/// Returns the object of the API server without the fields that differ between clusters.
fn bare(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for own in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(own);
    }
    for entry in metadata["managedFields"].as_array_mut().unwrap() {
        entry["time"] = Value::Null;
    }
    object["status"] = Value::Null;
    object
}

#[tokio::test]
async fn adopted_runtime_is_like_one_on_which_the_webhook_was_installed() {
    let mut env = Env::new();
    env.image = format!("registry.example/webhook:{REAL}");
    let adopted = env.add("a").await;
    let installed = env.add("b").await;
    let public = create(&adopted).await;
    let mut configuration = public
        .iter()
        .find(|it| it["kind"] == "MutatingWebhookConfiguration")
        .unwrap()
        .clone();
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!("Q0E=");
    write(
        &adopted,
        &configuration,
        "rt-bootstrapper-webhook",
        &Method::PATCH,
    )
    .await;
    env.start();
    for name in ["a", "b"] {
        env.until_ready(name).await;
    }
    env.settle().await;
    for manifest in real() {
        let path = Target::of(&manifest).unwrap();
        let live = |cluster: &RuntimeCluster| {
            let namespace = path.namespace().unwrap_or_default();
            let (_, plural) = path.resource();
            bare(cluster.get(plural, namespace, path.name()).unwrap())
        };
        let (adopted, installed) = (live(&adopted), live(&installed));
        assert_eq!(adopted, installed);
    }
    let left = |it: &String| !installed.inventory().contains(it);
    let left: Vec<String> = adopted.inventory().into_iter().filter(left).collect();
    assert_eq!(left, ["clusterroles rt-bootstrapper-metrics-auth-role"]);
}

/// KIM upgrades a webhook by applying its manifests.
#[tokio::test]
async fn orphaned_runtime_is_like_one_of_kim_once_kim_upgrades_it() {
    let mut env = Env::new();
    env.image = format!("registry.example/webhook:{REAL}");
    let adopted = env.add("a").await;
    let never = RuntimeCluster::new("cluster-never").await;
    let public = create(&adopted).await;
    create(&never).await;
    let policy = json!({"spec": {"deletionPolicy": "Orphan"}});
    env.kcp.merge("runtimebootstrappers", "a", &policy);
    env.start();
    env.until_ready("a").await;
    env.kcp.delete("runtimebootstrappers", "a");
    let is_gone = |it: &Env| it.kcp.object("runtimebootstrappers", "a").is_none();
    env.until("the resource is gone", is_gone).await;
    for object in &public {
        write(&adopted, object, "kim-bootstrapper", &Method::PATCH).await;
        let target = Target::of(object).unwrap();
        let live = |cluster: &RuntimeCluster| {
            let namespace = target.namespace().unwrap_or_default();
            let (_, plural) = target.resource();
            let mut live = bare(cluster.get(plural, namespace, target.name()).unwrap());
            live["metadata"]["managedFields"] = Value::Null;
            live
        };
        assert_eq!(live(&adopted), live(&never));
    }
}
