//! The container of a cluster, as testcontainers wants it, and what it shares with that of the registry.
//!
//! What differs between the two cluster images is the rights that they ask of Docker, and nothing else.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use testcontainers::bollard::models::PortBinding;
use testcontainers::core::logs::LogFrame;
use testcontainers::core::wait::LogWaitStrategy;
use testcontainers::core::{CgroupnsMode, ContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{
    ContainerAsync, ContainerRequest, GenericImage, ImageExt as _, ReuseDirective,
};
use testkit::until::until;

use super::options::{ClusterOptions, Provider};
use crate::docker;
use crate::progress::tail;
use crate::run::Slot;
use crate::workspace;

/// A container that is ready once its log says so. Its port is published on 127.0.0.1 alone: without this, Docker binds
/// every address. Its log goes to a file, so that it outlives the container.
pub(crate) fn request(
    image: &str,
    slot: &Slot,
    port: ContainerPort,
    ready: &str,
) -> ContainerRequest<GenericImage> {
    let (name, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
    let log = log_of(slot);
    let reuse = if slot.stays {
        ReuseDirective::Always
    } else {
        ReuseDirective::Never
    };
    GenericImage::new(name, tag)
        .with_exposed_port(port)
        .with_wait_for(WaitFor::log(LogWaitStrategy::stdout_or_stderr(ready)))
        .with_container_name(&slot.name)
        .with_labels(slot.labels.clone())
        .with_reuse(reuse)
        .with_host_config_modifier(move |host| {
            let binding = PortBinding {
                host_ip: Some("127.0.0.1".to_owned()),
                host_port: Some(String::new()),
            };
            host.publish_all_ports = Some(false);
            host.port_bindings = Some(HashMap::from([(port.to_string(), Some(vec![binding]))]));
        })
        .with_log_consumer(move |frame: &LogFrame| append(&log, frame))
}

/// A container that is ready, with what is needed to reach and to end it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(super) inner: ContainerAsync<GenericImage>,
    pub(super) slot: Slot,
}

impl Container {
    pub(crate) async fn start(
        slot: Slot,
        request: ContainerRequest<GenericImage>,
    ) -> anyhow::Result<Self> {
        let log = log_of(&slot);
        std::fs::create_dir_all(workspace::logs())?;
        // A file of that name is of an earlier container.
        let _ = std::fs::remove_file(&log);
        let started = Box::pin(request.start()).await;
        let inner = started.with_context(|| {
            let end = tail(&log, 25);
            format!("{} did not start; the end of its log:\n{end}", slot.name)
        })?;
        Ok(Self { inner, slot })
    }

    /// Removes it, unless it is kept or was there before the run.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if self.slot.stays {
            return Ok(());
        }
        let id = self.id().to_owned();
        match self.inner.rm().await {
            Ok(()) => Ok(()),
            // This one succeeds when the container is gone.
            Err(_) => docker::remove_container(&id).await,
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.inner.id()
    }

    /// The port on loopback that Docker mapped.
    pub(crate) async fn port(&self, port: ContainerPort) -> anyhow::Result<u16> {
        let mapped = || self.inner.get_host_port_ipv4(port);
        let what = format!("port {port} of {} is mapped", self.slot.name);
        Ok(until(&what, PATIENCE, mapped).await?)
    }
}

fn log_of(slot: &Slot) -> PathBuf {
    workspace::logs().join(format!("{}.log", slot.name))
}

/// The container of a cluster: `rancher/k3s` or the image `kube`.
pub(super) fn of_cluster(
    provider: &Provider,
    options: &ClusterOptions,
    slot: &Slot,
) -> ContainerRequest<GenericImage> {
    // Not "Node controller sync successful": k3s's flannel prints that, so it never comes without a node.
    let (image, ready) = (provider.to_string(), "k3s is up and running");
    let mut request = request(&image, slot, API_PORT, ready)
        .with_startup_timeout(START_TIME)
        .with_hostname(&options.name)
        .with_cmd(options.command(provider));
    for (name, value) in &options.environment {
        request = request.with_env_var(name, value);
    }
    for (path, text) in options.registry_files() {
        request = request.with_copy_to(path, text.into_bytes());
    }
    if matches!(provider, Provider::K3s(_)) {
        return request.with_privileged(true).with_userns_mode("host");
    }
    // Not `privileged`: some machines cannot grant it. SYS_ADMIN is for the mounts of kubelet and containerd, NET_ADMIN
    // for the networks of Pods, SYS_PTRACE for starting Pods that do not run as root.
    request
        .with_cap_add("SYS_ADMIN")
        .with_cap_add("NET_ADMIN")
        .with_cap_add("SYS_PTRACE")
        .with_security_opt("seccomp=unconfined")
        .with_security_opt("apparmor=unconfined")
        .with_cgroupns_mode(CgroupnsMode::Private)
}

fn append(log: &Path, frame: &LogFrame) {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log);
    if let Err(error) = file.and_then(|mut file| file.write_all(frame.bytes())) {
        tracing::warn!(log = %log.display(), %error, "a line of a container's log is lost");
    }
}

pub(super) const API_PORT: ContainerPort = ContainerPort::Tcp(6443);
const START_TIME: Duration = Duration::from_mins(3);
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rstest::rstest;

    use super::*;

    /// What both images must understand, and what the harness expects of both: the contract of k3s's image.
    #[rstest]
    #[case::k3s(Provider::K3s("rancher/k3s:v1".to_owned()), true, 0)]
    #[case::kube(Provider::Kube("kube:v1".to_owned()), false, 3)]
    fn both_providers_keep_the_contract_of_k3s(
        #[case] provider: Provider,
        #[case] privileged: bool,
        #[case] capabilities: usize,
    ) {
        let options = ClusterOptions::new("skr").with_registry(&["r.test:5000"], "PEM");
        let slot = Slot {
            name: "skr".to_owned(),
            labels: HashMap::new(),
            exists: false,
            stays: false,
        };
        let request = of_cluster(&provider, &options, &slot);
        let command: Vec<_> = request.cmd().collect();
        assert_eq!(command[..2], ["server", "--tls-san=skr"]);
        assert!(
            command[2..].iter().all(|flag| flag.starts_with("--")),
            "{command:?}"
        );
        assert_eq!(request.expose_ports(), [ContainerPort::Tcp(6443)]);
        let ready = format!("{:?}", request.ready_conditions());
        assert!(ready.contains("k3s is up and running"), "{ready}");
        let files = options.registry_files();
        assert_eq!(files[0].1, "PEM");
        assert_eq!(files[1].0, "/etc/rancher/k3s/registries.yaml");
        let parsed: serde_json::Value = serde_json::from_str(&files[1].1).unwrap();
        assert_eq!(
            parsed["configs"]["r.test:5000"]["tls"]["ca_file"],
            files[0].0
        );
        assert_eq!(request.copy_to_sources().count(), files.len());
        assert_eq!(request.privileged(), privileged);
        assert_eq!(request.cap_add().map_or(0, Vec::len), capabilities);
    }

    /// The image `kube` is held to the same contract: its lines and paths, which a user of k3s's image may wait for, too.
    #[test]
    fn kube_has_the_lines_and_paths_of_k3s() {
        let source = include_str!("../../images/kube/server.go");
        for expected in [
            r#"= "k3s is up and running""#,
            r#"= "Node controller sync successful""#,
            r#"= "/etc/rancher/k3s/k3s.yaml""#,
            r#"= "/etc/rancher/k3s/registries.yaml""#,
            "apiPort = 6443",
        ] {
            assert!(source.contains(expected), "{expected}");
        }
        assert_eq!(super::super::KUBECONFIG, "/etc/rancher/k3s/k3s.yaml");
    }
}
