//! The container of a cluster, as a request of testcontainers, and functions that it shares with the registry's container.
//!
//! The containers of the two cluster images differ in their permissions and in the arguments that only k3s has.

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

/// Returns the request for a container that is ready once its log contains `ready`. Its port is published on 127.0.0.1 only; by
/// default Docker would bind every address. The log is copied to a file, so that it outlives the container.
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

/// A container that is ready, and its slot.
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
        // An existing file with this name is from an earlier container.
        let _ = std::fs::remove_file(&log);
        let started = Box::pin(request.start()).await;
        let inner = started.with_context(|| {
            let end = tail(&log, 25);
            format!("{} did not start; the end of its log:\n{end}", slot.name)
        })?;
        Ok(Self { inner, slot })
    }

    /// Removes the container, unless it is kept or existed before the run.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if self.slot.stays {
            return Ok(());
        }
        let id = self.id().to_owned();
        match self.inner.rm().await {
            Ok(()) => Ok(()),
            // This command also succeeds if the container does not exist.
            Err(_) => docker::remove_container(&id).await,
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.inner.id()
    }

    /// Returns the port on loopback to which Docker mapped `port`.
    pub(crate) async fn port(&self, port: ContainerPort) -> anyhow::Result<u16> {
        let mapped = || self.inner.get_host_port_ipv4(port);
        let what = format!("port {port} of {} is mapped", self.slot.name);
        Ok(until(&what, PATIENCE, mapped).await?)
    }
}

fn log_of(slot: &Slot) -> PathBuf {
    workspace::logs().join(format!("{}.log", slot.name))
}

/// Returns the request for the container of a cluster: `rancher/k3s` or the image `kube`.
pub(super) fn of_cluster(
    provider: &Provider,
    options: &ClusterOptions,
    slot: &Slot,
) -> ContainerRequest<GenericImage> {
    let mut request = request(&provider.to_string(), slot, API_PORT, READY)
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
    // The container is not `privileged`, because some machines do not permit it. SYS_ADMIN is for the mounts of kubelet and
    // containerd, NET_ADMIN for the networks of Pods, and SYS_PTRACE for starting Pods that do not run as root.
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

/// Line of the log of a ready API server. It is not "Node controller sync successful": k3s's flannel prints that line, so a
/// cluster without a node never does.
const READY: &str = "k3s is up and running";
/// Kubeconfig of an administrator, in the container.
pub(super) const KUBECONFIG: &str = "/etc/rancher/k3s/k3s.yaml";
pub(super) const API_PORT: ContainerPort = ContainerPort::Tcp(6443);
const START_TIME: Duration = Duration::from_mins(3);
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rstest::rstest;

    use super::*;

    /// Both images accept the same arguments and have the ports, log line and files of k3s's image.
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
        assert_eq!(KUBECONFIG, "/etc/rancher/k3s/k3s.yaml");
        let server = workspace::root().join("harness/images/kube/server.go");
        let server = std::fs::read_to_string(server).unwrap();
        for (constant, value) in [("apiIsUp", READY), ("adminFile", KUBECONFIG)] {
            let mut lines = server.lines().filter_map(|it| it.split_once(" = "));
            let defined = lines.find(|it| it.0.trim() == constant).unwrap();
            assert_eq!(defined.1, format!("{value:?}"), "{constant}");
        }
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
}
