//! The fixtures of every cluster of a run (the images and the trust in the private registry), and the product, installed as a
//! user does: from the output of `manifests webhook`.
//!
//! `Fixtures` are prepared once per run. A cluster for one scenario differs from the shared one only in its options.
//! [`install`] returns when all replicas are available.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::admission::webhook::LANDSCAPE;
use crate::rollout::Workload;
use clusters::cluster::{Cluster, ClusterOptions, Provider};
use clusters::images::{self, Image, Role};
use clusters::registry::{HOSTS, Registry};
use clusters::run::Run;
use clusters::setup::Setup;
use testkit::client::Client;

/// Returns the output of `manifests webhook` for an image, with further flags.
pub async fn webhook(image: &str, flags: &[&str]) -> Result<Vec<Value>> {
    printed(&[&["manifests", "webhook", "--image", image], flags].concat()).await
}

/// Applies the manifests of the webhook and waits until its Deployment is rolled out.
pub async fn install(cluster: &Cluster, manifests: &[Value]) -> Result<()> {
    apply(cluster, manifests).await?;
    rolled_out(cluster).await
}

/// Waits until the Deployment of the webhook is rolled out.
pub(crate) async fn rolled_out(cluster: &Cluster) -> Result<()> {
    let (client, name) = (Client::new(cluster.client()), api::kcp::WEBHOOK_DEPLOYMENT);
    let workload = Workload::new(client, api::names::SKR_NAMESPACE, name);
    workload.is_rolled_out().await
}

/// Returns the objects of a YAML stream with an image in the first container of the Deployment.
pub(crate) fn with_image(yaml: &str, image: &str) -> Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    template(&mut objects)?["spec"]["containers"][0]["image"] = json!(image);
    Ok(objects)
}

/// Returns the template of the Pods of the Deployment among these objects.
pub(crate) fn template(objects: &mut [Value]) -> Result<&mut Value> {
    let deployment = objects.iter_mut().find(|it| it["kind"] == "Deployment");
    Ok(&mut deployment.context("no Deployment")?["spec"]["template"])
}

pub(crate) async fn apply(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    for object in objects {
        cluster.apply(&object.to_string()).await?;
    }
    Ok(())
}

/// Returns the objects that the product's binary prints.
pub(crate) async fn printed(arguments: &[&str]) -> Result<Vec<Value>> {
    let text = printed_text(arguments).await?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    // A document that contains only comments is null.
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// Returns the output of the product's binary.
pub(crate) async fn printed_text(arguments: &[&str]) -> Result<String> {
    let binary = images::built_binary(images::Profile::E2e);
    let output = Command::new(&binary).args(arguments).output().await;
    let output = output.with_context(|| format!("run {}", binary.display()))?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Registry, images and manifests, and their run.
pub(crate) struct Fixtures {
    run: Run,
    pub(crate) provider: Provider,
    pub(crate) registry: Registry,
    /// Manifests of the webhook with an image that is loaded into nodes.
    pub(crate) product: Vec<Value>,
    /// Manifests of the webhook with an image that only the private registry has.
    pub(crate) private_product: Vec<Value>,
    probe: Image,
    pub(crate) webhook: Image,
}

impl Fixtures {
    /// Builds the images and starts the registry.
    pub(crate) async fn prepare(setup: &Setup, keep: bool) -> Result<Self> {
        let probe = images::probe().await?;
        let image = images::product(Role::Webhook).await?;
        let flags = ["--landscape", LANDSCAPE];
        let product = webhook(&image.reference, &flags).await?;
        let run = Run::begin(keep).await?;
        let registry = Box::pin(Registry::start(&run, &setup.registry_image)).await?;
        let private = images::private_probe().await?;
        registry.push(&private, "harness/probe:1").await?;
        let pushed = registry.push(&image, "harness/webhook:1").await?;
        let secret = ["--webhook-image-pull-secret", api::names::PULL_SECRET];
        let flags = [flags, secret].concat();
        let private_product = webhook(&pushed, &flags).await?;
        Ok(Self {
            run,
            provider: setup.provider.clone(),
            registry,
            product,
            private_product,
            probe,
            webhook: image,
        })
    }

    /// Starts a cluster whose node trusts the registry and has the images.
    pub(crate) async fn cluster(&self, options: ClusterOptions) -> Result<Cluster> {
        let cluster = self.cluster_without_product(options).await?;
        cluster.load_image(&self.webhook).await?;
        Ok(cluster)
    }

    /// Starts such a cluster, which is removed after this run even if others are kept.
    pub(crate) async fn transient_cluster(&self, options: ClusterOptions) -> Result<Cluster> {
        let cluster = self.start(&self.run.without_keep(), options).await?;
        cluster.load_image(&self.webhook).await?;
        Ok(cluster)
    }

    /// Starts a cluster as [`Self::cluster`] does, whose node must pull the product's image.
    pub(crate) async fn cluster_without_product(&self, options: ClusterOptions) -> Result<Cluster> {
        self.start(&self.run, options).await
    }

    async fn start(&self, run: &Run, options: ClusterOptions) -> Result<Cluster> {
        let options = options.with_registry(&HOSTS, &self.registry.identity.ca_pem);
        let cluster = Box::pin(Cluster::start(run, &self.provider, &options)).await?;
        cluster.load_image(&self.probe).await?;
        Ok(cluster)
    }

    /// Removes all objects that are not kept, after the last cluster. Objects that other clusters still use stay.
    pub(crate) async fn release(self: Arc<Self>) -> Result<()> {
        let Some(last) = Arc::into_inner(self) else {
            return Ok(());
        };
        last.registry.stop().await?;
        last.run.end().await
    }
}

/// Returns this machine's address in the network of a node, at which the node and its Pods reach it.
pub(crate) fn this_machine(node: &str) -> Result<IpAddr> {
    // Connecting a datagram socket sends no packet; it only selects a route.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((node, 6443))?;
    Ok(socket.local_addr()?.ip())
}
