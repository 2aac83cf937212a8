//! A Kubernetes cluster in a k3s-compatible container that the harness starts, its images, and programs on its node.
//!
//! The harness never uses another cluster: no option, file or variable can select one.
//!
//! A [`Cluster`] that `start` returned is ready: `/readyz` succeeds, the node is Ready, and the default ServiceAccount exists.
//! Its API is reachable on loopback only. It has no `Drop` that removes the container, because [`Cluster::stop`] is async and
//! can fail.
//!
//! The harness imports an image only once into a node, identified by the image's ID and name. Commands in Pods are run with the
//! container's own `kubectl`. So the harness needs no WebSocket client, whose features cargo would also choose for the product.

mod container;
mod objects;
mod options;
mod secrets;

pub(crate) use container::{Container, request};
pub(crate) use options::k3s_image;
pub use options::{ClusterOptions, KUBERNETES_VERSION, Provider, ProviderChoice, TrustBundles};

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use serde_json::{Value, json};
use testcontainers::ImageExt as _;
use testkit::client::Client;
use testkit::until::until;
use tokio::process::Command;
use tokio::time::timeout;

use self::container::{API_PORT, KUBECONFIG, of_cluster};
use crate::docker::{self, Output};
use crate::images::{Image, digest};
use crate::run::Run;
use crate::workspace;

/// A running cluster.
pub struct Cluster {
    /// Name of the cluster, as in the options.
    pub name: String,
    /// Image that runs the cluster, for reports.
    pub provider: String,
    /// Kubeconfig for clients on this machine.
    pub kubeconfig: String,
    /// File with the kubeconfig: `target/harness/clusters/<name>.yaml`.
    pub kubeconfig_path: PathBuf,
    objects: Client,
    watching: kube::Client,
    node: Container,
}

impl Cluster {
    /// Starts a cluster, or uses a kept one of the same shape.
    pub async fn start(
        run: &Run,
        provider: &Provider,
        options: &ClusterOptions,
    ) -> anyhow::Result<Self> {
        // Clusters of equal shape are interchangeable.
        let (provider_image, shape) = (provider.to_string(), json!(options).to_string());
        let slot = run.slot(&options.name, (&provider_image, &shape), false);
        let slot = slot.await?;
        let request = of_cluster(provider, options, &slot).with_network(run.network());
        // The futures of testcontainers are large; the box keeps them out of the caller's future.
        let node = Box::pin(Container::start(slot, request)).await?;
        let kubeconfig = kubeconfig(&node).await?;
        let kubeconfig_path = write_kubeconfig(&options.name, &kubeconfig)?;
        let mut config = testkit::client_config(&kubeconfig).await?;
        config.default_retry = true;
        let client = kube::Client::try_from(config.clone())?;
        config.read_timeout = Some(WATCH_LIMIT);
        let watching = kube::Client::try_from(config)?;
        Box::pin(ready(&client, options.node)).await?;
        Ok(Self {
            name: options.name.clone(),
            provider: provider_image,
            kubeconfig,
            kubeconfig_path,
            objects: Client::new(client),
            watching,
            node,
        })
    }

    /// Removes the container, unless it is kept. Then fails if a log, an Event, an object of the product or a page of metrics shows
    /// content of a Secret.
    pub async fn stop(self) -> anyhow::Result<()> {
        let checked = self.shows_no_secret().await;
        self.node.stop().await?;
        checked
    }

    /// Returns a client with all permissions. Its retries and timeouts are independent of those of the product. Each request has
    /// the time limit of [`testkit::client_config`], which is too short for watches.
    pub fn client(&self) -> kube::Client {
        self.objects.inner()
    }

    /// Returns a client as [`Self::client`] does, whose time limit also allows watches.
    pub fn watching_client(&self) -> kube::Client {
        self.watching.clone()
    }

    /// Imports an image into the node, unless the node has it.
    pub async fn load_image(&self, image: &Image) -> anyhow::Result<()> {
        let (node, name) = (self.node.id(), image.reference.as_str());
        let own = digest(format!("{} {name}", image.id).as_bytes());
        let marker = format!("/{}.loaded", own.trim_start_matches("sha256:"));
        let found = docker::run(&["exec", node, "test", "-e", &marker]).await?;
        if found.code == 0 {
            return Ok(());
        }
        let script = "\"$0\" save \"$1\" | \"$0\" exec --interactive \"$2\" ctr --namespace k8s.io images import -";
        let mut import = Command::new("sh");
        import.args(["-c", script, docker::program(), name, node]);
        let ended = timeout(IMPORT_TIME, import.kill_on_drop(true).output()).await;
        let ended = ended.with_context(|| format!("import {name}"))??;
        let errors = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "import {name}: {errors}");
        docker::must(&["exec", node, "touch", &marker]).await?;
        Ok(())
    }

    /// Runs a program on the node.
    pub async fn exec_on_node(&self, argv: &[&str]) -> anyhow::Result<Output> {
        docker::run(&[&["exec", self.node.id()], argv].concat()).await
    }

    /// Runs the node's own `kubectl` and returns its standard output.
    ///
    /// # Errors
    ///
    /// Fails if the exit code is not 0.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        let kubectl = ["kubectl", "--kubeconfig", KUBECONFIG];
        let command = [&["exec", self.node.id()], &kubectl[..], args].concat();
        Ok(docker::must(&command).await?.stdout)
    }

    /// Returns the address of the node in the run's network, for other containers.
    pub async fn node_address(&self) -> anyhow::Result<String> {
        let address = self.node.inner.get_bridge_ip_address().await;
        let address = address.with_context(|| format!("address of {}", self.node.slot.name))?;
        Ok(address.to_string())
    }

    /// Returns a kubeconfig with the node's address, for other containers and for clients that must not use Docker's proxy.
    pub async fn direct_kubeconfig(&self) -> anyhow::Result<Value> {
        let mut kubeconfig: Value = serde_saphyr::from_str(&self.kubeconfig)?;
        let entry = kubeconfig.pointer_mut("/clusters/0/cluster");
        let entry = entry.context("the kubeconfig names no cluster")?;
        entry["server"] = json!(format!("https://{}:6443", self.node_address().await?));
        entry["tls-server-name"] = json!(self.name);
        Ok(kubeconfig)
    }
}

/// Returns the kubeconfig with the port that Docker mapped.
async fn kubeconfig(node: &Container) -> anyhow::Result<String> {
    let port = node.port(API_PORT).await?;
    let read = async || {
        let read = docker::must(&["exec", node.id(), "cat", KUBECONFIG]).await?;
        ensure!(read.stdout.contains(INSIDE), "no {INSIDE} in it");
        anyhow::Ok(read.stdout)
    };
    let inside = until("the kubeconfig is written", KUBECONFIG_TIMEOUT, read).await?;
    Ok(inside.replace(INSIDE, &format!("https://127.0.0.1:{port}")))
}

/// Writes a kubeconfig to a file for users and other processes. Returns the path.
pub fn write_kubeconfig(name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let folder = workspace::state().join("clusters");
    let path = folder.join(format!("{name}.yaml"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text));
    written.with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Waits until the API server is ready, the default ServiceAccount exists and, if `has_node`, a node is Ready.
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

const INSIDE: &str = "https://127.0.0.1:6443";
const KUBECONFIG_TIMEOUT: Duration = Duration::from_mins(1);
const IMPORT_TIME: Duration = Duration::from_mins(5);
const READY_TIMEOUT: Duration = Duration::from_mins(2);
/// Time limit for an answer of a client that watches. A watch of kube-runtime without events is ended by the API server after
/// 290 seconds.
const WATCH_LIMIT: Duration = Duration::from_mins(5);
