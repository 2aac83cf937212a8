//! A real API server accepts the definition of the kind `Watcher` with its validation rules, and rejects at `kubectl apply` what no
//! controller could use.

#![cfg(test)]

use std::time::Duration;

use clusters::cluster::{Cluster, ClusterOptions};
use clusters::run::Run;
use clusters::setup::Setup;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::until::until;

/// Labels to watch, selector of Istio Gateways, and a part of the message of the API server; `None` if it accepts them.
type Case = (Value, Value, Option<&'static str>);

fn cases() -> Vec<Case> {
    let key = Some("every key must be a valid label key");
    let required = Some("the operators In and NotIn need at least one value");
    let refused = Some("the operators Exists and DoesNotExist take no values");
    let requirement = |content: Value| json!({"matchExpressions": [content]});
    vec![
        (
            json!({"operator.kyma-project.io/watched-by": "kyma", "a": ""}),
            json!({}),
            None,
        ),
        (json!({"a b": "c"}), json!({}), key),
        (json!({"a/b/c": "d"}), json!({}), key),
        (
            json!({format!("{}/b", "a".repeat(254)): "c"}),
            json!({}),
            key,
        ),
        (json!({}), json!({"matchLabels": {"a/b": "c"}}), None),
        (json!({}), json!({"matchLabels": {"-a": "b"}}), key),
        (
            json!({}),
            json!({"matchLabels": {"a": "b c"}}),
            Some("should match"),
        ),
        (
            json!({}),
            requirement(json!({"key": "a", "operator": "In", "values": ["b"]})),
            None,
        ),
        (
            json!({}),
            requirement(json!({"key": "a", "operator": "Exists", "values": []})),
            None,
        ),
        (
            json!({}),
            requirement(json!({"key": "a b", "operator": "Exists"})),
            Some("must be a valid label key"),
        ),
        (
            json!({}),
            requirement(json!({"key": "a", "operator": "In"})),
            required,
        ),
        (
            json!({}),
            requirement(json!({"key": "a", "operator": "NotIn", "values": []})),
            required,
        ),
        (
            json!({}),
            requirement(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
            refused,
        ),
        (
            json!({}),
            requirement(json!({"key": "a", "operator": "DoesNotExist", "values": ["b"]})),
            refused,
        ),
    ]
}

fn watcher(labels: &Value, selector: &Value) -> DynamicObject {
    let watcher = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {"generateName": "w-"},
        "spec": {
            "manager": "klm", "labelsToWatch": labels,
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": "spec", "serviceInfo": {"name": "events", "port": 8082, "namespace": "kcp-system"},
            "gateway": {"selector": selector},
        },
    });
    serde_json::from_value(watcher).unwrap()
}

async fn created(watchers: &Api<DynamicObject>, (labels, selector, _): &Case) -> Option<String> {
    let (parameters, watcher) = (PostParams::default(), watcher(labels, selector));
    let created = watchers.create(&parameters, &watcher).await;
    created.err().map(|it| it.to_string())
}

#[tokio::test]
async fn an_api_server_rejects_watchers_that_no_controller_could_use() {
    let setup = Setup::load().unwrap();
    let run = Run::begin(false).await.unwrap();
    let options = ClusterOptions::new("watcher-schema").without_node();
    let cluster = Cluster::start(&run, &setup.provider, &options)
        .await
        .unwrap();
    let crd = include_str!("../../../deploy/controller/watcher.crd.yaml");
    let applied = cluster.apply(crd).await;
    let config = testkit::client_config(&cluster.kubeconfig).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let kind = GroupVersionKind::gvk("operator.kyma-project.io", "v1beta2", "Watcher");
    let watchers = Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind));
    let first = &cases()[0];
    let served = until("the CRD is served", Duration::from_mins(1), || async {
        created(&watchers, first).await.map_or(Ok(()), Err)
    });
    let served = served.await;
    let mut results = Vec::new();
    for case in cases() {
        results.push((created(&watchers, &case).await, case));
    }
    cluster.stop().await.unwrap();
    run.end().await.unwrap();
    applied.unwrap();
    served.unwrap();
    for (error, (labels, selector, expected)) in results {
        let is_expected = match (&error, expected) {
            (Some(error), Some(expected)) => error.contains(expected),
            (error, expected) => error.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{labels} {selector}: {error:?}");
    }
}
