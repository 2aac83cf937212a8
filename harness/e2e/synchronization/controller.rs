//! The controller, installed as a user does: the output of `manifests controller --direct` and `crds` is applied.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use api::runtimes::KCP_NAMESPACE;
use serde_json::Value;
use tokio::sync::Mutex;

use super::DEADLINE;
use super::control_plane::ControlPlane;
use crate::admission::cluster::TRUST_BUNDLE;
use crate::install;
use crate::rollout::Workload;
use clusters::evidence::Evidence;
use testkit::metrics::Samples;
use testkit::until::until;

/// The binary that prints the manifests, the images, and what is installed.
pub(crate) struct Controller {
    binary: std::path::PathBuf,
    image: String,
    webhook_image: String,
    installed: Mutex<Option<Installation>>,
}

/// How the controller is installed: by default with both modes and no flags of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Installation {
    flags: Vec<String>,
    without_direct: bool,
}

impl Installation {
    /// The installation that a step describes, if it describes one.
    pub(crate) fn of_step(text: &str) -> Option<Self> {
        let how = text.strip_prefix("the controller runs with")?;
        if how == "out mode direct" {
            return Some(Self {
                without_direct: true,
                ..Self::default()
            });
        }
        let flags = how.strip_prefix(" flags \"")?.strip_suffix('"')?;
        Some(Self {
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            without_direct: false,
        })
    }
}

impl Controller {
    pub(crate) fn new(binary: &Path, image: &str, webhook_image: &str) -> Self {
        Self {
            binary: binary.to_owned(),
            image: image.to_owned(),
            webhook_image: webhook_image.to_owned(),
            installed: Mutex::new(None),
        }
    }

    /// The objects that the binary prints.
    pub(crate) async fn printed(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        install::printed(&self.binary, arguments).await
    }

    /// The manifests of the webhook, as KIM installs them.
    pub(crate) async fn webhook(&self) -> anyhow::Result<Vec<Value>> {
        self.printed(&["manifests", "webhook", "--image", &self.webhook_image])
            .await
    }

    /// Installs the controller like this, and waits until a replica leads. It does nothing where it runs like this.
    pub(crate) async fn install(
        &self,
        kcp: &ControlPlane,
        installation: &Installation,
    ) -> anyhow::Result<()> {
        let mut installed = self.installed.lock().await;
        if installed.as_ref() == Some(installation) && is_up(kcp).await.is_ok() {
            return Ok(());
        }
        *installed = None;
        let mut objects = self.printed(&["crds"]).await?;
        objects.extend(self.manifests(installation).await?);
        for object in &objects {
            kcp.cluster.apply(&object.to_string()).await?;
        }
        if installation.without_direct {
            for kind in ["rolebindings", "roles"] {
                let path = format!(
                    "/apis/rbac.authorization.k8s.io/v1/namespaces/{KCP_NAMESPACE}/{kind}/{NAME}-direct"
                );
                kcp.api.delete(&path).await?;
            }
        }
        until("the controller is running", DEADLINE, || is_up(kcp)).await?;
        *installed = Some(installation.clone());
        Ok(())
    }

    async fn manifests(&self, installation: &Installation) -> anyhow::Result<Vec<Value>> {
        let bundle = format!("--kcp-cluster-trust-bundle={TRUST_BUNDLE}");
        let webhook = format!("--webhook-image={}", self.webhook_image);
        let mut arguments = vec!["manifests", "controller"];
        if !installation.without_direct {
            arguments.push("--direct");
        }
        arguments.extend(["--image", &self.image, "--", &bundle]);
        let flags = installation.flags.iter().map(String::as_str);
        let names_webhook = flags.clone().any(|it| it.starts_with("--webhook-image="));
        if !installation.without_direct && !names_webhook {
            arguments.push(&webhook);
        }
        arguments.extend(flags);
        self.printed(&arguments).await
    }

    /// Stops all replicas and waits until their Pods are deleted.
    pub(crate) async fn stop(kcp: &ControlPlane) -> anyhow::Result<()> {
        workload(kcp).stop().await
    }

    /// Starts all replicas and waits until one leads.
    pub(crate) async fn start(kcp: &ControlPlane) -> anyhow::Result<()> {
        workload(kcp).start(REPLICAS).await?;
        until("the controller is running", DEADLINE, || is_up(kcp)).await?;
        Ok(())
    }

    /// Name of the Pod that holds the Lease.
    pub(crate) async fn leader(kcp: &ControlPlane) -> anyhow::Result<String> {
        let lease = kcp.api.find(&lease()).await?.context("no Lease")?;
        let holder = lease["spec"]["holderIdentity"].as_str();
        Ok(holder.context("the Lease has no holder")?.to_owned())
    }

    /// Kills the process of a Pod and deletes the Pod, as when its node fails: another process must take the Lease.
    pub(crate) async fn kill(kcp: &ControlPlane, pod: &str) -> anyhow::Result<()> {
        let script = KILL.replace("{pod}", pod);
        let killed = kcp.cluster.exec_on_node(&["sh", "-c", &script]).await?;
        ensure!(
            killed.code == 0 && killed.stdout.lines().count() == 1,
            "kill {pod}: {killed:?}"
        );
        let path = format!("{}?gracePeriodSeconds=0", workload(kcp).pod_path(pod));
        kcp.api.delete(&path).await
    }

    /// Sum of a metric over its labels, for each replica.
    pub(crate) async fn metric(
        kcp: &ControlPlane,
        name: &str,
    ) -> anyhow::Result<BTreeMap<String, f64>> {
        let workload = workload(kcp);
        let mut sums = BTreeMap::new();
        for pod in workload.pods().await? {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                let pod = pod["metadata"]["name"].as_str().context("a name")?;
                let samples = Samples::parse(&workload.page(pod, 8080, "metrics").await?);
                sums.insert(pod.to_owned(), samples.sum(name));
            }
        }
        Ok(sums)
    }

    /// Keeps the logs of all replicas.
    pub(crate) async fn collect(kcp: &ControlPlane, evidence: &Evidence) {
        let workload = workload(kcp);
        for pod in workload.pod_names().await.unwrap_or_default() {
            let path = format!("{}/log", workload.pod_path(&pod));
            let text = kcp.api.get(&path).await.map(|log| match log.object {
                Value::String(text) => text,
                other => other.to_string(),
            });
            evidence.keep_result(&format!("controller/{pod}.log"), text);
        }
    }
}

/// All replicas are available, and one of them holds the Lease.
async fn is_up(kcp: &ControlPlane) -> anyhow::Result<()> {
    let workload = workload(kcp);
    workload.replicas().await?;
    let names = workload.pod_names().await?;
    let lease = kcp.api.find(&lease()).await?.unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    ensure!(
        names.iter().any(|name| name == holder),
        "the Lease is held by `{holder}`, not by one of {names:?}"
    );
    Ok(())
}

fn workload(kcp: &ControlPlane) -> Workload {
    Workload {
        client: kcp.api.clone(),
        namespace: KCP_NAMESPACE,
        name: NAME,
    }
}

fn lease() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{KCP_NAMESPACE}/leases/{NAME}")
}

/// Its ServiceAccount.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:kcp-system:rt-bootstrapper-controller";
/// ConfigMap with the state of the controller `signal`.
pub(crate) const SIGNAL_STATE: &str = "rt-bootstrapper-signal-state";
/// ConfigMap with the state of the controller `direct`.
pub(crate) const DIRECT_STATE: &str = "rt-bootstrapper-direct-state";
const NAME: &str = "rt-bootstrapper-controller";
const REPLICAS: usize = 2;
/// Kills the process whose environment names the Pod; processes of Pods are visible on the node.
const KILL: &str = "for file in /proc/[0-9]*/environ; do \
     if tr '\\0' '\\n' <$file 2>/dev/null | grep -qx 'POD_NAME={pod}'; then \
     pid=${file#/proc/}; pid=${pid%/environ}; kill -9 $pid && echo $pid; fi; done";
