//! A Kubernetes cluster in a k3s-compatible container that the harness starts.
//!
//! A cluster that was there before is never used: no option, file or variable leads to one.
//!
//! A [`Cluster`] that `start` returned is ready (the API server says so, the node is Ready, the default ServiceAccount
//! exists), and its API is reachable on loopback only. It has no `Drop` that tears down: [`Cluster::stop`] can be awaited
//! and can fail.

mod container;
mod node;
mod objects;
mod options;
pub mod selfcheck;

pub(crate) use container::{Container, request};
pub use objects::MANAGER;
pub(crate) use options::k3s_image;
pub use options::{ClusterOptions, KUBERNETES_VERSION, Provider, ProviderChoice};

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use testkit::until::until;

use crate::run::Run;
use crate::workspace;

/// A running cluster.
pub struct Cluster {
    /// The name given in the options.
    pub name: String,
    /// What runs it, for reports.
    pub provider: String,
    /// The kubeconfig, usable on this machine.
    pub kubeconfig: String,
    /// The same as a file: `target/harness/clusters/<name>.yaml`.
    pub kubeconfig_path: PathBuf,
    client: kube::Client,
    kinds: objects::Kinds,
    node: Container,
}

impl Cluster {
    /// Starts a cluster, or takes a kept one of the same shape.
    pub async fn start(
        run: &Run,
        provider: &Provider,
        options: &ClusterOptions,
    ) -> anyhow::Result<Self> {
        // testcontainers' futures are large; callers shall not carry them.
        let node = Box::pin(node::start(run, provider, options)).await?;
        let kubeconfig = node.kubeconfig().await?;
        let kubeconfig_path = write_kubeconfig(&options.name, &kubeconfig)?;
        let client = client(&kubeconfig).await?;
        Box::pin(ready(&client, options.node)).await?;
        Ok(Self {
            name: options.name.clone(),
            provider: provider.to_string(),
            kubeconfig,
            kubeconfig_path,
            kinds: objects::Kinds::new(client.clone()),
            client,
            node,
        })
    }

    /// Removes the container, unless it is kept.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.node.stop().await
    }

    /// Docker's name of the container, if the container stays when the run ends.
    pub fn kept_container(&self) -> Option<&str> {
        self.node.kept_name()
    }

    /// A client with all rights. It takes no part in the choice of retries and timeouts that the product makes.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }
}

async fn client(kubeconfig: &str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(kube::Client::try_from(config)?)
}

/// Keeps a kubeconfig where users and other processes find it.
pub fn write_kubeconfig(name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let folder = workspace::state().join("clusters");
    let path = folder.join(format!("{name}.yaml"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text));
    written.with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Waits until the API server is ready, Pods could be created and, where there is one, the node is Ready.
async fn ready(client: &kube::Client, has_node: bool) -> anyhow::Result<()> {
    let healthy = async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        let text = client.request_text(request).await?;
        ensure!(text == "ok", text);
        anyhow::Ok(())
    };
    until("the API server is ready", READY_TIMEOUT, healthy).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = || accounts.get("default");
    let what = "the ServiceAccount default/default exists";
    until(what, READY_TIMEOUT, account).await?;
    if has_node {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
        let node_ready = async || {
            let found = nodes.list(&kube::api::ListParams::default()).await?;
            let statuses = found.iter().filter_map(|node| node.status.as_ref());
            let mut conditions = statuses.flat_map(|status| status.conditions.iter().flatten());
            let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
            ensure!(ready, "{} nodes, none Ready", found.items.len());
            anyhow::Ok(())
        };
        until("a node is Ready", READY_TIMEOUT, node_ready).await?;
    }
    Ok(())
}

const READY_TIMEOUT: Duration = Duration::from_mins(2);
