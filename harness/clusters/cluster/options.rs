//! The options and the image of a cluster. Options become k3s's own flags, so that both images accept them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Environment variable with the Kubernetes version of the clusters, for example `1.36.3`. The image `kube` has the version of
/// `harness/images/kube/go.mod`; for another version its set-up fails.
pub const KUBERNETES_VERSION: &str = "HARNESS_KUBERNETES_VERSION";

/// Returns the k3s image of [`KUBERNETES_VERSION`], or of the default version.
pub(crate) fn k3s_image() -> String {
    let version = std::env::var(KUBERNETES_VERSION);
    format!(
        "rancher/k3s:v{}-k3s1",
        version.as_deref().unwrap_or("1.37.0")
    )
}

/// The container image that runs a cluster. The type can only name an image, and not an existing cluster, so tests can never
/// reach clusters that the harness did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Image reference of `rancher/k3s`; its container is privileged.
    K3s(String),
    /// Image reference of the image that this repository builds.
    Kube(String),
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::K3s(image) | Self::Kube(image) => f.write_str(image),
        }
    }
}

/// Value of `--cluster`: the image that runs the clusters of one command. It is not saved for other commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProviderChoice {
    /// `rancher/k3s`; its container is privileged.
    K3s,
    /// The image that the set-up builds from Go modules.
    Kube,
}

/// Support of a cluster for ClusterTrustBundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum TrustBundles {
    /// The API server serves them, and kubelet projects them into Pods.
    Projected,
    /// The API server serves them, but drops them from Pods.
    Dropped,
    /// The API server does not serve the API.
    NotServed,
}

/// The shape of a cluster.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterOptions {
    /// Name of the container, the kubeconfig file and the evidence.
    pub name: String,
    /// Environment variables of the container and of all its processes.
    pub environment: BTreeMap<String, String>,
    /// Whether the cluster has a node. Without one it consists of the API server and the controllers.
    pub node: bool,
    trust_bundles: TrustBundles,
    /// The registries that the node trusts: `host:port` of each, and the CA certificate of all in PEM.
    registry: Option<(Vec<String>, String)>,
}

impl ClusterOptions {
    /// Returns the options of a cluster with a node that serves and projects ClusterTrustBundles.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            environment: BTreeMap::new(),
            node: true,
            trust_bundles: TrustBundles::Projected,
            registry: None,
        }
    }

    /// Sets the support for ClusterTrustBundles.
    pub fn with_trust_bundles(mut self, trust_bundles: TrustBundles) -> Self {
        self.trust_bundles = trust_bundles;
        self
    }

    /// Removes the node. Pods are admitted and stay Pending.
    pub fn without_node(mut self) -> Self {
        self.node = false;
        self
    }

    /// Adds registries that the node trusts, with certificates of one CA.
    pub fn with_registry(self, hosts: &[&str], ca_pem: &str) -> Self {
        let hosts = hosts.iter().map(|it| (*it).to_owned()).collect();
        let registry = Some((hosts, ca_pem.to_owned()));
        Self { registry, ..self }
    }

    /// Adds an environment variable to the container.
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(super) fn command(&self, provider: &Provider) -> Vec<String> {
        let mut args = vec!["server".to_owned(), format!("--tls-san={}", self.name)];
        if matches!(provider, Provider::K3s(_)) {
            args.extend(K3S_ARGS.map(str::to_owned));
        }
        let on = self.trust_bundles != TrustBundles::NotServed;
        let projected = self.trust_bundles == TrustBundles::Projected;
        for part in ["kube-apiserver", "kube-controller-manager", "kubelet"] {
            args.push(format!(
                "--{part}-arg=feature-gates=ClusterTrustBundle={on},ClusterTrustBundleProjection={projected}"
            ));
        }
        args.push(format!(
            "--kube-apiserver-arg=disabled-metrics={}",
            DISABLED_METRICS.join(",")
        ));
        if on {
            let api = "certificates.k8s.io/v1beta1/clustertrustbundles";
            args.push(format!("--kube-apiserver-arg=runtime-config={api}=true"));
        }
        if !self.node {
            args.push("--disable-agent".to_owned());
        }
        args
    }

    /// Returns k3s's configuration file of registries, and the certificate that the file names.
    pub(super) fn registry_files(&self) -> Vec<(String, String)> {
        let registry = self.registry.iter().flat_map(|(hosts, ca_pem)| {
            let ca_file = "/etc/rancher/k3s/registry.pem";
            let tls = serde_json::json!({"tls": {"ca_file": ca_file}});
            let configs: BTreeMap<_, _> = hosts.iter().map(|host| (host, &tls)).collect();
            // JSON is valid YAML.
            let text = serde_json::json!({ "configs": configs }).to_string();
            let file = "/etc/rancher/k3s/registries.yaml";
            [
                (ca_file.to_owned(), ca_pem.clone()),
                (file.to_owned(), text),
            ]
        });
        registry.collect()
    }
}

/// Arguments that switch off features of k3s that no suite needs. The snapshotter is `native`, because overlayfs is not
/// possible on overlayfs. By default the kubelet rejects cgroup version 1.
const K3S_ARGS: [&str; 5] = [
    "--disable=traefik",
    "--disable=servicelb",
    "--disable=metrics-server",
    "--snapshotter=native",
    "--kubelet-arg=fail-cgroupv1=false",
];

/// Histograms of the API server that no test reads. They are four fifths of its metrics: several megabytes for each request.
const DISABLED_METRICS: [&str; 6] = [
    "apiserver_request_duration_seconds",
    "apiserver_request_sli_duration_seconds",
    "etcd_request_duration_seconds",
    "apiserver_request_body_size_bytes",
    "apiserver_watch_list_duration_seconds",
    "apiserver_response_sizes",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_not_a_provider() {
        use clap::ValueEnum as _;
        let saved = serde_json::json!({ "kubeconfig": "/root/.kube/config" });
        assert!(serde_json::from_value::<Provider>(saved).is_err());
        for choice in ProviderChoice::value_variants() {
            let read = ProviderChoice::from_str(&crate::name_of(choice), false);
            assert_eq!(read, Ok(*choice));
        }
        assert!(ProviderChoice::from_str("/root/.kube/config", false).is_err());
    }
}
