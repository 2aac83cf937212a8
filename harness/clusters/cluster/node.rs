//! The container that is a cluster's node: its life, its images, programs on it.
//!
//! An image is imported once a node, recognized by its ID, even when its name stays the same. Questions to Pods go through
//! the container's own `kubectl`, so that the harness needs no WebSocket client, whose features would reach the
//! product's build.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testcontainers::ImageExt as _;
use testkit::until::until;
use tokio::process::Command;
use tokio::time::timeout;

use super::Cluster;
use super::container::{API_PORT, Container, of_cluster};
use super::options::{ClusterOptions, Provider};
use crate::docker::{self, Output};
use crate::images::Image;
use crate::run::Run;

pub(super) async fn start(
    run: &Run,
    provider: &Provider,
    options: &ClusterOptions,
) -> anyhow::Result<Container> {
    let (image, shape) = (provider.to_string(), options.shape());
    let slot = run.slot(&options.name, (&image, &shape), false).await?;
    let request = of_cluster(provider, options, &slot).with_network(run.network());
    Container::start(slot, request).await
}

impl Container {
    /// The kubeconfig with the port that Docker mapped.
    pub(super) async fn kubeconfig(&self) -> anyhow::Result<String> {
        let port = self.port(API_PORT).await?;
        let read = async || {
            let read = docker::must(&["exec", self.id(), "cat", KUBECONFIG]).await?;
            ensure!(read.stdout.contains(INSIDE), "no {INSIDE} in it");
            anyhow::Ok(read.stdout)
        };
        let inside = until("the kubeconfig is written", PATIENCE, read).await?;
        Ok(inside.replace(INSIDE, &format!("https://127.0.0.1:{port}")))
    }

    async fn load(&self, image: &Image) -> anyhow::Result<()> {
        let marker = format!("/{}.loaded", image.id.trim_start_matches("sha256:"));
        let found = docker::run(&["exec", self.id(), "test", "-e", &marker]).await?;
        if found.code == 0 {
            return Ok(());
        }
        let script = "\"$0\" save \"$1\" | \"$0\" exec --interactive \"$2\" ctr --namespace k8s.io images import -";
        let mut import = Command::new("sh");
        let arguments = [docker::program(), &image.reference, self.id()];
        import
            .args(["-c", script])
            .args(arguments)
            .kill_on_drop(true);
        let ended = timeout(IMPORT_TIME, import.output()).await;
        let what = || format!("import {}", image.reference);
        let ended = ended.with_context(what)??;
        let errors = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "{}: {errors}", what());
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

    /// What the node's own `kubectl` writes; another exit code than 0 is an error.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        let command = [&["exec", self.node.id()], KUBECTL.as_slice(), args].concat();
        Ok(docker::must(&command).await?.stdout)
    }

    /// The address of the node in the run's network, for other containers.
    pub async fn node_address(&self) -> anyhow::Result<String> {
        self.node.address().await
    }

    /// The kubeconfig by the node's address: for other containers, and for clients that shall not pass through Docker's proxy.
    pub async fn direct_kubeconfig(&self) -> anyhow::Result<Value> {
        let mut kubeconfig: Value = serde_saphyr::from_str(&self.kubeconfig)?;
        let entry = kubeconfig.pointer_mut("/clusters/0/cluster");
        let entry = entry.context("the kubeconfig names no cluster")?;
        entry["server"] = json!(format!("https://{}:6443", self.node_address().await?));
        entry["tls-server-name"] = json!(self.name);
        Ok(kubeconfig)
    }
}

pub(super) const KUBECONFIG: &str = "/etc/rancher/k3s/k3s.yaml";
const KUBECTL: [&str; 3] = ["kubectl", "--kubeconfig", KUBECONFIG];
const INSIDE: &str = "https://127.0.0.1:6443";
const PATIENCE: Duration = Duration::from_mins(1);
const IMPORT_TIME: Duration = Duration::from_mins(5);
