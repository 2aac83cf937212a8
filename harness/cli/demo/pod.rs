//! The two Pods: what the API server stores of them, what their containers say, what a reader wants to see of them.
//!
//! Invariant: every wait looks at the state, and shows the last one seen when it was in vain.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use serde::{Serialize, Serializer};
use serde_json::Value;

use clusters::cluster::{Cluster, PodTarget};
use e2e::landscape::{Scenario, Workload};
use testkit::until::until;

/// A Pod at the end of the play.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// As the API server stores it.
    pub(super) pod: Value,
    /// What its container answered.
    pub(super) inside: Vec<Answer>,
    /// The pull Secret that was found in its namespace.
    pub(super) secret: Option<String>,
}

/// A container's answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) text: String,
    /// Whether it is what the scenario expects.
    pub(super) good: bool,
}

/// Why a container waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: String,
    pub(super) message: String,
}

/// The Pod of a namespace.
pub(super) async fn newest(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let mut found = pods.list(&ListParams::default()).await?.items;
    found.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let pod = found.pop().context("no Pod yet")?;
    Ok(serde_json::to_value(pod)?)
}

/// Waits until the Pod runs, and asks it from inside.
pub(super) async fn running(
    cluster: &Cluster,
    namespace: &str,
    scenario: &Scenario,
    workload: &Workload,
) -> anyhow::Result<Seen> {
    let what = format!("the Pod in {namespace} runs");
    let pod = until(&what, PATIENCE, || async {
        let pod = newest(cluster, namespace).await?;
        ensure!(
            pod["status"]["phase"] == "Running" && waiting(&pod).is_none(),
            "{} {:?}",
            pod["status"]["phase"],
            waiting(&pod)
        );
        Ok(pod)
    })
    .await?;
    let container = Container {
        cluster,
        namespace,
        pod: pod["metadata"]["name"].as_str().unwrap_or_default(),
    };
    let inside = container.asked(scenario, workload).await?;
    let secret = match &scenario.landscape.pull_secret {
        Some(expected) => secret(cluster, namespace, &expected.name).await?,
        None => None,
    };
    Ok(Seen {
        pod,
        inside,
        secret,
    })
}

/// Waits until the kubelet has given up the first pull of the Pod's image.
pub(super) async fn refused(cluster: &Cluster, namespace: &str) -> anyhow::Result<Seen> {
    let what = format!("the image of the Pod in {namespace} is refused");
    let pod = until(&what, PATIENCE, || async {
        let pod = newest(cluster, namespace).await?;
        match waiting(&pod) {
            Some(waiting) if waiting.reason == PULL_FAILED => Ok(pod),
            other => bail!("{} {other:?}", pod["status"]["phase"]),
        }
    })
    .await?;
    Ok(Seen {
        pod,
        inside: Vec::new(),
        secret: None,
    })
}

async fn secret(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
    let found = secrets.get_metadata_opt(name).await?;
    Ok(found.map(|_| name.to_owned()))
}

/// Why the first container that waits does so; a failed pull is told alike, whether the next try is near or far.
pub(super) fn waiting(pod: &Value) -> Option<Waiting> {
    let containers = pod["status"]["containerStatuses"].as_array()?;
    let waiting = containers
        .iter()
        .find_map(|container| container["state"]["waiting"].as_object())?;
    let text = |key: &str| waiting.get(key).and_then(Value::as_str).unwrap_or_default();
    let (reason, message) = (text("reason"), text("message"));
    let (reason, message) = match (reason, message.split_once(&format!("{PULL_FAILED}: "))) {
        ("ImagePullBackOff", Some((_, message))) => (PULL_FAILED, message),
        _ => (reason, message),
    };
    Some(Waiting {
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

/// The fields that people write and the webhook changes, without what every Pod gets; in the order of the books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Readable {
    metadata: Fields,
    spec: Fields,
}

/// Fields in the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields(Vec<(&'static str, Part)>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Part {
    Value(Value),
    Containers(Vec<Fields>),
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, part)| (name, part)))
    }
}

impl Fields {
    fn add(mut self, name: &'static str, value: &Value) -> Self {
        let value = match value {
            Value::Array(items) => items
                .iter()
                .filter(|item| !is_token(item))
                .cloned()
                .collect(),
            other => other.clone(),
        };
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !is_empty {
            self.0.push((name, Part::Value(value)));
        }
        self
    }

    fn add_containers(mut self, name: &'static str, containers: &Value) -> Self {
        let containers: Vec<Self> = containers
            .as_array()
            .into_iter()
            .flatten()
            .map(|container| {
                let keys = ["name", "image", "env", "volumeMounts"];
                keys.into_iter().fold(Self::default(), |fields, key| {
                    fields.add(key, &container[key])
                })
            })
            .collect();
        if !containers.is_empty() {
            self.0.push((name, Part::Containers(containers)));
        }
        self
    }
}

impl Readable {
    pub(super) fn of(pod: &Value) -> Self {
        let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
        Self {
            metadata: Fields::default().add("annotations", &metadata["annotations"]),
            spec: Fields::default()
                .add_containers("initContainers", &spec["initContainers"])
                .add_containers("containers", &spec["containers"])
                .add("imagePullSecrets", &spec["imagePullSecrets"])
                .add("volumes", &spec["volumes"]),
        }
    }
}

/// The token of the service account, which the API server adds to every Pod.
fn is_token(item: &Value) -> bool {
    item["name"]
        .as_str()
        .is_some_and(|name| name.starts_with("kube-api-access-"))
}

/// The first container of a Pod.
struct Container<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    pod: &'a str,
}

impl Container<'_> {
    async fn asked(&self, scenario: &Scenario, workload: &Workload) -> anyhow::Result<Vec<Answer>> {
        let inside = &workload.expect.inside;
        let mut answers = Vec::new();
        for (name, expected) in &inside.variables {
            let said = self.ask(&["/probe", "env", name]).await?;
            let said = said.trim_end();
            answers.push(Answer {
                text: format!("{name}={said}"),
                good: said == expected,
            });
        }
        if let (Some(file), Some(trust)) = (&inside.trust, &scenario.landscape.trust) {
            let said = self.ask(&["/probe", "cat", file]).await?;
            answers.push(certificates(file, &said, &trust.pem()?));
        }
        Ok(answers)
    }

    /// What a program in it prints; its complaint when it fails.
    async fn ask(&self, argv: &[&str]) -> anyhow::Result<String> {
        let target = PodTarget {
            namespace: self.namespace,
            pod: self.pod,
            container: None,
        };
        let output = self.cluster.exec_in_pod(target, argv).await?;
        Ok(if output.code == 0 {
            output.stdout
        } else {
            output.stderr
        })
    }
}

/// The kubelet mixes the order of a bundle's certificates on purpose, so sets are compared.
fn certificates(file: &str, said: &str, bundle: &str) -> Answer {
    let (seen, expected) = (blocks(said), blocks(bundle));
    let good = seen == expected;
    let text = match (good, seen.len()) {
        (true, 1) => format!("{file} is the bundle's certificate"),
        (true, count) => format!("{file} holds the bundle's {count} certificates"),
        (false, 0) => format!("{file}: {}", said.trim_end()),
        (false, count) => format!("{file} holds {count} certificates, not the bundle's"),
    };
    Answer { text, good }
}

/// The certificates of a PEM text, without line breaks.
fn blocks(pem: &str) -> BTreeSet<String> {
    pem.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|rest| rest.split_once("-----END CERTIFICATE-----"))
        .map(|(block, _)| block.split_whitespace().collect())
        .collect()
}

const PULL_FAILED: &str = "ErrImagePull";
const PATIENCE: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reader_sees_what_was_written_and_not_what_every_pod_gets() {
        let token = json!({ "name": "kube-api-access-x", "mountPath": "/t" });
        let pod = json!({
            "metadata": { "name": "p", "uid": "1", "annotations": { "a": "b" } },
            "spec": {
                "nodeName": "n",
                "containers": [{
                    "name": "c", "image": "i", "terminationMessagePath": "/x",
                    "volumeMounts": [token, { "name": "v", "mountPath": "/v" }],
                }],
                "volumes": [token],
            },
        });
        let written = serde_json::to_string(&Readable::of(&pod)).unwrap();
        assert_eq!(
            written,
            r#"{"metadata":{"annotations":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","volumeMounts":[{"mountPath":"/v","name":"v"}]}]}}"#
        );
    }

    #[rstest]
    #[case::at_once("ErrImagePull", "no such host", "ErrImagePull", "no such host")]
    #[case::later(
        "ImagePullBackOff",
        "Back-off pulling image \"x\": ErrImagePull: no such host",
        "ErrImagePull",
        "no such host"
    )]
    #[case::something_else("ContainerCreating", "", "ContainerCreating", "")]
    fn a_failed_pull_is_told_alike(
        #[case] reason: &str,
        #[case] message: &str,
        #[case] told: &str,
        #[case] because: &str,
    ) {
        let state = json!({ "waiting": { "reason": reason, "message": message } });
        let pod = json!({ "status": { "containerStatuses": [{ "state": state }] } });
        let expected = Waiting {
            reason: told.to_owned(),
            message: because.to_owned(),
        };
        assert_eq!(waiting(&pod), Some(expected));
    }

    #[rstest]
    #[case::another_order(&["b", "a"], true)]
    #[case::one_is_missing(&["a"], false)]
    #[case::nothing(&[], false)]
    fn certificates_are_compared_as_a_set(#[case] seen: &[&str], #[case] good: bool) {
        let pem = |names: &[&str]| -> String {
            let wrap = |name: &&str| {
                format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
            };
            names.iter().map(wrap).collect()
        };
        assert_eq!(certificates("f", &pem(seen), &pem(&["a", "b"])).good, good);
    }
}
