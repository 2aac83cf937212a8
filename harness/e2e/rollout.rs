//! Deployments: whether a Deployment is rolled out, and actions of scenarios on it.
//!
//! A Deployment is rolled out when all its replicas are of the newest template and available, and it has no other Pods. A Pod
//! that is being deleted may still respond.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use crate::definitions::{check, random};
use clusters::cluster::Cluster;
use clusters::evidence::Evidence;
use testkit::client::Client;
use testkit::metrics::Samples;
use testkit::until::until;

/// A Deployment of a scenario's cluster.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) client: Client,
    namespace: &'static str,
    name: &'static str,
}

impl Workload {
    pub(crate) fn new(client: Client, namespace: &'static str, name: &'static str) -> Self {
        Self {
            client,
            namespace,
            name,
        }
    }

    /// Returns the Pods of the Deployment, including those that are being deleted.
    pub(crate) async fn pods(&self) -> Result<Vec<Value>> {
        let deployment = self.client.get(&self.path()).await?;
        let labels = deployment.at("/spec/selector/matchLabels").as_object();
        let labels = labels.into_iter().flatten();
        let labels =
            labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        let (namespace, selector) = (self.namespace, labels.collect::<Vec<_>>().join(","));
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
        self.client.items(&path).await
    }

    pub(crate) async fn pod_names(&self) -> Result<Vec<String>> {
        let pods = self.pods().await?;
        let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str());
        Ok(names.flatten().map(str::to_owned).collect())
    }

    /// Returns the metrics of each replica, by Pod.
    pub(crate) async fn metrics(&self, port: u16) -> Result<BTreeMap<String, Samples>> {
        let mut metrics = BTreeMap::new();
        for pod in self.pod_names().await? {
            let page = self.page(&pod, port, "metrics").await?;
            metrics.insert(pod, Samples::parse(&page));
        }
        ensure!(!metrics.is_empty(), "{} has no replica", self.name);
        Ok(metrics)
    }

    /// Writes the metrics of each replica to a folder of diagnostics.
    pub(crate) async fn keep_metrics(&self, port: u16, evidence: &Evidence, folder: &str) {
        for pod in self.pod_names().await.unwrap_or_default() {
            let page = self.page(&pod, port, "metrics").await;
            evidence.keep_result(&format!("{folder}/{pod}-metrics.txt"), page);
        }
    }

    pub(crate) fn pod_path(&self, pod: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{pod}", self.namespace)
    }

    /// Returns a page of a Pod, over plain HTTP through the API server.
    pub(crate) async fn page(&self, pod: &str, port: u16, page: &str) -> Result<String> {
        let path = format!("{}:{port}/proxy/{page}", self.pod_path(pod));
        self.client.text(&path).await
    }

    /// Returns the logs of all replicas.
    pub(crate) async fn log(&self) -> Result<String> {
        let mut log = String::new();
        for pod in self.pod_names().await? {
            let path = format!("{}/log", self.pod_path(&pod));
            log += &self.client.text(&path).await?;
        }
        Ok(log)
    }

    /// Returns the number of replicas, if the Deployment is rolled out.
    pub(crate) async fn replicas(&self) -> Result<usize> {
        let deployment = self.client.get(&self.path()).await?.object;
        let wanted = usize::try_from(replicas(&serde_json::from_value(deployment)?)?)?;
        // The counts do not include Pods that are being deleted.
        let pods = self.pods().await?.len();
        ensure!(pods == wanted, "{pods} Pods for {wanted} replicas");
        Ok(wanted)
    }

    /// Waits until the Deployment is rolled out.
    pub(crate) async fn is_rolled_out(&self) -> Result<()> {
        let what = format!("Deployment {} is rolled out", self.name);
        Ok(until(&what, PATIENCE, || self.replicas()).await.map(drop)?)
    }

    /// Scales the Deployment to zero and waits until it has no Pods.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.scale(0).await?;
        let what = format!("Deployment {} has no Pod", self.name);
        let has_none = || async {
            let names = self.pod_names().await?;
            check(names.is_empty(), format!("{names:?}"))
        };
        Ok(until(&what, PATIENCE, has_none).await?)
    }

    /// Scales the Deployment up and waits until it is rolled out.
    pub(crate) async fn start(&self, replicas: usize) -> Result<()> {
        self.scale(replicas).await?;
        self.is_rolled_out().await
    }

    /// Replaces all Pods, as `kubectl rollout restart` does, and waits until the Deployment is rolled out.
    pub(crate) async fn restart(&self) -> Result<()> {
        self.client.patch(&self.path(), &restarted()).await?;
        self.is_rolled_out().await
    }

    /// Changes an annotation of each Pod, after which the kubelet updates mounted Secrets at once instead of within a minute.
    pub(crate) async fn update_mounts(&self) -> Result<()> {
        for pod in self.pod_names().await? {
            let annotations = json!({ "harness.test/updated": random() });
            let change = json!({ "metadata": { "annotations": annotations } });
            self.client.patch(&self.pod_path(&pod), &change).await?;
        }
        Ok(())
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        let change = json!({ "spec": { "replicas": replicas } });
        self.client.patch(&self.path(), &change).await.map(drop)
    }

    fn path(&self) -> String {
        let (namespace, name) = (self.namespace, self.name);
        format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    }
}

/// Returns the sum of the counters of a known metric over all replicas.
pub(crate) fn count(replicas: &BTreeMap<String, Samples>, series: &str) -> Result<u64> {
    let counts = replicas.values().map(|it| it.count_of_known(series));
    Ok(counts.sum::<Result<u64, _>>()?)
}

/// Kills the processes whose line of `/proc/PID/FILE` matches a pattern. On a node, the processes of Pods are visible. Returns
/// their number.
pub(crate) async fn kill(node: &Cluster, file: &str, pattern: &str) -> Result<usize> {
    let script = KILL.replace("FILE", file).replace("PATTERN", pattern);
    let killed = node.exec_on_node(&["sh", "-c", &script]).await?;
    ensure!(killed.code == 0, "{killed:?}");
    Ok(killed.stdout.lines().count())
}

/// Inserts a rule into a table of iptables on a node, or deletes it. Deleting a rule that does not exist is not an error.
pub(crate) async fn filter(node: &Cluster, table: &str, rule: &str, inserts: bool) -> Result<()> {
    let command = if inserts {
        format!("iptables -t {table} -I {rule}")
    } else {
        format!("while iptables -t {table} -D {rule} 2>/dev/null; do :; done")
    };
    let output = node.exec_on_node(&["sh", "-c", &command]).await?;
    ensure!(output.code == 0, "{command}: {output:?}");
    Ok(())
}

/// Returns the change with which `kubectl rollout restart` replaces all Pods of a workload.
pub(crate) fn restarted() -> Value {
    let annotations = json!({ "harness.test/restarted": random() });
    json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } })
}

/// Returns the number of replicas of a Deployment that is rolled out.
fn replicas(deployment: &Deployment) -> Result<i32> {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.as_ref().context("no status yet")?;
    ensure!(
        status.observed_generation == deployment.metadata.generation,
        "the newest generation is not observed yet"
    );
    // A count of zero is absent.
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ]
    .map(Option::unwrap_or_default);
    ensure!(counts == [wanted; 3], "{counts:?} of {wanted}");
    Ok(wanted)
}

const KILL: &str = "for file in /proc/[0-9]*/FILE; do \
     if tr '\\0' ' ' <$file 2>/dev/null | grep -qE 'PATTERN'; then \
     pid=${file#/proc/}; pid=${pid%/FILE}; kill -9 $pid && echo $pid; fi; done";
/// Time limit of a rollout, for a machine that runs several suites.
const PATIENCE: Duration = Duration::from_mins(4);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::all_available([2, 2, 2], 3, true)]
    #[case::one_of_the_old_template([3, 2, 2], 3, false)]
    #[case::one_not_available([2, 2, 1], 3, false)]
    #[case::not_observed([2, 2, 2], 2, false)]
    fn rolled_out_means_every_count_of_the_newest_generation(
        #[case] counts: [i32; 3],
        #[case] observed: i64,
        #[case] expected: bool,
    ) {
        let [all, updated, available] = counts;
        let deployment = json!({
            "metadata": { "generation": 3 },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": {
                "replicas": all, "updatedReplicas": updated, "availableReplicas": available,
                "observedGeneration": observed,
            },
        });
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        assert_eq!(replicas(&deployment).is_ok(), expected);
    }
}
