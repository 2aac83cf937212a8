//! The product's own objects, and a Deployment of which the node has to make nothing.

use clusters::workspace;
use serde_json::{Value, json};

use super::{Call, OURS, THEIRS};

/// What the product installs on a runtime, each applied twice.
pub(super) fn manifests() -> Vec<Call> {
    let folder = workspace::root().join("deploy/webhook");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.sort();
    let mut calls = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in objects.into_iter().filter(|it| !it.is_null()) {
            let path = path(&object);
            let has_controller = matches!(
                object["kind"].as_str(),
                Some("Deployment" | "PodDisruptionBudget")
            );
            for what in ["first", "again"] {
                let mut call = Call::apply(&format!("{path} {what}"), &path, OURS, &object);
                call.has_controller = has_controller;
                calls.push(call);
            }
        }
    }
    assert!(calls.len() >= 20, "the manifests were not found");
    calls
}

fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let plural = match text("/kind").unwrap().to_lowercase() {
        kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        kind if kind.ends_with("ss") => format!("{kind}es"),
        kind => format!("{kind}s"),
    };
    let version = text("/apiVersion").unwrap();
    let root = if version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let namespace =
        text("/metadata/namespace").map_or_else(String::new, |it| format!("/namespaces/{it}"));
    format!(
        "{root}/{version}{namespace}/{plural}/{}",
        text("/metadata/name").unwrap()
    )
}

pub(super) fn deployment() -> Vec<Call> {
    let path = "/apis/apps/v1/namespaces/kyma-system/deployments/web";
    let deployment = |image: &str, label: &str, app: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"l": label}},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": app}},
                "template": {
                    "metadata": {"labels": {"app": app}},
                    "spec": {"containers": [{
                        "name": "web", "image": image,
                        "env": [{"name": "A", "value": "1"}],
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "resources": {"limits": {"cpu": "1"}},
                    }]},
                },
            },
        })
    };
    let apply = |what: &str, body: Value| Call {
        has_controller: true,
        ..Call::apply(what, path, OURS, &body)
    };
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "template": {"spec": {"containers": [{"name": "web", "image": "x:9"}]}}}});
    vec![
        apply("a Deployment", deployment("x:1", "1", "web")),
        apply("a Deployment's label", deployment("x:1", "2", "web")),
        apply("a Deployment's image", deployment("x:2", "2", "web")),
        Call::apply("a Deployment's image by another", path, THEIRS, &theirs),
        apply("a Deployment's selector", deployment("x:2", "2", "other")),
    ]
}
