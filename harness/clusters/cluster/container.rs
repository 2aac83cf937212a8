//! The image of a k3s-compatible container, as testcontainers wants it.
//!
//! Invariant: it is ready when it says so on either stream, whichever image it is. What differs between the two
//! images is the rights that they ask of Docker, and nothing else.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testcontainers::bollard::models::{HostConfig, PortBinding};
use testcontainers::core::logs::LogFrame;
use testcontainers::core::wait::LogWaitStrategy;
use testcontainers::core::{CgroupnsMode, ContainerPort, WaitFor};
use testcontainers::{ContainerRequest, CopyToContainer, Image, ImageExt as _};

use super::options::{ClusterOptions, Provider};

/// `rancher/k3s` or our own image.
#[derive(Debug, Clone)]
pub(super) struct K3sCompatible {
    name: String,
    tag: String,
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    files: Vec<CopyToContainer>,
    ports: [ContainerPort; 1],
}

impl K3sCompatible {
    pub(super) fn new(image: &str, provider: &Provider, options: &ClusterOptions) -> Self {
        let (name, tag) = split_reference(image);
        let files = options.registry_files().into_iter();
        Self {
            name: name.to_owned(),
            tag: tag.to_owned(),
            command: options.command(provider),
            environment: options.environment.clone(),
            files: files
                .map(|(path, text)| CopyToContainer::new(text.into_bytes(), path))
                .collect(),
            ports: [API_PORT],
        }
    }

    /// With the rights that the provider's image needs, its API on loopback only, its log in a file.
    pub(super) fn request(self, provider: &Provider, log: PathBuf) -> ContainerRequest<Self> {
        let request = self
            .with_startup_timeout(START_TIME)
            .with_host_config_modifier(publish_on_loopback)
            .with_log_consumer(move |frame: &LogFrame| append(&log, frame));
        if matches!(provider, Provider::K3s(_)) {
            return request.with_privileged(true).with_userns_mode("host");
        }
        // Not `privileged`: some machines cannot grant it. SYS_ADMIN is for the mounts of kubelet and containerd,
        // NET_ADMIN for the networks of Pods, SYS_PTRACE for starting Pods that do not run as root.
        request
            .with_cap_add("SYS_ADMIN")
            .with_cap_add("NET_ADMIN")
            .with_cap_add("SYS_PTRACE")
            .with_security_opt("seccomp=unconfined")
            .with_security_opt("apparmor=unconfined")
            .with_cgroupns_mode(CgroupnsMode::Private)
    }
}

impl Image for K3sCompatible {
    fn name(&self) -> &str {
        &self.name
    }

    fn tag(&self) -> &str {
        &self.tag
    }

    /// Not "Node controller sync successful": k3s's flannel prints that, so it never comes without a node.
    fn ready_conditions(&self) -> Vec<WaitFor> {
        vec![WaitFor::log(LogWaitStrategy::stdout_or_stderr(
            "k3s is up and running",
        ))]
    }

    fn cmd(&self) -> impl IntoIterator<Item = impl Into<Cow<'_, str>>> {
        self.command.iter().map(String::as_str)
    }

    fn env_vars(
        &self,
    ) -> impl IntoIterator<Item = (impl Into<Cow<'_, str>>, impl Into<Cow<'_, str>>)> {
        &self.environment
    }

    fn copy_to_sources(&self) -> impl IntoIterator<Item = &CopyToContainer> {
        &self.files
    }

    fn expose_ports(&self) -> &[ContainerPort] {
        &self.ports
    }
}

/// Publishes the API, and nothing else, on a free port of 127.0.0.1: without this, Docker binds every address.
fn publish_on_loopback(host: &mut HostConfig) {
    publish(host, API_PORT);
}

/// The same for any port.
pub(crate) fn publish(host: &mut HostConfig, port: ContainerPort) {
    host.publish_all_ports = Some(false);
    host.port_bindings = Some(HashMap::from([(
        port.to_string(),
        Some(vec![PortBinding {
            host_ip: Some("127.0.0.1".to_owned()),
            host_port: Some(String::new()),
        }]),
    )]));
}

/// Writes a container's log as it comes, so that it outlives the container.
pub(crate) fn append(log: &Path, frame: &LogFrame) {
    let appended = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .and_then(|mut file| file.write_all(frame.bytes()));
    if let Err(error) = appended {
        tracing::warn!(log = %log.display(), %error, "a line of a container's log is lost");
    }
}

/// Name and tag; a port in the name is no tag.
pub(crate) fn split_reference(reference: &str) -> (&str, &str) {
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

pub(super) const API_PORT: ContainerPort = ContainerPort::Tcp(6443);
const START_TIME: Duration = Duration::from_mins(3);

#[cfg(test)]
mod tests {
    use super::*;

    /// What both images must understand, and what the harness expects of both: the contract of k3s's image.
    #[test]
    fn both_providers_keep_the_contract_of_k3s() {
        let images = [
            Provider::K3s("rancher/k3s:v1".to_owned()),
            Provider::Kube("kube:v1".to_owned()),
        ];
        for provider in images {
            let options = ClusterOptions::new("skr").with_registry("r.test:5000", "PEM");
            let image = K3sCompatible::new(&provider.to_string(), &provider, &options);
            let command: Vec<String> = image
                .cmd()
                .into_iter()
                .map(|it| it.into().into_owned())
                .collect();
            assert_eq!(command[..2], ["server", "--tls-san=skr"], "{provider}");
            assert!(
                command[2..].iter().all(|flag| flag.starts_with("--")),
                "{command:?}"
            );
            assert_eq!(image.expose_ports(), [ContainerPort::Tcp(6443)]);
            let ready = format!("{:?}", image.ready_conditions());
            assert!(ready.contains("k3s is up and running"), "{ready}");
            let files: Vec<_> = image
                .copy_to_sources()
                .into_iter()
                .map(|it| format!("{it:?}"))
                .collect();
            assert!(
                files
                    .iter()
                    .any(|it| it.contains("/etc/rancher/k3s/registries.yaml")),
                "{files:?}"
            );

            let request = image.request(&provider, "log".into());
            let is_k3s = matches!(provider, Provider::K3s(_));
            assert_eq!(request.privileged(), is_k3s, "{provider}");
            let capabilities = request.cap_add().map_or(0, Vec::len);
            assert_eq!(capabilities, if is_k3s { 0 } else { 3 }, "{provider}");
        }
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
        assert_eq!(super::super::node::KUBECONFIG, "/etc/rancher/k3s/k3s.yaml");
    }

    #[test]
    fn a_port_is_no_tag() {
        assert_eq!(split_reference("rancher/k3s:v1"), ("rancher/k3s", "v1"));
        assert_eq!(
            split_reference("localhost:5000/kube"),
            ("localhost:5000/kube", "latest")
        );
        assert_eq!(
            split_reference("localhost:5000/kube:2"),
            ("localhost:5000/kube", "2")
        );
    }
}
