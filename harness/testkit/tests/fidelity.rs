//! Sends the same requests to the API server in memory and to a real one, and compares the responses.
//!
//! The test compares the data that clients of the product read: status, reason, causes, content, generation, owners, and
//! whether the version changed. It covers every request of the product and its error cases. A simulated response may lack
//! fields that a real API server adds, but must not have additional fields.

#![cfg(test)]

#[path = "fidelity/calls.rs"]
mod calls;

use std::collections::BTreeMap;

use calls::{Call, calls};
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::control_plane::ControlPlane;
use clusters::run::Run;
use clusters::setup::Setup;
use futures::TryStreamExt as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use testkit::apiserver::kinds::RUNTIMES;

#[tokio::test]
async fn a_simulated_api_server_answers_as_a_real_one() {
    let setup = Setup::load().unwrap();
    let run = Run::begin(false).await.unwrap();
    let options = ClusterOptions::new("fidelity").without_node();
    let cluster = Cluster::start(&run, &setup.provider, &options)
        .await
        .unwrap();
    // A runtime has this namespace from the start.
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}});
    cluster.apply(&namespace.to_string()).await.unwrap();
    let server = ApiServer::with_kinds([&RUNTIMES]);
    server.namespace("kyma-system");
    server.namespace("kcp-system");
    let config = testkit::client_config(&cluster.kubeconfig).await.unwrap();
    let client = Client::try_from(config).unwrap();
    ControlPlane::prepare(client.clone()).await.unwrap();
    let (real, simulated) = tokio::join!(answers(client.clone()), answers(server.client()));
    let (real_events, events) = tokio::join!(events(client), events(server.client()));
    cluster.stop().await.unwrap();
    run.end().await.unwrap();

    let mut differences = Vec::new();
    for ((call, real), simulated) in calls().iter().zip(&real).zip(&simulated) {
        for difference in compare(call, real, simulated) {
            differences.push(format!("{}: {difference}", call.what));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} calls:\n{}",
        differences.len(),
        real.len(),
        differences.join("\n")
    );
    assert_eq!(real_events, events);
}

/// The compared data of a response.
#[derive(Debug)]
struct Answer {
    status: u16,
    body: Value,
    /// Whether the version changed since the last response with the same object.
    version_moved: Option<bool>,
    generation_moved: Option<bool>,
}

async fn answers(client: Client) -> Vec<Answer> {
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    let mut answers = Vec::new();
    for call in calls() {
        let response = client.send(call.request(&seen)).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let metadata = &body["metadata"];
        let before = match metadata["uid"].as_str() {
            Some(_) => seen.insert(call.path.clone(), metadata.clone()),
            None => None,
        };
        let moved = |field: &str| before.as_ref().map(|it| it[field] != metadata[field]);
        answers.push(Answer {
            status,
            version_moved: moved("resourceVersion"),
            generation_moved: moved("generation"),
            body,
        });
    }
    answers
}

fn compare(call: &Call, real: &Answer, simulated: &Answer) -> Vec<String> {
    let mut differences = Vec::new();
    let mut same = |what: &str, of: &dyn Fn(&Answer) -> Value| {
        let (real, simulated) = (of(real), of(simulated));
        if real != simulated {
            differences.push(format!("{what}: real {real}, simulated {simulated}"));
        }
    };
    same("status", &|it| json!(it.status));
    if real.body["kind"] == "Status" || simulated.body["kind"] == "Status" {
        for field in ["kind", "reason", "status", "code"] {
            same(field, &|it| it.body[field].clone());
        }
        same("causes", &|it| causes(&it.body));
        if !differences.is_empty() {
            differences.push(format!("it said: {}", real.body["message"]));
        }
        return differences;
    }
    let has = |of: fn(&Value) -> bool| move |it: &Answer| json!(of(&it.body["metadata"]));
    // A controller of the real cluster may have written meanwhile.
    if !call.has_controller {
        same("version moved", &|it| json!(it.version_moved));
    }
    same("generation moved", &|it| json!(it.generation_moved));
    let has_next = has(|it| it["continue"].as_str().is_some_and(|it| !it.is_empty()));
    same("has a next page", &has_next);
    same(
        "is being deleted",
        &has(|it| it["deletionTimestamp"].is_string()),
    );
    same("has a generation", &has(|it| it["generation"].is_u64()));
    if real.body["metadata"]["uid"].is_string() {
        same("owners", &|it| owners(call, &it.body));
    }
    let missing = missing(&real.body, &own(&simulated.body), "");
    if let Some(missing) = missing.filter(|_| !real.body.is_null()) {
        differences.push(format!("only simulated: {missing}"));
    }
    differences
}

fn causes(status: &Value) -> Value {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes
        .map(|cause| json!([cause["reason"], cause["field"]]))
        .collect()
}

/// Returns name, operation and fields of every manager, without the controllers of a real cluster.
fn owners(call: &Call, object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let owners = entries.into_iter().flatten().filter(|entry| {
        let foreign = entry["manager"]
            .as_str()
            .is_some_and(|it| it.starts_with("kube-"));
        !(call.has_controller && foreign) && entry.get("subresource").is_none()
    });
    owners
        .map(|entry| {
            let name = ["manager", "operation", "apiVersion"].map(|it| entry[it].as_str().unwrap());
            (name.join("/"), entry["fieldsV1"].clone())
        })
        .collect()
}

/// Removes the fields that differ between clusters.
fn own(body: &Value) -> Value {
    const OTHER: &str =
        "uid resourceVersion creationTimestamp managedFields continue deletionTimestamp";
    let mut body = body.clone();
    for item in body["items"].as_array_mut().into_iter().flatten() {
        *item = own(item);
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.retain(|field, _| !OTHER.split(' ').any(|it| it == field));
    }
    if body["kind"] == "Deployment" {
        body.as_object_mut().unwrap().remove("status");
    }
    body
}

/// Returns a description of the first value in `part` that `whole` does not have.
fn missing(whole: &Value, part: &Value, path: &str) -> Option<String> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().find_map(|(key, part)| {
            let whole = whole.get(key).unwrap_or(&Value::Null);
            missing(whole, part, &format!("{path}.{key}"))
        }),
        (Value::Array(whole), Value::Array(part)) => part.iter().find_map(|part| {
            let found = whole
                .iter()
                .any(|whole| missing(whole, part, path).is_none());
            (!found).then(|| format!("{path}[]: {part} is not in {}", Value::Array(whole.clone())))
        }),
        (whole, part) => (whole != part).then(|| format!("{path}: real {whole}, simulated {part}")),
    }
}

/// Returns the watch events for an object that is created, selected, changed, no longer selected, and deleted.
async fn events(client: Client) -> Vec<(&'static str, Value)> {
    let api: Api<ConfigMap> = Api::namespaced(client, "kyma-system");
    let seen = api.list(&ListParams::default()).await.unwrap();
    let version = seen.metadata.resource_version.unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched"}});
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let changes = [
        json!({"metadata": {"labels": {"chosen": "yes"}}}),
        json!({"data": {"a": "1"}}),
        json!({"data": {"a": "1"}}),
        json!({"metadata": {"labels": {"chosen": null}}}),
        json!({"data": {"a": "2"}}),
        json!({"metadata": {"labels": {"chosen": "yes"}}}),
    ];
    let merge = PatchParams::default();
    for change in changes.map(Patch::Merge) {
        api.patch("watched", &merge, &change).await.unwrap();
    }
    let options = DeleteParams::default();
    api.delete("watched", &options).await.unwrap();
    let params = WatchParams::default().labels("chosen").timeout(3);
    let stream = api.watch(&params, &version).await.unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = stream.try_collect().await.unwrap();
    let shown = |name: &'static str, object: ConfigMap| {
        (name, json!([object.data, object.metadata.labels]))
    };
    let events = events.into_iter().filter_map(|event| match event {
        WatchEvent::Added(object) => Some(shown("added", object)),
        WatchEvent::Modified(object) => Some(shown("modified", object)),
        WatchEvent::Deleted(object) => Some(shown("deleted", object)),
        WatchEvent::Error(status) => Some(("error", json!(status.code))),
        WatchEvent::Bookmark(_) => None,
    });
    events.collect()
}
