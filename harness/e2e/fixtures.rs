//! What every cluster of a run gets: the images, the trust in the private registry, the manifests of the webhook.
//!
//! It is prepared once a run; a cluster of a scenario's own differs from the shared one in its options only.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;

use crate::admission::webhook::LANDSCAPE;
use crate::install;
use clusters::cluster::{Cluster, ClusterOptions, Provider};
use clusters::images::{self, Image, Role};
use clusters::registry::{HOST, Registry};
use clusters::run::Run;
use clusters::setup::Setup;

/// Registry, images and manifests, and the run that they belong to.
pub(crate) struct Fixtures {
    run: Run,
    pub(crate) provider: Provider,
    pub(crate) registry: Registry,
    /// The manifests of the webhook, by an image that is loaded into nodes.
    pub(crate) product: Vec<Value>,
    /// The same, by an image that only the private registry has.
    pub(crate) private_product: Vec<Value>,
    probe: Image,
    pub(crate) webhook: Image,
}

impl Fixtures {
    /// Builds the images and starts the registry.
    pub(crate) async fn prepare(setup: &Setup, keep: bool) -> Result<Self> {
        let probe = images::probe().await?;
        let webhook = images::product(Role::Webhook).await?;
        let flags = ["--landscape", LANDSCAPE];
        let product = install::webhook(&webhook.reference, &flags).await?;
        let run = Run::begin(keep).await?;
        let registry = Box::pin(Registry::start(&run, &setup.registry_image)).await?;
        let private = images::private_probe().await?;
        registry.push(&private, "harness/probe:1").await?;
        let pushed = registry.push(&webhook, "harness/webhook:1").await?;
        let secret = ["--webhook-image-pull-secret", api::names::PULL_SECRET];
        let flags = [flags, secret].concat();
        let private_product = install::webhook(&pushed, &flags).await?;
        Ok(Self {
            run,
            provider: setup.provider.clone(),
            registry,
            product,
            private_product,
            probe,
            webhook,
        })
    }

    /// A cluster whose node trusts the registry and has the images.
    pub(crate) async fn cluster(&self, options: ClusterOptions) -> Result<Cluster> {
        let cluster = self.cluster_without_product(options).await?;
        cluster.load_image(&self.webhook).await?;
        Ok(cluster)
    }

    /// The same, but the product's image has to be pulled.
    pub(crate) async fn cluster_without_product(&self, options: ClusterOptions) -> Result<Cluster> {
        let options = options.with_registry(HOST, &self.registry.identity.ca_pem);
        let cluster = Box::pin(Cluster::start(&self.run, &self.provider, &options)).await?;
        cluster.load_image(&self.probe).await?;
        Ok(cluster)
    }

    /// Removes what is not kept, after the last cluster; what other clusters still use stays.
    pub(crate) async fn release(self: Arc<Self>) -> Result<()> {
        let Some(last) = Arc::into_inner(self) else {
            return Ok(());
        };
        last.registry.stop().await?;
        last.run.end().await
    }
}

/// This machine's address on the way to a node, by which the node and its Pods reach it.
pub(crate) fn this_machine(node: &str) -> Result<IpAddr> {
    // Connecting a datagram socket sends nothing: it asks the routing table.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((node, 6443))?;
    Ok(socket.local_addr()?.ip())
}
