//! The runtime cluster, and its watcher, which is installed from the output of `manifests watcher`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use serde_json::{Value, json};
use testkit::json::namespace;
use testkit::metrics::Samples;

use super::{FOLLOW_UP_DELAY, HEARTBEAT_INTERVAL, WATCHERS};
use crate::definitions::pod::restarts;
use crate::definitions::{check, eventually};
use crate::gateway::{Certificates, HOST};
use crate::install::{apply, printed};
use crate::rollout::{Workload, count, kill};
use clusters::cluster::Cluster;
use clusters::evidence::Evidence;
use testkit::client::{Answer, Client, Write};

pub(crate) struct WatchedRuntime {
    pub(crate) cluster: Cluster,
    pub(crate) watcher: Workload,
}

impl WatchedRuntime {
    pub(super) async fn of(cluster: Cluster) -> Result<Self> {
        let client = Client::with(&cluster.kubeconfig).await?;
        let watcher = Workload::new(client, NAMESPACE, NAME);
        Ok(Self { cluster, watcher })
    }

    /// Installs the watcher and the kind Kyma.
    pub(super) async fn install(&self, image: &str, certificates: &Certificates) -> Result<()> {
        let (cluster, watcher) = (&self.cluster, &self.watcher);
        cluster.apply(&namespace(NAMESPACE).to_string()).await?;
        cluster.apply(include_str!("kyma.yaml")).await?;
        apply(cluster, &manifests(image, certificates).await?).await?;
        watcher.is_rolled_out().await?;
        // A kept watcher has the certificates of another run.
        watcher.update_mounts().await
    }

    /// Replaces the certificates of the watcher and the `caBundle`, and waits until each replica has loaded them.
    pub(super) async fn renew(&self, certificates: &Certificates) -> Result<()> {
        let before = self.certificate_reloads().await?;
        let secret = certificates.secret(NAMESPACE, SECRET);
        self.cluster.apply(&secret.to_string()).await?;
        self.trust(&certificates.trusted).await?;
        self.watcher.update_mounts().await?;
        eventually("the watcher has loaded the certificates", async || {
            let now = self.certificate_reloads().await?;
            for (pod, reloads) in &before {
                let is_newer = now.get(pod) > Some(reloads);
                ensure!(is_newer, "{pod}: {now:?} after {before:?}");
            }
            Ok(())
        })
        .await
    }

    /// Writes the `caBundle` of each entry of the webhook configuration.
    pub(crate) async fn trust(&self, authorities: &str) -> Result<()> {
        let mut live = self.webhook_configuration().await?;
        let bundle = BASE64.encode(authorities);
        for entry in live["webhooks"].as_array_mut().context("no webhooks")? {
            entry["clientConfig"]["caBundle"] = json!(bundle);
        }
        let path = configuration_path();
        let put = self
            .watcher
            .client
            .ask(Method::PUT, &path, Some(&live))
            .await?;
        put.good_for(path).map(drop)
    }

    /// Waits until the API server calls the watcher, or no longer calls it if the webhook configuration does not exist. The
    /// dry runs are reviewed for a manager that expects no review.
    pub(super) async fn uses_configuration(&self) -> Result<()> {
        let client = &self.watcher.client;
        let exists = !client.find(&configuration_path()).await?.is_null();
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": "probe", "namespace": NAMESPACE,
                "labels": { "operator.kyma-project.io/watched-by": "example" },
            },
        });
        eventually(
            "the API server uses the webhook configuration",
            async || {
                let before = self.reviews().await?;
                client.write(Write::DryRun, &probe).await?.good()?;
                let reviews = self.reviews().await?.checked_sub(before);
                let reviews = reviews.context("a replica was restarted")?;
                check(
                    (reviews > 0) == exists,
                    format!("{reviews} reviews of a dry run"),
                )
            },
        )
        .await
    }

    async fn reviews(&self) -> Result<u64> {
        count(
            &self.metrics().await?,
            "watcher_admission_duration_seconds_count",
        )
    }

    pub(crate) async fn webhook_configuration(&self) -> Result<Value> {
        Ok(self.watcher.client.get(&configuration_path()).await?.object)
    }

    async fn certificate_reloads(&self) -> Result<BTreeMap<String, u64>> {
        let series = "watcher_certificate_reloads_total{result=\"success\"}";
        let metrics = self.metrics().await?;
        let metrics = metrics.into_iter();
        let reloads = metrics.map(|(pod, it)| Ok((pod, it.count_of_known(series)?)));
        reloads.collect()
    }

    /// Returns the metrics of each replica, by Pod.
    pub(crate) async fn metrics(&self) -> Result<BTreeMap<String, Samples>> {
        self.watcher.metrics(METRICS_PORT).await
    }

    /// Waits until no Namespace is being deleted, and all events are delivered.
    pub(crate) async fn is_idle(&self) -> Result<()> {
        eventually("no Namespace is being deleted", async || {
            let list = self.watcher.client.get("/api/v1/namespaces").await?;
            let items = list.at("/items").as_array().into_iter().flatten();
            let deleted = items.filter(|it| !it["metadata"]["deletionTimestamp"].is_null());
            let names: Vec<_> = deleted.map(|it| &it["metadata"]["name"]).collect();
            ensure!(names.is_empty(), "{names:?}");
            Ok(())
        })
        .await?;
        self.has_delivered().await
    }

    /// Waits until no replica has an undelivered event, including follow-up events.
    pub(crate) async fn has_delivered(&self) -> Result<()> {
        eventually("the queues of the watcher are empty", async || {
            for (pod, samples) in self.metrics().await? {
                let left = samples.value("watcher_outbox_events");
                let left = left.with_context(|| format!("{pod} has no watcher_outbox_events"))?;
                ensure!(left < 0.5, "{pod}: {left} events");
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn review(&self, manager: &str, review: &Value) -> Result<Answer> {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/services/https:{NAME}:443/proxy/validate/{manager}"
        );
        let answer = self
            .watcher
            .client
            .ask(Method::POST, &path, Some(review))
            .await?;
        answer.good_for(path)
    }

    /// Kills every process of the watcher with SIGKILL, and waits until all containers are started again.
    pub(crate) async fn kill(&self) -> Result<()> {
        let before = self.restarts().await?;
        let killed = kill(&self.cluster, "cmdline", "^/runtime-bootstrapper watcher").await?;
        ensure!(killed == REPLICAS, "{killed} processes");
        eventually("all containers are started again", async || {
            let now = self.restarts().await?;
            for (pod, count) in &before {
                ensure!(now.get(pod) > Some(count), "{pod}: {now:?}");
            }
            Ok(())
        })
        .await?;
        self.watcher.is_rolled_out().await
    }

    pub(crate) async fn restarts(&self) -> Result<BTreeMap<String, u64>> {
        Ok(restarts(&self.watcher.pods().await?))
    }

    /// Returns the certificate that the watcher presents to KCP, in PEM.
    pub(super) async fn certificate(&self) -> Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        let secret = self.watcher.client.get(&path).await?;
        let text = secret.at("/data/tls.crt").as_str().context("no tls.crt")?;
        Ok(String::from_utf8(BASE64.decode(text)?)?)
    }

    /// Writes metrics of each replica to the evidence.
    pub(super) async fn keep(&self, evidence: &Evidence) {
        let kept = self.watcher.keep_metrics(METRICS_PORT, evidence, "watcher");
        kept.await;
    }
}

/// Returns the objects that `manifests watcher` prints.
async fn manifests(image: &str, certificates: &Certificates) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    for (name, text) in certificates.files().as_object().into_iter().flatten() {
        std::fs::write(folder.path().join(name), text.as_str().unwrap_or_default())?;
    }
    let list = folder.path().join("watchers.yaml");
    std::fs::write(&list, WATCHERS)?;
    let [list, folder] = [&list, folder.path()].map(|it| it.to_str().unwrap_or_default());
    let heartbeat = format!("--heartbeat-interval={}s", HEARTBEAT_INTERVAL.as_secs());
    let follow_up = format!("--follow-up-delay={}s", FOLLOW_UP_DELAY.as_secs());
    let command = format!(
        "manifests watcher --kcp-addr {HOST} --image {image} --watchers-file {list} --cert-dir {folder} \
         -- {heartbeat} {follow_up}"
    );
    printed(&command.split(' ').collect::<Vec<_>>()).await
}

fn configuration_path() -> String {
    format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}")
}

const NAMESPACE: &str = "kyma-system";
/// Name of the Deployment, the Service and the webhook configuration, and value of the label `app`.
const NAME: &str = "skr-webhook";
const SECRET: &str = "skr-webhook-tls";
const METRICS_PORT: u16 = 2112;
/// Number of replicas in the manifests.
pub(crate) const REPLICAS: usize = 2;
