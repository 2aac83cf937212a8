//! The controller, installed as a user does: from the output of `manifests controller --direct` and `crds`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use api::kcp::KCP_NAMESPACE;
use serde_json::Value;
use tokio::sync::Mutex;

use super::control_plane::ControlPlane;
use crate::admission::webhook::TRUST_BUNDLE;
use crate::definitions::{check, eventually};
use crate::install::{self, apply, printed};
use crate::rollout::{Workload, kill};

/// The images, and the current installation.
pub(crate) struct Controller {
    image: String,
    webhook_image: String,
    /// Flags that name the sources, and others of every installation.
    pub(crate) flags: Vec<String>,
    /// The watcher that the controller installs, if any.
    pub(crate) watcher: Option<WatcherImage>,
    /// Whether the controller runs with default flags, instead of those that shorten scenarios.
    pub(crate) has_defaults: bool,
    installed: Mutex<Option<Installation>>,
}

/// The image of a watcher, and the host of the gateway to which it sends.
pub(crate) struct WatcherImage {
    pub(crate) image: String,
    pub(crate) gateway: &'static str,
}

/// Options of an installation of the controller. The default is both modes without additional flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Installation {
    flags: Vec<String>,
    without_direct: bool,
}

impl Installation {
    /// Returns the installation that a step describes, if any.
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
    /// Returns a controller with the sources of the suites, and without the controller of Watchers.
    pub(crate) fn new(image: &str, webhook_image: &str) -> Self {
        Self {
            image: image.to_owned(),
            webhook_image: webhook_image.to_owned(),
            flags: vec![format!("--kcp-cluster-trust-bundle={TRUST_BUNDLE}")],
            watcher: None,
            has_defaults: false,
            installed: Mutex::new(None),
        }
    }

    /// Returns the image of the webhook, unless a flag names another one.
    pub(crate) fn webhook_image(&self) -> &str {
        &self.webhook_image
    }

    /// Returns the manifests of the webhook, as KIM installs them.
    pub(crate) async fn webhook(&self) -> Result<Vec<Value>> {
        install::webhook(&self.webhook_image, &[]).await
    }

    /// Installs the controller with these options, and waits until a replica leads. It does nothing if the controller already
    /// runs with them.
    pub(crate) async fn install(
        &self,
        kcp: &ControlPlane,
        installation: &Installation,
    ) -> Result<()> {
        let mut installed = self.installed.lock().await;
        if installed.as_ref() == Some(installation) && is_up(kcp).await.is_ok() {
            return Ok(());
        }
        *installed = None;
        let mut objects = printed(&["crds"]).await?;
        objects.extend(self.manifests(installation).await?);
        apply(&kcp.cluster, &objects).await?;
        if installation.without_direct {
            for kind in ["rolebindings", "roles"] {
                let path = format!(
                    "/apis/rbac.authorization.k8s.io/v1/namespaces/{KCP_NAMESPACE}/{kind}/{NAME}-direct"
                );
                kcp.api.delete(&path).await?;
            }
        }
        runs(kcp).await?;
        *installed = Some(installation.clone());
        Ok(())
    }

    async fn manifests(&self, installation: &Installation) -> Result<Vec<Value>> {
        let mut arguments = vec!["manifests".to_owned(), "controller".to_owned()];
        let mut flags = self.flags.clone();
        if !installation.without_direct {
            arguments.push("--direct".to_owned());
            let of_webhook = "--webhook-image=";
            if !installation
                .flags
                .iter()
                .any(|it| it.starts_with(of_webhook))
            {
                flags.push(format!("{of_webhook}{}", self.webhook_image));
            }
        }
        if let Some(WatcherImage { image, gateway }) = &self.watcher {
            arguments.push("--watchers".to_owned());
            arguments.push(format!("--watcher-gateway-host={gateway}"));
            flags.push(format!("--watcher-image={image}"));
        }
        if !self.has_defaults {
            // Scenarios with several runtimes wait for each step, and for three missing heartbeats.
            flags.push("--rollout-soak-duration=1s".to_owned());
            if self.watcher.is_some() {
                flags.push("--watcher-heartbeat-interval=2s".to_owned());
            }
        }
        arguments.extend(["--image".to_owned(), self.image.clone(), "--".to_owned()]);
        let all = arguments.iter().chain(&flags).chain(&installation.flags);
        printed(&all.map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Stops all replicas and waits until their Pods are deleted.
    pub(crate) async fn stop(kcp: &ControlPlane) -> Result<()> {
        workload(kcp).stop().await
    }

    /// Starts all replicas and waits until one leads.
    pub(crate) async fn start(kcp: &ControlPlane) -> Result<()> {
        workload(kcp).start(REPLICAS).await?;
        runs(kcp).await
    }

    /// Returns the name of the Pod that holds the Lease.
    pub(crate) async fn leader(kcp: &ControlPlane) -> Result<String> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{KCP_NAMESPACE}/leases/{NAME}");
        let lease = kcp.api.find(&path).await?;
        let holder = lease["spec"]["holderIdentity"].as_str();
        Ok(holder.context("the Lease has no holder")?.to_owned())
    }

    /// Kills the process of a Pod and deletes the Pod, as when its node fails. Another process must acquire the Lease.
    pub(crate) async fn kill(kcp: &ControlPlane, pod: &str) -> Result<()> {
        let killed = kill(&kcp.cluster, "environ", &format!("(^| )POD_NAME={pod} ")).await?;
        ensure!(killed == 1, "{killed} processes of {pod}");
        let path = format!("{}?gracePeriodSeconds=0", workload(kcp).pod_path(pod));
        kcp.api.delete(&path).await
    }

    /// Returns the sum of a metric over its labels, for each replica.
    pub(crate) async fn metric(kcp: &ControlPlane, name: &str) -> Result<BTreeMap<String, f64>> {
        let metrics = workload(kcp).metrics(METRICS_PORT).await?.into_iter();
        let sums = metrics.map(|(pod, it)| Ok((pod, it.sum_of_known(name)?)));
        sums.collect()
    }
}

async fn runs(kcp: &ControlPlane) -> Result<()> {
    eventually("the controller is running", async || is_up(kcp).await).await
}

/// Waits until all replicas are available, and one of them holds the Lease.
async fn is_up(kcp: &ControlPlane) -> Result<()> {
    let workload = workload(kcp);
    workload.replicas().await?;
    let names = workload.pod_names().await?;
    let holder = Controller::leader(kcp).await?;
    let seen = format!("the Lease is held by {holder}, not by one of {names:?}");
    check(names.contains(&holder), seen)
}

pub(super) fn workload(kcp: &ControlPlane) -> Workload {
    Workload::new(kcp.api.clone(), KCP_NAMESPACE, NAME)
}

/// User name of the controller's ServiceAccount.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:kcp-system:rt-bootstrapper-controller";
/// ConfigMap with the state of the controller `signal`.
pub(crate) const SIGNAL_STATE: &str = "rt-bootstrapper-signal-state";
/// ConfigMap with the state of the controller `direct`.
pub(crate) const DIRECT_STATE: &str = "rt-bootstrapper-direct-state";
const NAME: &str = "rt-bootstrapper-controller";
const REPLICAS: usize = 2;
/// Metrics port of controller and webhook.
pub(super) const METRICS_PORT: u16 = 8080;
