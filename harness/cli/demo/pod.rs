//! The two Pods that the demo compares: as the API server stores them, and what their containers print.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Map, Value, json};

use clusters::cluster::{Cluster, PodTarget};
use e2e::landscape::{Scenario, Workload};
use testkit::until::until;

/// A Pod and what was found out about it.
#[derive(Debug, Clone)]
pub(super) struct PodResult {
    /// The object as the API server stores it.
    pub(super) pod: Value,
    /// What its container printed.
    pub(super) answers: Vec<Answer>,
    /// Name of the pull Secret in its Namespace, if there is one.
    pub(super) secret: Option<String>,
}

/// One fact that the container of a Pod printed.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) text: String,
    /// Whether it is what the scenario expects.
    pub(super) is_expected: bool,
}

/// Gives the newest Pod of a Namespace.
pub(super) async fn newest(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let mut found = pods.list(&ListParams::default()).await?.items;
    found.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    Ok(serde_json::to_value(found.pop().context("no Pod yet")?)?)
}

/// Waits until the Pod of a Namespace runs, then reads variables and files in its container.
pub(super) async fn running(
    cluster: &Cluster,
    namespace: &str,
    scenario: &Scenario,
    workload: &Workload,
) -> anyhow::Result<PodResult> {
    let what = format!("the Pod in {namespace} runs");
    let pod = until(&what, TIMEOUT, || async {
        let pod = newest(cluster, namespace).await?;
        let (phase, waiting) = (&pod["status"]["phase"], waiting(&pod));
        ensure!(
            phase == "Running" && waiting.is_none(),
            "{phase} {waiting:?}"
        );
        Ok(pod)
    })
    .await?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let target = PodTarget {
        namespace,
        pod: name,
        container: None,
    };
    let answers = answers(cluster, target, scenario, workload).await?;
    let mut secret = None;
    if let Some(expected) = &scenario.landscape.pull_secret {
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
        let found = secrets.get_metadata_opt(&expected.name).await?;
        secret = found.map(|_| expected.name.clone());
    }
    Ok(PodResult {
        pod,
        answers,
        secret,
    })
}

/// Waits until the image of the Pod of a Namespace could not be pulled.
pub(super) async fn rejected(cluster: &Cluster, namespace: &str) -> anyhow::Result<PodResult> {
    let what = format!("the image of the Pod in {namespace} cannot be pulled");
    let pod = until(&what, TIMEOUT, || async {
        let pod = newest(cluster, namespace).await?;
        let waiting = waiting(&pod);
        let reason = waiting.as_ref().map_or("", |(reason, _)| reason);
        ensure!(
            matches!(reason, "ErrImagePull" | "ImagePullBackOff"),
            "{waiting:?}"
        );
        Ok(pod)
    })
    .await?;
    Ok(PodResult {
        pod,
        answers: Vec::new(),
        secret: None,
    })
}

/// Reason and message of the first container that waits.
pub(super) fn waiting(pod: &Value) -> Option<(String, String)> {
    let containers = pod["status"]["containerStatuses"].as_array()?;
    let waiting = containers
        .iter()
        .find_map(|container| container["state"]["waiting"].as_object())?;
    let text = |key: &str| waiting.get(key).and_then(Value::as_str).unwrap_or_default();
    Some((text("reason").to_owned(), text("message").to_owned()))
}

/// The fields of a Pod that a workload's owner writes and the webhook changes, without what every Pod gets.
pub(super) fn readable(pod: &Value) -> Value {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let mut shown = fields(spec, &["imagePullSecrets", "volumes"]);
    for list in ["initContainers", "containers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        let keys = ["name", "image", "env", "volumeMounts"];
        let containers: Vec<_> = containers
            .map(|it| Value::Object(fields(it, &keys)))
            .collect();
        if !containers.is_empty() {
            shown.insert(list.to_owned(), Value::Array(containers));
        }
    }
    json!({ "metadata": fields(metadata, &["annotations"]), "spec": shown })
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
        if !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()) {
            fields.insert((*key).to_owned(), value);
        }
    }
    fields
}

async fn answers(
    cluster: &Cluster,
    target: PodTarget<'_>,
    scenario: &Scenario,
    workload: &Workload,
) -> anyhow::Result<Vec<Answer>> {
    let inside = &workload.expect.inside;
    let mut answers = Vec::new();
    for (name, expected) in &inside.variables {
        let output = cluster
            .exec_in_pod(target, &["/probe", "env", name])
            .await?;
        let printed = format!("{}{}", output.stdout, output.stderr);
        let is_expected = printed.trim_end() == expected;
        let text = format!("{name}={}", printed.trim_end());
        answers.push(Answer { text, is_expected });
    }
    if let (Some(file), Some(trust)) = (&inside.trust, &scenario.landscape.trust) {
        let output = cluster
            .exec_in_pod(target, &["/probe", "cat", file])
            .await?;
        let printed = format!("{}{}", output.stdout, output.stderr);
        answers.push(certificates(file, &printed, &trust.pem()?));
    }
    Ok(answers)
}

/// Compares two sets of certificates: the kubelet changes the order of a bundle on purpose.
fn certificates(file: &str, printed: &str, bundle: &str) -> Answer {
    let (seen, expected) = (blocks(printed), blocks(bundle));
    let is_expected = seen == expected;
    let text = match (is_expected, seen.len()) {
        (true, count) => format!("{file}: the bundle's certificates ({count})"),
        (false, 0) => format!("{file}: {}", printed.trim_end()),
        (false, count) => format!("{file}: {count} certificates, not those of the bundle"),
    };
    Answer { text, is_expected }
}

/// The certificates of a PEM text, without line breaks.
fn blocks(pem: &str) -> BTreeSet<String> {
    pem.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|rest| rest.split_once("-----END CERTIFICATE-----"))
        .map(|(block, _)| block.split_whitespace().collect())
        .collect()
}

const TIMEOUT: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn readable_pod_has_written_fields_without_the_token() {
        let token = json!({ "name": "kube-api-access-x", "mountPath": "/t" });
        let mount = json!({ "name": "v", "mountPath": "/v" });
        let pod = json!({
            "metadata": { "name": "p", "uid": "1", "annotations": { "a": "b" } },
            "spec": {
                "nodeName": "n",
                "containers": [{
                    "name": "c", "image": "i", "terminationMessagePath": "/x",
                    "volumeMounts": [token, mount],
                }],
                "volumes": [token],
            },
        });
        let expected = json!({
            "metadata": { "annotations": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i", "volumeMounts": [mount] }] },
        });
        assert_eq!(readable(&pod), expected);
    }

    #[rstest]
    #[case::another_order(&["b", "a"], true)]
    #[case::one_is_missing(&["a"], false)]
    #[case::none(&[], false)]
    fn certificates_are_compared_as_a_set(#[case] seen: &[&str], #[case] expected: bool) {
        let pem = |names: &[&str]| -> String {
            let wrap = |name: &&str| {
                format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
            };
            names.iter().map(wrap).collect()
        };
        let answer = certificates("f", &pem(seen), &pem(&["a", "b"]));
        assert_eq!(answer.is_expected, expected);
    }
}
