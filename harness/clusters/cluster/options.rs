//! What a cluster shall be like, and what runs it. Options become k3s's own flags, so that both images understand them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Environment variable with the Kubernetes version of the clusters, for example `1.36.3`. The image `kube` has the
/// version of `harness/images/kube/go.mod`; another value is an error of the set-up there.
pub const KUBERNETES_VERSION: &str = "HARNESS_KUBERNETES_VERSION";

/// The k3s image of [`KUBERNETES_VERSION`], or of the version that is tested by default.
pub(crate) fn k3s_image() -> String {
    let version = std::env::var(KUBERNETES_VERSION);
    format!(
        "rancher/k3s:v{}-k3s1",
        version.as_deref().unwrap_or("1.37.0")
    )
}

/// The container image that runs a cluster. It names an image and nothing else: a cluster that the harness did not
/// start cannot be expressed, so no test can reach one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// `rancher/k3s`, of this reference; its container is privileged.
    K3s(String),
    /// Our own image, of this reference.
    Kube(String),
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::K3s(image) | Self::Kube(image) => f.write_str(image),
        }
    }
}

/// Value of `--cluster`: which image runs the clusters of one command. It is valid for that command alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProviderChoice {
    /// `rancher/k3s`; its container is privileged.
    K3s,
    /// The image that the set-up builds from Go modules.
    Kube,
}

/// What a cluster knows of ClusterTrustBundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum TrustBundles {
    /// It serves them and projects them into Pods.
    Projected,
    /// It serves them, and the API server drops them from Pods.
    Dropped,
    /// It does not have the API yet.
    NotServed,
}

/// The shape of a cluster.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterOptions {
    /// Its name: of the container, the kubeconfig file, the evidence.
    pub name: String,
    /// Environment of the container, and so of all that runs in it.
    pub environment: BTreeMap<String, String>,
    /// Whether it has a node, or is an API server with controllers only.
    pub node: bool,
    trust_bundles: TrustBundles,
    /// The registries that the node trusts: `host:port` of each, and the certificate of their authority, PEM.
    registry: Option<(Vec<String>, String)>,
}

impl ClusterOptions {
    /// A cluster with a node, ClusterTrustBundles served and projected.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            environment: BTreeMap::new(),
            node: true,
            trust_bundles: TrustBundles::Projected,
            registry: None,
        }
    }

    /// With another knowledge of trust bundles.
    pub fn with_trust_bundles(mut self, trust_bundles: TrustBundles) -> Self {
        self.trust_bundles = trust_bundles;
        self
    }

    /// Without a node: Pods are admitted and stay Pending.
    pub fn without_node(mut self) -> Self {
        self.node = false;
        self
    }

    /// With registries of one authority that the node trusts.
    pub fn with_registry(self, hosts: &[&str], ca_pem: &str) -> Self {
        let hosts = hosts.iter().map(|it| (*it).to_owned()).collect();
        let registry = Some((hosts, ca_pem.to_owned()));
        Self { registry, ..self }
    }

    /// With a variable in the container's environment.
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

    /// The file in which k3s reads of registries, and the certificate that it names.
    pub(super) fn registry_files(&self) -> Vec<(String, String)> {
        let registry = self.registry.iter().flat_map(|(hosts, ca_pem)| {
            let ca_file = "/etc/rancher/k3s/registry.pem";
            let tls = serde_json::json!({"tls": {"ca_file": ca_file}});
            let configs: BTreeMap<_, _> = hosts.iter().map(|host| (host, &tls)).collect();
            // JSON is YAML.
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

/// What k3s brings along and no suite needs; `native` because overlayfs cannot lie on overlayfs; the kubelet
/// rejects version 1 of control groups unless it is told not to.
const K3S_ARGS: [&str; 5] = [
    "--disable=traefik",
    "--disable=servicelb",
    "--disable=metrics-server",
    "--snapshotter=native",
    "--kubelet-arg=fail-cgroupv1=false",
];

/// Histograms of the API server that no test reads. They are four fifths of its metrics, megabytes for each request.
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
