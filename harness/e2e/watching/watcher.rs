//! A runtime and the watcher on it, installed as a user would: what `manifests watcher` prints is applied.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::process::Command;

use super::objects::{kyma_type, watchers};
use super::subject::Subject;
use super::{HEARTBEAT, PATIENCE};
use crate::gateway::{HOST, Pair, hasten, pods};
use crate::rollout::replicas_at;
use crate::world::Dialogue;
use clusters::cluster::Cluster;
use clusters::evidence::Evidence;
use clusters::images::Image;
use testkit::until::until;

/// See the module.
pub(super) struct Skr {
    pub(super) cluster: Cluster,
    pub(super) dialogue: Dialogue,
}

impl Skr {
    pub(super) async fn of(cluster: Cluster) -> anyhow::Result<Self> {
        Ok(Self {
            dialogue: Dialogue::with(cluster.kubeconfig()).await?,
            cluster,
        })
    }

    /// Installs it with everything that a runtime needs.
    pub(super) async fn install(
        &self,
        binary: &Path,
        image: &Image,
        certificates: &Pair,
    ) -> anyhow::Result<()> {
        self.make_namespace(NAMESPACE).await?;
        self.apply(&kyma_type()).await?;
        for object in printed(binary, &image.reference, certificates).await? {
            self.apply(&object).await?;
        }
        self.is_up().await?;
        // One that was kept has the certificates of another run.
        hasten(&self.dialogue, NAMESPACE, NAME).await
    }

    /// How many changes went on without the watcher's answer.
    pub(super) async fn unanswered(&self) -> anyhow::Result<u64> {
        let metrics = self.dialogue.get("/metrics").await?.object;
        let lines = metrics.as_str().unwrap_or_default().lines();
        let counts = lines.filter(|line| line.starts_with(FAIL_OPEN));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        Ok(counts.sum())
    }

    /// Gives it other certificates: the Secret, and whom the API server believes. Waits until each replica has taken
    /// them into force.
    pub(super) async fn renew(&self, certificates: &Pair) -> anyhow::Result<()> {
        let before = self.certificate_sets().await?;
        // Both are trusted while either may still be served.
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": SECRET, "namespace": NAMESPACE },
            "stringData": certificates.files(),
        }))
        .await?;
        self.trust(&certificates.trusted).await?;
        hasten(&self.dialogue, NAMESPACE, NAME).await?;
        until("the watcher has the new certificates", PATIENCE, || async {
            let now = self.certificate_sets().await?;
            for (pod, sets) in &before {
                ensure!(now.get(pod) > Some(sets), "{pod}: {now:?} after {before:?}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Has the API server believe watchers of these authorities.
    async fn trust(&self, authorities: &str) -> anyhow::Result<()> {
        use base64::Engine as _;
        let path = configuration_path();
        let mut live = self.dialogue.get(&path).await?.object;
        let bundle = base64::engine::general_purpose::STANDARD.encode(authorities);
        for entry in live["webhooks"].as_array_mut().context("no webhooks")? {
            entry["clientConfig"]["caBundle"] = json!(bundle);
        }
        let put = self.dialogue.ask(Method::PUT, &path, Some(&live)).await?;
        put.good().map(drop)
    }

    /// How many sets of certificates each replica has put into force.
    async fn certificate_sets(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        self.each(r#"watcher_certificate_reloads_total{result="success"}"#)
            .await
    }

    /// Waits until no replica has anything left to tell, confirming events included.
    pub(super) async fn is_calm(&self) -> anyhow::Result<()> {
        until("the watcher has told everything", PATIENCE, || async {
            let left = self.each("watcher_outbox_events").await?;
            ensure!(left.values().all(|&left| left == 0), "{left:?}");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// A figure of every replica, by its name.
    async fn each(&self, figure: &str) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut figures = BTreeMap::new();
        for pod in pods(&self.dialogue, NAMESPACE, NAME).await? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let value = metric(&self.metrics(name).await?, figure);
            figures.insert(name.to_owned(), value.with_context(|| figure.to_owned())?);
        }
        Ok(figures)
    }

    async fn metrics(&self, pod: &str) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:2112/proxy/metrics");
        let answer = self.dialogue.get(&path).await?;
        Ok(answer.object.as_str().unwrap_or_default().to_owned())
    }

    /// Asks the watcher as the API server does.
    pub(super) async fn review(&self, manager: &str, review: &Value) -> anyhow::Result<Value> {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/services/https:{NAME}:443/proxy/validate/{manager}"
        );
        let asked = self.dialogue.ask(Method::POST, &path, Some(review));
        Ok(asked.await?.good()?.object)
    }

    /// Kills every process of it, at once, and waits until their successors are up.
    pub(super) async fn kill(&self) -> anyhow::Result<()> {
        let before = self.starts().await?;
        let killed = self.cluster.exec_on_node(&["sh", "-c", KILL]).await?;
        let count = killed.stdout.lines().count();
        ensure!(killed.code == 0 && count == REPLICAS, "killed: {killed:?}");
        until("all are started again", PATIENCE, || async {
            let now = self.starts().await?;
            for (pod, count) in before.as_object().into_iter().flatten() {
                ensure!(now[pod].as_u64() > count.as_u64(), "{pod}: {now}");
            }
            anyhow::Ok(())
        })
        .await?;
        self.is_up().await
    }

    /// Puts other Pods in the place of all, as an upgrade does, and waits until no process of the old ones is left.
    pub(super) async fn roll_out(&self) -> anyhow::Result<()> {
        let before = self.starts().await?;
        let when = format!("{:?}", std::time::SystemTime::now());
        let annotations = json!({ "harness/rolled-out": when });
        let template = json!({ "metadata": { "annotations": annotations } });
        let change = json!({ "spec": { "template": template } });
        self.dialogue.patch(&deployment(), &change).await?;
        self.is_up().await?;
        until("the old replicas are gone", PATIENCE, || async {
            let now = self.starts().await?;
            for (pod, _) in before.as_object().into_iter().flatten() {
                ensure!(now[pod].is_null(), "{pod}: {now}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// How often each replica was started.
    pub(super) async fn starts(&self) -> anyhow::Result<Value> {
        let pods = pods(&self.dialogue, NAMESPACE, NAME).await?;
        let starts = pods.iter().map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let count = &pod["status"]["containerStatuses"][0]["restartCount"];
            (name.to_owned(), count.clone())
        });
        Ok(Value::Object(starts.collect()))
    }

    /// What it shows to KCP: the certificate, PEM.
    pub(super) async fn certificate(&self) -> anyhow::Result<String> {
        use base64::Engine as _;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        let secret = self.dialogue.get(&path).await?;
        let text = secret.at("/data/tls.crt").as_str().context("tls.crt")?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
        Ok(String::from_utf8(bytes)?)
    }

    /// Takes all replicas away.
    pub(super) async fn stop(&self) -> anyhow::Result<()> {
        self.scale(0).await?;
        until("the watcher is down", PATIENCE, || async {
            let left = pods(&self.dialogue, NAMESPACE, NAME).await?.len();
            ensure!(left == 0, "{left} Pods");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Brings them back.
    pub(super) async fn resume(&self) -> anyhow::Result<()> {
        self.scale(REPLICAS).await?;
        self.is_up().await
    }

    async fn scale(&self, replicas: usize) -> anyhow::Result<()> {
        let change = json!({ "spec": { "replicas": replicas } });
        self.dialogue.patch(&deployment(), &change).await.map(drop)
    }

    async fn is_up(&self) -> anyhow::Result<()> {
        let path = deployment();
        let up = || replicas_at(&self.dialogue, &path);
        until("the watcher is up", PATIENCE, up).await?;
        Ok(())
    }

    /// Makes a namespace.
    pub(super) async fn make_namespace(&self, name: &str) -> anyhow::Result<()> {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        }))
        .await
    }

    /// Has a namespace removed, whenever that may be done.
    pub(super) async fn drop_namespace(&self, name: &str) -> anyhow::Result<()> {
        self.remove(&format!("/api/v1/namespaces/{name}")).await
    }

    /// Removes what no namespace takes along.
    pub(super) async fn forget(&self, subject: &Subject) -> anyhow::Result<()> {
        self.remove(&subject.path()).await
    }

    async fn remove(&self, path: &str) -> anyhow::Result<()> {
        let answer = self.dialogue.ask(Method::DELETE, path, None).await?;
        if answer.status != StatusCode::NOT_FOUND {
            answer.good()?;
        }
        Ok(())
    }

    async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.cluster.apply(&object.to_string()).await?;
        Ok(())
    }

    /// Keeps what each replica says.
    pub(super) async fn keep(&self, evidence: &Evidence) {
        for pod in pods(&self.dialogue, NAMESPACE, NAME)
            .await
            .unwrap_or_default()
        {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            evidence.keep(&format!("watcher/{name}.json"), format!("{pod:#}"));
            evidence.keep_result(&format!("watcher/{name}.txt"), self.metrics(name).await);
            for previous in ["false", "true"] {
                let path =
                    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/log?previous={previous}");
                let log = self.dialogue.get(&path).await;
                let log = log.map(|it| it.object.as_str().unwrap_or_default().to_owned());
                evidence.keep_result(&format!("watcher/{name}-{previous}.log"), log);
            }
        }
    }
}

/// What `manifests watcher` prints.
async fn printed(binary: &Path, image: &str, certificates: &Pair) -> anyhow::Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let files = certificates.files();
    for (name, text) in files.as_object().into_iter().flatten() {
        std::fs::write(folder.path().join(name), text.as_str().unwrap_or_default())?;
    }
    let list = folder.path().join("watchers.yaml");
    std::fs::write(&list, watchers().to_string())?;
    let heartbeat = format!("--heartbeat-interval={}s", HEARTBEAT.as_secs());
    let printed = Command::new(binary)
        .args(["manifests", "watcher", "--kcp-addr", HOST])
        .args(["--image", image, "--watchers-file"])
        .arg(&list)
        .arg("--cert-dir")
        .arg(folder.path())
        .args(["--", &heartbeat, CONFIRM_AFTER])
        .output()
        .await
        .with_context(|| format!("{} cannot be run", binary.display()))?;
    let said = String::from_utf8_lossy(&printed.stderr);
    ensure!(printed.status.success(), "manifests watcher: {said}");
    let text = String::from_utf8(printed.stdout)?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

fn metric(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    // Gauges are written as fractions.
    let value = lines.find(|(known, _)| *known == name)?.1;
    value.trim_end_matches(".0").parse().ok()
}

fn deployment() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
}

fn configuration_path() -> String {
    format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}")
}

/// The API server's own counter of answers that did not come.
const FAIL_OPEN: &str = "apiserver_admission_webhook_fail_open_count{";
const NAMESPACE: &str = "kyma-system";
/// Of Deployment, Service, webhook configuration and Pods' label.
const NAME: &str = "skr-webhook";
const SECRET: &str = "skr-webhook-tls";
/// As many as the manifests have.
pub(super) const REPLICAS: usize = 2;
/// Shorter than the default, so that scenarios can wait for it.
const CONFIRM_AFTER: &str = "--follow-up-delay=2s";
/// By the command line, which Pods cannot hide from their node.
const KILL: &str = "for file in /proc/[0-9]*/cmdline; do \
     if tr '\\0' ' ' <$file 2>/dev/null | grep -q '^/runtime-bootstrapper watcher'; then \
     pid=${file#/proc/}; pid=${pid%/cmdline}; kill -9 $pid && echo $pid; fi; done";
