//! Objects of any kind, which are discovered, applied and deleted as YAML, and the evidence of a cluster after a failure.
//!
//! Every write is a server-side apply by the field manager [`MANAGER`], with force, and therefore idempotent. If a kind is not
//! served yet, because its CRD was applied shortly before, the harness waits for it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::Resource as _;
use kube::api::DynamicObject;
use serde_json::{Map, Value};
use testkit::client::{Client, MANAGER};
use testkit::until::{TooLate, until};
use tokio::time::timeout;

use super::Cluster;
use crate::docker;
use crate::evidence::Evidence;
use crate::images::digest;

impl Cluster {
    async fn path(&self, object: &Value, patience: Duration) -> Result<String, TooLate> {
        let what = format!("the API server serves {}", object["kind"]);
        until(&what, patience, || self.objects.path(object)).await
    }

    /// Applies a YAML stream of objects of any kind. The namespace of an object without one is `default`.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        for object in parse(yaml)? {
            let path = self.path(&object, KIND_PATIENCE).await?;
            self.objects.apply_at(MANAGER, &path, &object).await?;
        }
        Ok(())
    }

    /// Deletes the objects of a YAML stream in reverse order. It ignores objects that do not exist and kinds that are not
    /// served. The namespace of an object without one is `default`.
    pub async fn delete(&self, yaml: &str) -> anyhow::Result<()> {
        for object in parse(yaml)?.into_iter().rev() {
            if let Ok(path) = self.path(&object, GONE_PATIENCE).await {
                let path = format!("{path}?propagationPolicy=Background");
                self.objects.delete(&path).await?;
            }
        }
        Ok(())
    }

    /// Collects diagnostics of a failure into a folder named after the cluster: objects (of Secrets digests of the data), logs of
    /// Pods and of the processes of the node. It never fails; the evidence names data that could not be read.
    pub async fn collect_evidence(&self, evidence: &Evidence) {
        let name = &self.name;
        evidence.keep(&format!("{name}/provider.txt"), &self.provider);
        keep_objects(&self.objects, evidence, name).await;
        let pods = ["get", "pods", "--all-namespaces", "--no-headers"];
        let pods = self.kubectl(&pods).await.unwrap_or_default();
        // The list is sorted by namespace: namespaces of components precede those of scenarios, which can have a thousand Pods.
        for (file, log) in pods.lines().take(MOST_LOGS).flat_map(logs) {
            evidence.keep_result(&format!("{name}/logs/{file}"), self.kubectl(&log).await);
        }
        let id = self.node.id();
        let log = docker::must(&["logs", "--tail=5000", id]).await;
        let log = log.map(|log| log.stdout + &log.stderr);
        evidence.keep_result(&format!("{name}/container.log"), log);
        let folder = evidence.folder.join(name).join("node");
        let (from, to) = (format!("{id}:{NODE_LOGS}"), folder.display().to_string());
        if let Err(error) = docker::must(&["cp", &from, &to]).await {
            evidence.keep_result(&format!("{name}{NODE_LOGS}"), Err::<&str, _>(error));
        }
    }
}

/// Writes one file for each kind of which objects exist.
async fn keep_objects(client: &Client, evidence: &Evidence, folder: &str) {
    let keep = async {
        let kinds = match client.listed().await {
            Ok(kinds) => kinds,
            Err(error) => return evidence.keep_result(folder, Err::<&str, _>(error)),
        };
        for kind in kinds {
            let file = format!("{folder}/{}", kind.plural);
            let file = [file.as_str(), &kind.group]
                .join(".")
                .trim_end_matches('.')
                .to_owned();
            let listed = client.items(&DynamicObject::url_path(&kind, None)).await;
            let listed = listed.map(|mut objects| {
                if kind.kind == "Secret" {
                    objects.iter_mut().for_each(hide_data);
                }
                objects
            });
            if listed.as_ref().is_ok_and(Vec::is_empty) {
                continue;
            }
            let text = listed.map(|it| format!("{:#}", Value::Array(it)));
            evidence.keep_result(&format!("{file}.json"), text);
        }
    };
    let kept = timeout(OBJECTS_LIMIT, keep).await;
    if let Err(error) = kept {
        evidence.keep_result(&format!("{folder}: further kinds"), Err::<&str, _>(error));
    }
}

/// Replaces each value of a Secret with its digest.
fn hide_data(secret: &mut Value) {
    let data = secret["data"].as_object_mut();
    for value in data.into_iter().flat_map(Map::values_mut) {
        *value = digest(value.to_string().as_bytes()).into();
    }
}

/// Returns file and arguments of `kubectl` for the log of a Pod, given its line of `kubectl get`, and for the log of its previous
/// containers if one was restarted.
fn logs(line: &str) -> Vec<(String, Vec<&str>)> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [namespace, pod, _, _, restarts, ..] = columns[..] else {
        return Vec::new();
    };
    let all = ["--all-containers", "--prefix", "--ignore-errors"];
    let log = [&["logs", "--namespace", namespace, pod], &all[..]].concat();
    let previous = [&log[..], &["--previous"]].concat();
    let mut logs = vec![(format!("{namespace}/{pod}.log"), log)];
    if restarts != "0" {
        logs.push((format!("{namespace}/{pod}-previous.log"), previous));
    }
    logs
}

fn parse(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(yaml).context("not a YAML stream")?;
    // A document that contains only comments is null.
    objects.retain(|object| !object.is_null());
    for object in &objects {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let is_complete = object["apiVersion"].is_string() && kind.is_string() && name.is_string();
        ensure!(is_complete, "not a Kubernetes object: {kind} {name}");
    }
    Ok(objects)
}

/// Largest number of Pods whose logs are collected.
const MOST_LOGS: usize = 100;
/// Time limit of the lists of all kinds of a cluster.
const OBJECTS_LIMIT: Duration = Duration::from_mins(1);
/// Folder with the logs of the node's processes, in its container.
const NODE_LOGS: &str = "/var/log/kube";
const KIND_PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for the discovery of a kind whose objects are deleted. A response takes milliseconds, and if the kind is not
/// served, its objects do not exist.
const GONE_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::apiserver::ApiServer;
    use testkit::client::Write;
    use testkit::json::{config_map, namespace, pull_secret};

    use super::*;

    #[tokio::test]
    async fn diagnostics_have_objects_of_all_kinds_and_no_data_of_secrets() {
        let server = ApiServer::new();
        let client = Client::new(server.client());
        let password = "canary-of-the-diagnostics";
        let config = json!({ "auths": { "a.test": { "username": "a", "password": password } } });
        let secret = pull_secret("kyma-system", "pull", &config);
        let account = json!({
            "kind": "ServiceAccount", "metadata": { "name": "account", "namespace": "kyma-system" },
        });
        let map = config_map("kyma-system", "map", &json!({ "key": "value" }));
        for object in [&namespace("kyma-system"), &secret, &account, &map] {
            client
                .write(Write::Apply, object)
                .await
                .unwrap()
                .good()
                .unwrap();
        }
        server.fault("list pods").status(500);
        let folder = tempfile::tempdir().unwrap();
        let evidence = Evidence::in_folder(folder.path().join("x")).unwrap();
        keep_objects(&client, &evidence, "kcp").await;

        let read = |file: &str| std::fs::read_to_string(evidence.folder.join(file)).unwrap();
        assert!(read("kcp/configmaps.json").contains("value"));
        assert!(read("kcp/serviceaccounts.json").contains("account"));
        assert!(read("missing.txt").starts_with("kcp/pods.json: "));
        let kept: Value = serde_json::from_str(&read("kcp/secrets.json")).unwrap();
        assert_eq!(kept[0]["metadata"]["name"], "pull");
        let kept = kept[0]["data"][".dockerconfigjson"].as_str().unwrap();
        assert!(kept.starts_with("sha256:"), "{kept}");
    }

    #[test]
    fn logs_of_a_restarted_pod_include_those_of_its_previous_containers() {
        let files = |line| -> Vec<String> { logs(line).into_iter().map(|it| it.0).collect() };
        let running = "kyma-system   webhook-0   1/1     Running   0          2m5s";
        assert_eq!(files(running), ["kyma-system/webhook-0.log"]);
        let restarted = "kyma-system   webhook-0   0/1     CrashLoopBackOff   3 (20s ago)   2m5s";
        let expected = [
            "kyma-system/webhook-0.log",
            "kyma-system/webhook-0-previous.log",
        ];
        assert_eq!(files(restarted), expected);
        let previous = &logs(restarted)[1].1;
        assert_eq!(
            previous[..4],
            ["logs", "--namespace", "kyma-system", "webhook-0"]
        );
        assert!(previous.contains(&"--previous"));
    }

    #[test]
    fn a_stream_is_read_in_order_without_its_empty_documents() {
        let objects = parse(
            "# only a comment\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: a}\ndata: {x: 'true'}\n",
        )
        .unwrap();
        let names: Vec<_> = objects.iter().map(testkit::json::name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(objects[1]["data"]["x"], "true");
    }

    #[test]
    fn document_without_kind_or_name_is_an_error() {
        assert!(parse("a: [").is_err());
        assert!(parse("- list").is_err());
        assert!(parse("metadata: {name: x}").is_err());
    }
}
