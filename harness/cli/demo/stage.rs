//! What the demo needs before anything can be shown: cluster, private registry, images.
//!
//! Invariant: set in one go and struck in one go. What an earlier run kept is taken, and stays.

use std::path::PathBuf;

use clusters::cluster::{Cluster, ClusterOptions};
use clusters::images::{self, ImageTar, Role};
use clusters::progress::Progress;
use clusters::registry::{Identity, Registry};
use clusters::run::{KEPT, Run};
use clusters::setup::Setup;
use e2e::landscape::Place;

/// Everything that was started.
pub(super) struct Stage {
    run: Run,
    pub(super) cluster: Cluster,
    pub(super) registry: Registry,
    /// The product's program on this machine, of the same build as in the image.
    pub(super) binary: PathBuf,
    pub(super) product: ImageTar,
    pub(super) probe: ImageTar,
    /// Host and port of the registry.
    pub(super) host: String,
    docker_config: String,
    /// Whether the cluster will be there when the demo is over.
    pub(super) stays: bool,
}

impl Stage {
    pub(super) async fn set(
        progress: &Progress,
        setup: &Setup,
        keep: bool,
    ) -> anyhow::Result<Self> {
        let probe = images::probe(progress).await?;
        let product = images::product(progress, Role::Webhook).await?;
        let identity = Identity::load_or_make()?;
        let run = Run::begin(keep).await?;
        let start = Registry::start(&run, &setup.registry_image, &identity);
        let registry = progress.show("start the private registry", start).await?;
        let options =
            ClusterOptions::new(CLUSTER).with_registry(&registry.host(), &identity.ca_pem);
        let start = Cluster::start(&run, &setup.provider, &options);
        let cluster = progress.show("start the cluster", start).await?;
        let kept = run.docker().containers(KEPT).await?;
        Ok(Self {
            stays: kept.iter().any(|kept| kept.name == CONTAINER),
            host: registry.host(),
            docker_config: identity.docker_config(),
            run,
            cluster,
            registry,
            binary: images::built_binary(images::Profile::E2e),
            product,
            probe,
        })
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place {
            registry: &self.host,
            docker_config: &self.docker_config,
        }
    }

    /// Takes down what is not kept.
    pub(super) async fn strike(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        self.registry.stop().await?;
        Ok(self.run.end().await?)
    }
}

const CLUSTER: &str = "demo";
/// What Docker calls the cluster when it is kept.
pub(super) const CONTAINER: &str = "kyma-kept-demo";
