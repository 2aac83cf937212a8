//! A Kubernetes cluster in a k3s-compatible container that the harness starts.
//!
//! A cluster that was there before is never used: no option, file or variable leads to one.
//!
//! Invariant: a [`Cluster`] that `start` returned is ready (the API server says so, the node is Ready, the default
//! ServiceAccount exists), and its API is reachable on loopback only. Ports, names and labels are ours, so a sweep
//! finds every container. Deliberately absent: a `Drop` that tears down (teardown is [`Cluster::stop`], in `main`,
//! so that it can be awaited and can fail), and sharing through statics.

mod container;
mod node;
mod objects;
mod options;
mod report;
pub mod selfcheck;

pub(crate) use container::{append, publish, split_reference};
pub use node::PodTarget;
pub use objects::MANAGER;
pub(crate) use options::k3s_image;
pub use options::{ClusterOptions, KUBERNETES_VERSION, Provider, ProviderChoice, RegistryTrust};

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;

use crate::docker::DockerError;
use crate::run::Run;
use crate::workspace;
use node::Node;
use testkit::until::{TooLate, until};

/// A running cluster.
pub struct Cluster {
    name: String,
    provider: String,
    kubeconfig: String,
    kubeconfig_path: PathBuf,
    client: kube::Client,
    kinds: objects::Kinds,
    node: Node,
}

impl Cluster {
    /// Starts a cluster, or takes a kept one of the same shape.
    ///
    /// # Errors
    /// When the container ends early (with the end of its log), or something is not ready in time.
    pub async fn start(
        run: &Run,
        provider: &Provider,
        options: &ClusterOptions,
    ) -> Result<Self, ClusterError> {
        // testcontainers' futures are large; callers shall not carry them.
        let node = Box::pin(Node::start(run, provider, options)).await?;
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
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn stop(self) -> Result<(), ClusterError> {
        self.node.stop().await
    }

    /// The name given in the options.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What runs it, for reports.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Docker's name of the container, if the container stays when the run ends.
    #[must_use]
    pub fn kept_container(&self) -> Option<&str> {
        self.node.kept_container()
    }

    /// A client with all rights. It takes no part in the choice of retries and timeouts that the product makes.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The kubeconfig, usable on this machine.
    #[must_use]
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The same as a file: `target/harness/clusters/<name>.yaml`.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig_path
    }
}

async fn client(kubeconfig: &str) -> Result<kube::Client, ClusterError> {
    let parsed =
        kube::config::Kubeconfig::from_yaml(kubeconfig).map_err(ClusterError::Kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(parsed, &kube::config::KubeConfigOptions::default())
            .await
            .map_err(ClusterError::Kubeconfig)?;
    kube::Client::try_from(config).map_err(|source| ClusterError::Api {
        what: "make a client".to_owned(),
        source: Box::new(source),
    })
}

/// Keeps a kubeconfig where users and other processes find it.
///
/// # Errors
/// When the file cannot be written.
pub fn write_kubeconfig(name: &str, text: &str) -> Result<PathBuf, ClusterError> {
    let folder = workspace::state().join("clusters");
    std::fs::create_dir_all(&folder).map_err(ClusterError::file(&folder))?;
    let path = folder.join(format!("{name}.yaml"));
    std::fs::write(&path, text).map_err(ClusterError::file(&path))?;
    Ok(path)
}

/// Waits until the API server is ready, Pods could be created and, where there is one, the node is Ready.
async fn ready(client: &kube::Client, has_node: bool) -> Result<(), ClusterError> {
    until("the API server is ready", READY_TIMEOUT, || healthy(client))
        .await
        .map_err(ClusterError::NotReady)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until(
        "the ServiceAccount default/default exists",
        READY_TIMEOUT,
        || accounts.get("default"),
    )
    .await
    .map_err(ClusterError::NotReady)?;
    if has_node {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
        until("a node is Ready", READY_TIMEOUT, || a_node_is_ready(&nodes))
            .await
            .map_err(ClusterError::NotReady)?;
    }
    Ok(())
}

async fn healthy(client: &kube::Client) -> Result<(), String> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let answer = client
        .request_text(request)
        .await
        .map_err(|error| error.to_string())?;
    if answer == "ok" { Ok(()) } else { Err(answer) }
}

async fn a_node_is_ready(nodes: &Api<k8s_openapi::api::core::v1::Node>) -> Result<(), String> {
    let found = nodes
        .list(&kube::api::ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let ready = found.iter().any(|node| {
        let conditions = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    if ready {
        Ok(())
    } else {
        Err(format!("{} nodes, none Ready", found.items.len()))
    }
}

const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// A cluster could not be started, or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Docker refused.
    #[error("the cluster's container")]
    Docker(#[source] DockerError),
    /// The container ended, or did not become ready in time.
    #[error("{container} did not start; the end of its log:\n{tail}")]
    Start {
        /// Its name.
        container: String,
        /// The end of its log.
        tail: String,
        /// What testcontainers says.
        source: Box<testcontainers::TestcontainersError>,
    },
    /// A kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// Something did not become ready in time.
    #[error("the cluster is not ready")]
    NotReady(#[source] TooLate),
    /// The API server refused.
    #[error("could not {what}")]
    Api {
        /// What was asked.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// A manifest is not a stream of Kubernetes objects.
    #[error("no Kubernetes manifest: {reason}")]
    Manifest {
        /// What is wrong with it.
        reason: String,
    },
    /// A program on the node failed.
    #[error("{program} on the node ended with {code}: {stderr}")]
    Program {
        /// Its command line.
        program: String,
        /// Its exit code.
        code: i64,
        /// What it said.
        stderr: String,
    },
    /// The container of the cluster is not in the network of the run.
    #[error("cluster {cluster}: its container has no address in network {network}")]
    NoAddress {
        /// Name of the cluster.
        cluster: String,
        /// Name of the network.
        network: String,
    },
    /// A file of ours cannot be read or written.
    #[error("{}: cannot be read or written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ClusterError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api {
            what,
            source: Box::new(source),
        }
    }
}
