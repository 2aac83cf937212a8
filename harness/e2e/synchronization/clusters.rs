//! What a scenario runs on: KCP with two replicas of the controller, and two runtime clusters.
//!
//! [`Clusters::start`] returns when a controller leads and the sources exist. The first runtime cluster stays in mode
//! direct from its first use on; the second one is empty at the start of each scenario.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::runtimes::{CONTENT_HASH, KCP_NAMESPACE, MODE_DIRECT};
use serde_json::Value;

use super::DEADLINE;
use super::control_plane::Runtime;
use super::control_plane::named_config_map;
use super::control_plane::{ControlPlane, bootstrappers_path, runtime_path};
use super::controller::{Controller, Installation, SIGNAL_STATE};
use super::runtime_cluster::RuntimeCluster;
use super::source::Source;
use crate::client::Client;
use crate::fixtures::Fixtures;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::control_plane;
use clusters::evidence::Evidence;
use clusters::images::{self, Image, Role};
use clusters::progress;
use clusters::setup::Setup;
use testkit::until::until;

/// A change of the pull Secret as a runtime received it.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// Name of the Runtime.
    pub runtime: String,
    /// Registry for which the Secret has credentials since.
    pub host: String,
    /// Time from the write on KCP until the runtime had the Secret.
    pub arrived: Duration,
    /// Time from the write on KCP until every replica of the webhook used it.
    pub decided: Duration,
}

/// KCP with the controller, and two runtime clusters.
pub struct Clusters {
    fixtures: Arc<Fixtures>,
    pub(crate) kcp: ControlPlane,
    pub(crate) runtimes: [RuntimeCluster; 2],
    pub(crate) controller: Controller,
}

impl Clusters {
    /// Starts the clusters, or takes those that an earlier run kept.
    ///
    /// # Errors
    /// When a cluster or the controller does not become ready.
    pub async fn start(setup: &Setup, keep: bool) -> anyhow::Result<Self> {
        let fixtures = Arc::new(Fixtures::prepare(setup, keep).await?);
        let image = images::product(Role::Controller).await?;
        Box::pin(Self::with(fixtures, &image, "a")).await
    }

    /// Starts clusters whose names have a suffix.
    pub(crate) async fn with(
        fixtures: Arc<Fixtures>,
        image: &Image,
        suffix: &str,
    ) -> anyhow::Result<Self> {
        let start = |name| {
            let options = ClusterOptions::new(&format!("{name}-{suffix}"));
            Box::pin(fixtures.cluster(options))
        };
        let clusters = async { tokio::try_join!(start("kcp"), start("skr-one"), start("skr-two")) };
        let (kcp, one, two) = progress::show("start three clusters", clusters).await?;
        kcp.load_image(image).await?;
        let binary = images::built_binary(images::Profile::E2e);
        let webhook = &fixtures.webhook.reference;
        let clusters = Self {
            controller: Controller::new(&binary, &image.reference, webhook),
            kcp: ControlPlane {
                api: Client::with(&kcp.kubeconfig).await?,
                cluster: kcp,
            },
            runtimes: [
                RuntimeCluster::of(one).await?,
                RuntimeCluster::of(two).await?,
            ],
            fixtures,
        };
        let installed =
            progress::show("install the controller", Box::pin(clusters.install())).await;
        if installed.is_err() {
            clusters
                .collect(&Evidence::of("synchronization", "installation")?)
                .await;
        }
        installed.map(|()| clusters)
    }

    async fn install(&self) -> anyhow::Result<()> {
        control_plane::ControlPlane::prepare(self.kcp.cluster.client()).await?;
        for source in Source::ALL {
            self.kcp.renew(source).await?;
        }
        let default = Installation::default();
        self.controller.install(&self.kcp, &default).await
    }

    /// Stops all clusters that are not kept.
    ///
    /// # Errors
    /// When Docker reports an error.
    pub async fn stop(self) -> anyhow::Result<()> {
        let [one, two] = self.runtimes;
        for cluster in [self.kcp.cluster, one.cluster, two.cluster] {
            cluster.stop().await?;
        }
        match Arc::into_inner(self.fixtures) {
            Some(fixtures) => fixtures.remove().await,
            None => Ok(()),
        }
    }

    /// The cluster of a Runtime.
    pub(crate) fn cluster_of(&self, runtime: &Runtime) -> anyhow::Result<&RuntimeCluster> {
        let number = runtime.cluster;
        let number = number.with_context(|| format!("Runtime {} has no cluster", runtime.name))?;
        Ok(&self.runtimes[number])
    }

    /// The permanent Runtime of a cluster in mode direct, synchronized.
    pub(crate) async fn direct(&self, number: usize, wave: Option<u32>) -> anyhow::Result<Runtime> {
        let runtime = Runtime::permanent(number);
        self.put_direct(&runtime, wave).await?;
        self.is_synchronized(&runtime).await?;
        Ok(runtime)
    }

    /// Writes a Runtime in mode direct and its kubeconfig.
    pub(crate) async fn put_direct(
        &self,
        runtime: &Runtime,
        wave: Option<u32>,
    ) -> anyhow::Result<()> {
        let object = runtime.object(Some(MODE_DIRECT), wave);
        self.kcp.put_runtime(&object).await?;
        let kubeconfig = self.cluster_of(runtime)?.kubeconfig.to_string();
        self.kcp.put_kubeconfig(runtime, &kubeconfig).await
    }

    /// Waits until a runtime in mode direct is Ready and has all sources.
    pub(crate) async fn is_synchronized(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let cluster = self.cluster_of(runtime)?;
        let ready = ("Ready", "True");
        self.kcp.has_condition(&runtime.name, ready).await?;
        self.has_sources(cluster).await?;
        cluster.is_registered().await?;
        self.kcp.has_condition(&runtime.name, ready).await
    }

    /// Waits until a cluster has the three sources, of one revision.
    pub(crate) async fn has_sources(&self, cluster: &RuntimeCluster) -> anyhow::Result<()> {
        for source in Source::ALL {
            cluster.has(source, &self.kcp.source(source).await?).await?;
        }
        cluster.has_one_revision().await
    }

    /// Deletes a Runtime of a scenario, and what is on its cluster.
    pub(crate) async fn remove(&self, runtime: &Runtime) -> anyhow::Result<()> {
        self.kcp.remove(runtime).await?;
        match runtime.cluster {
            Some(number) => {
                let manifests = self.controller.webhook().await?;
                self.runtimes[number].clear(&manifests).await
            }
            None => Ok(()),
        }
    }

    /// Waits until the controller has observed the sources, so that its reaction does not fall into the next scenario. The
    /// annotations of the permanent copies have the hashes that its state must have.
    pub(crate) async fn sources_observed(&self) -> anyhow::Result<()> {
        let permanent = self.direct(0, None).await?;
        let cluster = self.cluster_of(&permanent)?;
        let path = named_config_map(KCP_NAMESPACE, SIGNAL_STATE);
        let path = &path;
        until(
            "the controller has observed the sources",
            DEADLINE,
            || async move {
                let state = self.kcp.api.find(path).await?;
                let state = state.context("no state ConfigMap")?;
                for source in Source::ALL {
                    let copy = cluster.copy(source).await?;
                    let expected = &copy["metadata"]["annotations"][CONTENT_HASH];
                    let observed = &state["data"][source.state_key()];
                    ensure!(
                        observed == expected,
                        "{source:?}: {observed}, not {expected}"
                    );
                }
                anyhow::Ok(())
            },
        )
        .await?;
        Ok(())
    }

    /// Changes the pull Secret on KCP and times the synchronization to a runtime in mode direct.
    ///
    /// # Errors
    /// When the runtime does not become ready, or is not synchronized.
    pub async fn rotate(&self) -> anyhow::Result<Rotation> {
        let runtime = self.direct(0, None).await?;
        let cluster = self.cluster_of(&runtime)?;
        let source = Source::PullSecret;
        let object = source.fresh()?;
        let begin = Instant::now();
        self.kcp.write(source, &object).await?;
        cluster.has(source, &object).await?;
        let arrived = begin.elapsed();
        cluster.uses(source, &object).await?;
        Ok(Rotation {
            runtime: runtime.name,
            host: source.probe(&object)?.0.replace("/x", ""),
            arrived,
            decided: begin.elapsed(),
        })
    }

    /// Keeps what explains a failure: objects, Events and logs of all three clusters.
    pub(crate) async fn collect(&self, evidence: &Evidence) {
        Controller::collect(&self.kcp, evidence).await;
        let lists = [
            ("kcp/runtimebootstrappers.json", bootstrappers_path()),
            ("kcp/runtimes.json", runtime_path("")),
            ("kcp/configmaps.json", named_config_map(KCP_NAMESPACE, "")),
        ];
        for (file, path) in lists {
            evidence.keep_result(file, shown(&self.kcp.api, path.trim_end_matches('/')).await);
        }
        for runtime in &self.runtimes {
            for source in Source::ALL {
                let copy = runtime.copy(source).await.map(|it| format!("{it:#}"));
                evidence.keep_result(&format!("{}/{source:?}.json", runtime.cluster.name), copy);
            }
        }
        let runtimes = self.runtimes.iter().map(|it| &it.cluster);
        for cluster in runtimes.chain([&self.kcp.cluster]) {
            collect_cluster(cluster, evidence).await;
        }
    }
}

async fn collect_cluster(cluster: &Cluster, evidence: &Evidence) {
    match Evidence::in_folder(evidence.folder.join("clusters").join(&cluster.name)) {
        Ok(folder) => cluster.collect_evidence(&folder).await,
        Err(error) => evidence.keep(&format!("{}.txt", cluster.name), error.to_string()),
    }
}

async fn shown(api: &Client, path: &str) -> anyhow::Result<String> {
    let listed: Value = api.get(path).await?.object;
    Ok(format!("{listed:#}"))
}
