//! The clusters of a scenario: KCP with two replicas of the controller, and two runtime clusters.
//!
//! The installation ends when a controller leads and the sources exist. The first runtime cluster stays in mode direct after
//! its first use; the second one is empty at the start of each scenario.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use api::kcp::{CONTENT_HASH, KCP_NAMESPACE, MODE_DIRECT, WEBHOOK_DEPLOYMENT};
use api::names::SKR_NAMESPACE;
use serde_json::Value;

use super::control_plane::{ControlPlane, Runtime, named_config_map};
use super::controller::{self, Controller, Installation, METRICS_PORT, SIGNAL_STATE};
use super::runtime_cluster::RuntimeCluster;
use super::source::Source;
use crate::definitions::eventually;
use crate::install::Fixtures;
use crate::rollout::Workload;
use clusters::cluster::ClusterOptions;
use clusters::control_plane;
use clusters::evidence::Evidence;
use clusters::images::Image;
use clusters::progress;
use testkit::client::Client;

/// The webhook's image with the tag of another version, for an upgrade in which every replica becomes a new Pod.
const UPGRADED_WEBHOOK: &str = "localhost/webhook:upgraded";

/// KCP with the controller, and two runtime clusters.
pub struct Clusters {
    fixtures: Arc<Fixtures>,
    pub(crate) kcp: ControlPlane,
    pub(crate) runtimes: [RuntimeCluster; 2],
    pub(crate) controller: Controller,
    /// Image that replaces that of the public webhook.
    public: String,
}

impl Clusters {
    /// Starts clusters whose names have a suffix.
    pub(crate) async fn with(
        fixtures: Arc<Fixtures>,
        [image, public]: [&Image; 2],
        suffix: &str,
    ) -> Result<Self> {
        let start = |name| {
            let options = ClusterOptions::new(&format!("{name}-{suffix}"));
            Box::pin(fixtures.cluster(options))
        };
        let clusters = async { tokio::try_join!(start("kcp"), start("skr-one"), start("skr-two")) };
        let (kcp, one, two) = progress::show("start three clusters", clusters).await?;
        kcp.load_image(image).await?;
        let upgraded = fixtures.webhook.tagged(UPGRADED_WEBHOOK).await?;
        for runtime in [&one, &two] {
            runtime.load_image(public).await?;
            runtime.load_image(&upgraded).await?;
        }
        let webhook = &fixtures.webhook.reference;
        let clusters = Self {
            controller: Controller::new(&image.reference, webhook),
            kcp: ControlPlane {
                api: Client::with(&kcp.kubeconfig).await?,
                cluster: kcp,
            },
            runtimes: [
                RuntimeCluster::of(one).await?,
                RuntimeCluster::of(two).await?,
            ],
            public: public.reference.clone(),
            fixtures,
        };
        let install = Box::pin(clusters.install());
        let installed = progress::show("install the controller", install).await;
        if installed.is_err() {
            let evidence = Evidence::of("synchronization", "installation")?;
            clusters.collect(&evidence).await;
        }
        installed.map(|()| clusters)
    }

    async fn install(&self) -> Result<()> {
        control_plane::ControlPlane::prepare(self.kcp.cluster.client()).await?;
        for source in Source::ALL {
            self.kcp.renew(source).await?;
        }
        let default = Installation::default();
        self.controller.install(&self.kcp, &default).await
    }

    /// Stops all clusters that are not kept.
    pub async fn stop(self) -> Result<()> {
        let [one, two] = self.runtimes;
        for cluster in [self.kcp.cluster, one.cluster, two.cluster] {
            cluster.stop().await?;
        }
        self.fixtures.release().await
    }

    pub(crate) fn cluster_of(&self, runtime: &Runtime) -> Result<&RuntimeCluster> {
        let number = runtime.cluster;
        let number = number.with_context(|| format!("Runtime {} has no cluster", runtime.name))?;
        Ok(&self.runtimes[number])
    }

    /// Returns the permanent Runtime of a cluster in mode direct, after it is synchronized.
    pub(crate) async fn direct(&self, number: usize, wave: Option<u32>) -> Result<Runtime> {
        let runtime = Runtime::permanent(number);
        self.put_direct(&runtime, wave).await?;
        self.is_synchronized(&runtime).await?;
        Ok(runtime)
    }

    /// Writes a Runtime in mode direct and its kubeconfig.
    pub(crate) async fn put_direct(&self, runtime: &Runtime, wave: Option<u32>) -> Result<()> {
        let mode = Some(MODE_DIRECT);
        self.kcp.put_runtime(runtime, mode, wave).await?;
        let kubeconfig = self.cluster_of(runtime)?.kubeconfig.to_string();
        self.kcp.put_kubeconfig(runtime, &kubeconfig).await
    }

    /// Waits until a runtime in mode direct is Ready and has all sources.
    pub(crate) async fn is_synchronized(&self, runtime: &Runtime) -> Result<()> {
        let cluster = self.cluster_of(runtime)?;
        self.kcp.is_ready(runtime).await?;
        self.has_sources(cluster).await?;
        cluster.is_registered().await?;
        self.kcp.is_ready(runtime).await
    }

    /// Waits until a cluster has the three sources, of one revision.
    pub(crate) async fn has_sources(&self, cluster: &RuntimeCluster) -> Result<()> {
        for source in Source::ALL {
            cluster.has(source, &self.kcp.source(source).await?).await?;
        }
        cluster.has_one_revision().await
    }

    /// Returns the manifests of the public webhook, as KIM installs them.
    pub(crate) fn public_webhook(&self) -> Result<Vec<Value>> {
        doubles::kim::public_webhook(&self.public)
    }

    /// Deletes a Runtime of a scenario, and the product's objects on its cluster.
    pub(crate) async fn remove(&self, runtime: &Runtime) -> Result<()> {
        self.kcp.remove(runtime).await?;
        match runtime.cluster {
            Some(number) => {
                let own = self.controller.webhook().await?;
                let manifests = [self.public_webhook()?, own].concat();
                self.runtimes[number].clear(&manifests).await
            }
            None => Ok(()),
        }
    }

    /// Waits until the controller has observed the sources, so that it does not react to them during the next scenario. The
    /// annotations of the permanent copies have the hashes that its state must have.
    pub(crate) async fn sources_observed(&self) -> Result<()> {
        let permanent = self.direct(0, None).await?;
        let cluster = self.cluster_of(&permanent)?;
        let path = named_config_map(KCP_NAMESPACE, SIGNAL_STATE);
        eventually("the controller has observed the sources", async || {
            let state = self.kcp.api.find(&path).await?;
            for source in Source::ALL {
                let copy = cluster.copy(source).await?;
                let expected = &copy["metadata"]["annotations"][CONTENT_HASH];
                let observed = &state["data"][source.state_key()];
                ensure!(observed == expected, "{source:?}: {state}");
            }
            Ok(())
        })
        .await
    }

    /// Collects diagnostics: objects, Events and logs of all three clusters.
    pub(crate) async fn collect(&self, evidence: &Evidence) {
        for runtime in &self.runtimes {
            let api = runtime.api.clone();
            let webhook = Workload::new(api, SKR_NAMESPACE, WEBHOOK_DEPLOYMENT);
            let folder = &runtime.cluster.name;
            webhook.keep_metrics(METRICS_PORT, evidence, folder).await;
            runtime.cluster.collect_evidence(evidence).await;
        }
        let controller = controller::workload(&self.kcp);
        controller.keep_metrics(METRICS_PORT, evidence, "kcp").await;
        self.kcp.cluster.collect_evidence(evidence).await;
    }
}
