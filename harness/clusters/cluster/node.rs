//! The container that is a cluster's node: its life, its images, programs on it.
//!
//! Invariant: an image is imported once a node, recognised by its id, even when its name stays the same. Questions to
//! Pods go through the container's own `kubectl`, so that the harness needs no WebSocket client, whose features
//! would leak into the product's build.

use serde_json::{Value, json};
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, ImageExt as _, ReuseDirective};

use super::container::{API_PORT, K3sCompatible};
use super::options::{ClusterOptions, Provider};
use super::{Cluster, ClusterError};
use crate::docker::{Docker, Output};
use crate::images::{ImageTar, tar};
use crate::progress::tail;
use crate::run::Run;
use crate::workspace;
use testkit::until::until;

/// The container and what is needed to reach into it.
#[derive(Debug)]
pub(super) struct Node {
    container: ContainerAsync<K3sCompatible>,
    docker: Docker,
    network: String,
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
    ) -> Result<Self, ClusterError> {
        let image = provider.to_string();
        let image_id = run
            .docker()
            .image_id(&image)
            .await
            .map_err(ClusterError::Docker)?;
        let digest = options.digest(&image_id.unwrap_or_default());
        let kept = run
            .kept(&options.name, &digest, false)
            .await
            .map_err(ClusterError::Docker)?;
        let stays = run.keeps() || kept.is_some();
        let name = kept.as_ref().map_or_else(
            || run.container_name(&options.name),
            |kept| kept.name.clone(),
        );
        let labels = kept.map_or_else(|| run.labels(&digest), |kept| crate::run::kept_label(&kept));
        let log = workspace::logs().join(format!("{name}.log"));
        forget(&log)?;
        let container = K3sCompatible::new(&image, provider, options)
            .request(provider, log.clone())
            .with_container_name(&name)
            .with_hostname(&options.name)
            .with_network(run.network())
            .with_labels(labels)
            .with_reuse(if stays {
                ReuseDirective::Always
            } else {
                ReuseDirective::Never
            })
            .start()
            .await
            .map_err(|source| ClusterError::Start {
                container: name.clone(),
                tail: tail(&log, 25),
                source: Box::new(source),
            })?;
        Ok(Self {
            container,
            docker: run.docker().clone(),
            network: run.network().to_owned(),
            name,
            stays,
        })
    }

    pub(super) fn kept_container(&self) -> Option<&str> {
        self.stays.then_some(self.name.as_str())
    }

    pub(super) async fn stop(self) -> Result<(), ClusterError> {
        if self.stays {
            return Ok(());
        }
        let disposed = self.docker.dispose(self.container).await;
        disposed.map_err(ClusterError::Docker)
    }

    /// The kubeconfig with the port that Docker mapped.
    pub(super) async fn kubeconfig(&self) -> Result<String, ClusterError> {
        let port = until("the API's port is mapped", PATIENCE, || {
            self.container.get_host_port_ipv4(API_PORT)
        })
        .await
        .map_err(ClusterError::NotReady)?;
        let inside = until("the kubeconfig is written", PATIENCE, || async {
            let bytes = self.container.copy_file_from(KUBECONFIG, Vec::new()).await;
            let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            text.map_err(|error| error.to_string()).and_then(|text| {
                if text.contains(INSIDE) {
                    Ok(text)
                } else {
                    Err(format!("no {INSIDE} in it"))
                }
            })
        })
        .await
        .map_err(ClusterError::NotReady)?;
        Ok(inside.replace(INSIDE, &format!("https://127.0.0.1:{port}")))
    }

    async fn exec(&self, argv: &[&str]) -> Result<Output, ClusterError> {
        self.docker
            .exec(self.container.id(), argv)
            .await
            .map_err(ClusterError::Docker)
    }

    async fn must(&self, argv: &[&str]) -> Result<Output, ClusterError> {
        let output = self.exec(argv).await?;
        if output.code == 0 {
            return Ok(output);
        }
        Err(ClusterError::Program {
            program: argv.join(" "),
            code: output.code,
            stderr: output.stderr,
        })
    }

    pub(super) async fn container_log(&self) -> Result<String, ClusterError> {
        self.docker
            .logs(self.container.id(), 5_000)
            .await
            .map_err(ClusterError::Docker)
    }

    pub(super) async fn folder(&self, path: &str) -> Result<Vec<u8>, ClusterError> {
        self.docker
            .download(self.container.id(), path)
            .await
            .map_err(ClusterError::Docker)
    }

    async fn load(&self, image: &ImageTar) -> Result<(), ClusterError> {
        let id = image.id.trim_start_matches("sha256:");
        let marker = format!("{IMAGES}/{id}.loaded");
        if self
            .docker
            .download(self.container.id(), &format!("/{marker}"))
            .await
            .is_ok()
        {
            return Ok(());
        }
        let bytes = std::fs::read(&image.path).map_err(ClusterError::file(&image.path))?;
        let archive = format!("{IMAGES}/{id}.tar");
        self.upload(&archive, &bytes).await?;
        self.must(&[
            "ctr",
            "--namespace",
            "k8s.io",
            "images",
            "import",
            &format!("/{archive}"),
        ])
        .await?;
        self.must(&["rm", "-f", &format!("/{archive}")]).await?;
        self.upload(&marker, image.reference.as_bytes()).await
    }

    async fn upload(&self, path: &str, bytes: &[u8]) -> Result<(), ClusterError> {
        let archive = tar([(path, bytes, 0o644)]).map_err(ClusterError::file(path.as_ref()))?;
        self.docker
            .upload(self.container.id(), archive)
            .await
            .map_err(ClusterError::Docker)
    }
}

impl Cluster {
    /// Puts an image into the node, unless it is there.
    ///
    /// # Errors
    /// When the node's container runtime refuses.
    pub async fn load_image(&self, image: &ImageTar) -> Result<(), ClusterError> {
        self.node.load(image).await
    }

    /// Runs a program on the node.
    ///
    /// # Errors
    /// When the program cannot be started; its own failure is in [`Output::code`].
    pub async fn exec_on_node(&self, argv: &[&str]) -> Result<Output, ClusterError> {
        self.node.exec(argv).await
    }

    /// Runs the node's own `kubectl` with all rights.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in [`Output::code`].
    pub async fn kubectl(&self, args: &[&str]) -> Result<Output, ClusterError> {
        self.node
            .exec(&[&["kubectl", "--kubeconfig", KUBECONFIG], args].concat())
            .await
    }

    /// Runs a program in a container of a Pod.
    ///
    /// # Errors
    /// When `kubectl` cannot be started; any other failure is in [`Output::code`].
    pub async fn exec_in_pod(
        &self,
        target: PodTarget<'_>,
        argv: &[&str],
    ) -> Result<Output, ClusterError> {
        let PodTarget {
            namespace,
            pod,
            container,
        } = target;
        let mut command = vec!["exec", "--namespace", namespace, pod];
        command.extend(
            container
                .iter()
                .flat_map(|container| ["--container", container]),
        );
        command.push("--");
        command.extend(argv);
        self.kubectl(&command).await
    }

    /// The address of the node in the run's network: what other containers call it.
    ///
    /// # Errors
    /// When the container has no address in the network of the run.
    pub async fn node_address(&self) -> Result<String, ClusterError> {
        let node = &self.node;
        let address = node
            .docker
            .address(node.container.id(), &node.network)
            .await
            .map_err(ClusterError::Docker)?;
        address.ok_or_else(|| ClusterError::NoAddress {
            cluster: self.name.clone(),
            network: node.network.clone(),
        })
    }

    /// The kubeconfig by the node's address: for other containers, and for who is not to pass through Docker's proxy.
    ///
    /// # Errors
    /// When the container has no address in the network of the run.
    pub async fn direct_kubeconfig(&self) -> Result<Value, ClusterError> {
        let odd = |reason: String| ClusterError::Manifest { reason };
        let mut kubeconfig: Value =
            serde_saphyr::from_str(self.kubeconfig()).map_err(|error| odd(error.to_string()))?;
        let entry = kubeconfig
            .pointer_mut("/clusters/0/cluster")
            .ok_or_else(|| odd("the kubeconfig names no cluster".to_owned()))?;
        entry["server"] = json!(format!("https://{}:6443", self.node_address().await?));
        entry["tls-server-name"] = json!(self.name);
        Ok(kubeconfig)
    }
}

fn forget(log: &std::path::Path) -> Result<(), ClusterError> {
    let folder = workspace::logs();
    std::fs::create_dir_all(&folder).map_err(ClusterError::file(&folder))?;
    match std::fs::remove_file(log) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ClusterError::file(log)(error))
        }
        _ => Ok(()),
    }
}

pub(super) const KUBECONFIG: &str = "/etc/rancher/k3s/k3s.yaml";
const INSIDE: &str = "https://127.0.0.1:6443";
/// A folder of the container's own file system: Docker does not see what is mounted inside.
const IMAGES: &str = "kyma-images";
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);
