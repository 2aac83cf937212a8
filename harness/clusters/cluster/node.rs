//! The container that is a cluster's node: its life, its images, programs on it.
//!
//! An image is imported once a node, recognized by its ID, even when its name stays the same. Questions to Pods go through
//! the container's own `kubectl`, so that the harness needs no WebSocket client, whose features would reach the
//! product's build.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, GenericImage, ImageExt as _};
use testkit::until::until;
use tokio::process::Command;
use tokio::time::timeout;

use super::Cluster;
use super::container::{API_PORT, of_cluster};
use super::options::{ClusterOptions, Provider};
use crate::docker::{self, Docker, Output};
use crate::images::Image;
use crate::progress::tail;
use crate::run::Run;
use crate::workspace;

/// The container and what is needed to reach into it.
#[derive(Debug)]
pub(super) struct Node {
    container: ContainerAsync<GenericImage>,
    docker: Docker,
    /// Docker's name of the container.
    name: String,
    stays: bool,
}

/// A container of a Pod.
#[derive(Debug, Clone, Copy)]
pub struct PodTarget<'a> {
    /// The Pod's namespace.
    pub namespace: &'a str,
    /// The Pod's name.
    pub pod: &'a str,
    /// The container; the Pod's first one if absent.
    pub container: Option<&'a str>,
}

impl Node {
    pub(super) async fn start(
        run: &Run,
        provider: &Provider,
        options: &ClusterOptions,
    ) -> anyhow::Result<Self> {
        let image = provider.to_string();
        let slot = run
            .slot(&options.name, (&image, &options.shape()), false)
            .await?;
        let log = workspace::logs().join(format!("{}.log", slot.name));
        std::fs::create_dir_all(workspace::logs())?;
        // A file of that name is of an earlier container.
        let _ = std::fs::remove_file(&log);
        let request = of_cluster(provider, options, &slot).with_network(run.network());
        let started = Box::pin(request.start()).await;
        Ok(Self {
            container: started.with_context(|| {
                let (name, tail) = (&slot.name, tail(&log, 25));
                format!("{name} did not start; the end of its log:\n{tail}")
            })?,
            docker: run.docker().clone(),
            name: slot.name,
            stays: slot.stays,
        })
    }

    pub(super) fn kept_container(&self) -> Option<&str> {
        self.stays.then_some(self.name.as_str())
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        if self.stays {
            return Ok(());
        }
        self.docker.dispose(self.container).await
    }

    /// The kubeconfig with the port that Docker mapped.
    pub(super) async fn kubeconfig(&self) -> anyhow::Result<String> {
        let mapped = || self.container.get_host_port_ipv4(API_PORT);
        let port = until("the API's port is mapped", PATIENCE, mapped).await?;
        let read = async || {
            let text = docker::must(&["exec", self.id(), "cat", KUBECONFIG])
                .await?
                .stdout;
            ensure!(text.contains(INSIDE), "no {INSIDE} in it");
            anyhow::Ok(text)
        };
        let inside = until("the kubeconfig is written", PATIENCE, read).await?;
        Ok(inside.replace(INSIDE, &format!("https://127.0.0.1:{port}")))
    }

    pub(super) fn id(&self) -> &str {
        self.container.id()
    }

    async fn load(&self, image: &Image) -> anyhow::Result<()> {
        let marker = format!("/{}.loaded", image.id.trim_start_matches("sha256:"));
        let found = docker::run(&["exec", self.id(), "test", "-e", &marker]).await?;
        if found.code == 0 {
            return Ok(());
        }
        let script = "\"$0\" save \"$1\" | \"$0\" exec --interactive \"$2\" ctr --namespace k8s.io images import -";
        let mut import = Command::new("sh");
        import.args(["-c", script]).arg(docker::program());
        import
            .args([&image.reference, self.id()])
            .kill_on_drop(true);
        let Ok(ended) = timeout(IMPORT_TIME, import.output()).await else {
            bail!("import {}: no end within {IMPORT_TIME:?}", image.reference);
        };
        let ended = ended?;
        ensure!(
            ended.status.success(),
            "import {}: {}",
            image.reference,
            String::from_utf8_lossy(&ended.stderr)
        );
        docker::must(&["exec", self.id(), "touch", &marker]).await?;
        Ok(())
    }
}

impl Cluster {
    /// Puts an image into the node, unless it is there.
    pub async fn load_image(&self, image: &Image) -> anyhow::Result<()> {
        self.node.load(image).await
    }

    /// Runs a program on the node.
    pub async fn exec_on_node(&self, argv: &[&str]) -> anyhow::Result<Output> {
        docker::run(&[&["exec", self.node.id()], argv].concat()).await
    }

    /// Runs the node's own `kubectl` with all rights.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<Output> {
        let command = ["kubectl", "--kubeconfig", KUBECONFIG];
        self.exec_on_node(&[&command, args].concat()).await
    }

    /// Runs a program in a container of a Pod.
    pub async fn exec_in_pod(
        &self,
        target: PodTarget<'_>,
        argv: &[&str],
    ) -> anyhow::Result<Output> {
        let mut command = vec!["exec", "--namespace", target.namespace, target.pod];
        if let Some(container) = target.container {
            command.extend(["--container", container]);
        }
        command.push("--");
        command.extend(argv);
        self.kubectl(&command).await
    }

    /// The address of the node in the run's network, for other containers.
    pub async fn node_address(&self) -> anyhow::Result<String> {
        let address = self.node.container.get_bridge_ip_address().await;
        let address = address.with_context(|| format!("address of cluster {}", self.name))?;
        Ok(address.to_string())
    }

    /// The kubeconfig by the node's address: for other containers, and for clients that shall not pass through Docker's proxy.
    pub async fn direct_kubeconfig(&self) -> anyhow::Result<Value> {
        let mut kubeconfig: Value = serde_saphyr::from_str(self.kubeconfig())?;
        let entry = kubeconfig.pointer_mut("/clusters/0/cluster");
        let entry = entry.context("the kubeconfig names no cluster")?;
        entry["server"] = json!(format!("https://{}:6443", self.node_address().await?));
        entry["tls-server-name"] = json!(self.name);
        Ok(kubeconfig)
    }
}

pub(super) const KUBECONFIG: &str = "/etc/rancher/k3s/k3s.yaml";
const INSIDE: &str = "https://127.0.0.1:6443";
const PATIENCE: Duration = Duration::from_mins(1);
const IMPORT_TIME: Duration = Duration::from_mins(5);
