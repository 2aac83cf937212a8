//! The two Pods that the demo compares: as the API server stores them, and what their containers print.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Map, Value, json};

use clusters::cluster::Cluster;
use e2e::landscape::{Scenario, Workload};
use testkit::until::until;

/// A Pod and what was found out about it.
#[derive(Debug, Clone)]
pub(super) struct PodResult {
    /// The object as the API server stores it.
    pub(super) pod: Value,
    /// What its container printed, and whether that is what the scenario expects.
    pub(super) answers: Vec<(String, bool)>,
}

/// Gives the newest Pod of a Namespace.
pub(super) async fn newest(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let mut found = pods.list(&ListParams::default()).await?.items;
    found.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    Ok(serde_json::to_value(found.pop().context("no Pod yet")?)?)
}

/// Waits until the Pod of a Namespace is in a state.
async fn reached(
    cluster: &Cluster,
    namespace: &str,
    what: &str,
    is_reached: fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let pod = until(what, TIMEOUT, || async {
        let pod = newest(cluster, namespace).await?;
        ensure!(is_reached(&pod), "{}", pod["status"]);
        Ok(pod)
    });
    Ok(pod.await?)
}

/// Waits until the Pod of a Namespace runs, then reads variables and files in its container.
pub(super) async fn running(
    cluster: &Cluster,
    namespace: &str,
    scenario: &Scenario,
    workload: &Workload,
) -> anyhow::Result<PodResult> {
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running" && waiting(pod).is_none();
    let pod = reached(cluster, namespace, "the Pod runs", is_running).await?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let exec = ["exec", "--namespace", namespace, name, "--", "/probe"];
    let ask = async |question: [&str; 2]| {
        let answer = cluster.kubectl(&[&exec[..], &question].concat()).await;
        answer.unwrap_or_else(|error| format!("{error:#}"))
    };
    let (inside, landscape) = (&workload.expect.inside, &scenario.landscape);
    let mut answers = Vec::new();
    for (name, expected) in &inside.variables {
        let printed = ask(["env", name]).await;
        let printed = printed.trim_end();
        answers.push((format!("{name}={printed}"), printed == expected));
    }
    if let (Some(file), Some(trust)) = (&inside.trust, &landscape.trust) {
        let printed = ask(["cat", file]).await;
        let (seen, expected) = (certificates(&printed), certificates(&trust.pem()?));
        let count = seen.intersection(&expected).count();
        let text = format!("{file}: {count} certificates of the bundle");
        answers.push((text, seen == expected));
    }
    Ok(PodResult { pod, answers })
}

/// Waits until the image of the Pod of a Namespace could not be pulled.
pub(super) async fn rejected(cluster: &Cluster, namespace: &str) -> anyhow::Result<PodResult> {
    let is_rejected = |pod: &Value| {
        let reason = waiting(pod).map(|(reason, _)| reason);
        matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
    };
    let (what, answers) = ("the image of the Pod cannot be pulled", Vec::new());
    let pod = reached(cluster, namespace, what, is_rejected).await?;
    Ok(PodResult { pod, answers })
}

/// Reason and message of the first container that waits.
pub(super) fn waiting(pod: &Value) -> Option<(&str, &str)> {
    let mut containers = pod["status"]["containerStatuses"].as_array()?.iter();
    let waiting = containers.find_map(|it| it["state"]["waiting"].as_object())?;
    let text = |key| waiting.get(key).and_then(Value::as_str).unwrap_or_default();
    Some((text("reason"), text("message")))
}

/// The fields of a Pod that a workload's owner writes and the webhook changes, without what every Pod gets.
pub(super) fn readable(pod: &Value) -> Value {
    let spec = &pod["spec"];
    let mut shown = fields(spec, &["imagePullSecrets", "volumes"]);
    for list in ["initContainers", "containers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        let keys = ["name", "image", "env", "volumeMounts"];
        let containers: Vec<_> = containers.map(|it| fields(it, &keys)).collect();
        if !containers.is_empty() {
            shown.insert(list.to_owned(), json!(containers));
        }
    }
    json!({ "metadata": fields(&pod["metadata"], &["annotations"]), "spec": shown })
}

/// The fields of `keys` that are set, without the token of the ServiceAccount, which the API server adds to every Pod.
fn fields(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let is_token = |item: &Value| {
        let name = item["name"].as_str();
        name.is_some_and(|name| name.starts_with("kube-api-access-"))
    };
    let mut fields = Map::new();
    for key in keys {
        let mut value = object[*key].clone();
        if let Some(items) = value.as_array_mut() {
            items.retain(|item| !is_token(item));
        }
        if ![Value::Null, json!([])].contains(&value) {
            fields.insert((*key).to_owned(), value);
        }
    }
    fields
}

/// The certificates of a PEM text, without line breaks; a set, as the kubelet changes the order of a bundle on purpose.
fn certificates(pem: &str) -> BTreeSet<String> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let certificates = blocks.map(|it| it.split_whitespace().collect());
    certificates.collect()
}

const TIMEOUT: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_pod_has_written_fields_without_the_token() {
        let token = json!({ "name": "kube-api-access-x", "mountPath": "/t" });
        let mount = json!({ "name": "v", "mountPath": "/v" });
        let container = json!({
            "name": "c", "image": "i", "terminationMessagePath": "/x", "volumeMounts": [token, mount],
        });
        let pod = json!({
            "metadata": { "name": "p", "uid": "1", "annotations": { "a": "b" } },
            "spec": { "nodeName": "n", "containers": [container], "volumes": [token] },
        });
        let expected = json!({
            "metadata": { "annotations": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i", "volumeMounts": [mount] }] },
        });
        assert_eq!(readable(&pod), expected);
    }
}
