//! Objects of any kind, which are discovered, applied and deleted as YAML, and the evidence of a cluster after a failure.
//!
//! Every write is a server-side apply by the field manager [`MANAGER`], with force, and therefore idempotent. If a kind is not
//! served yet, because its CRD was applied shortly before, the harness waits for it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::client::MANAGER;
use testkit::until::{TooLate, until};

use super::Cluster;
use crate::docker;
use crate::evidence::Evidence;

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

    /// Collects diagnostics of a failure into a folder named after the cluster: objects except Secrets, Events, logs of Pods
    /// and of the processes of the node. It never fails; the evidence names data that could not be read.
    pub async fn collect_evidence(&self, evidence: &Evidence) {
        let name = &self.name;
        evidence.keep(&format!("{name}/provider.txt"), &self.provider);
        for kind in ["pods", "events", "nodes", "namespaces", "configmaps"] {
            let found = ["get", kind, "--all-namespaces", "--output=yaml"];
            evidence.keep_result(&format!("{name}/{kind}.yaml"), self.kubectl(&found).await);
        }
        let pods = ["get", "pods", "--all-namespaces", "--no-headers"];
        let pods = self.kubectl(&pods).await.unwrap_or_default();
        // The list is sorted by namespace: namespaces of components precede those of scenarios, which can have a thousand Pods.
        for pod in pods.lines().take(MOST_LOGS) {
            let mut columns = pod.split_whitespace();
            let (namespace, pod) = (columns.next(), columns.next());
            let (namespace, pod) = (namespace.unwrap_or_default(), pod.unwrap_or_default());
            let all = ["--all-containers", "--prefix", "--ignore-errors"];
            let log = [&["logs", "--namespace", namespace, pod], &all[..]].concat();
            let file = format!("{name}/logs/{namespace}/{pod}.log");
            evidence.keep_result(&file, self.kubectl(&log).await);
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
/// Folder with the logs of the node's processes, in its container.
const NODE_LOGS: &str = "/var/log/kube";
const KIND_PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for the discovery of a kind whose objects are deleted. A response takes milliseconds, and if the kind is not
/// served, its objects do not exist.
const GONE_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_not_an_object_is_an_error() {
        assert!(parse("a: [").is_err());
        assert!(parse("- list").is_err());
        assert!(parse("metadata: {name: x}").is_err());
    }
}
