//! The three sources on KCP and their content.
//!
//! Every change writes content that did not exist before and that decisions of the webhook show: the pull Secret has
//! credentials for another host, the configuration rewrites another host, the bundle has another certificate.

use std::str::FromStr;

use anyhow::Context as _;
use api::names::{
    CONFIG_KEY, CONFIG_MAP, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET, SKR_NAMESPACE,
};
use api::runtimes::KCP_NAMESPACE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cucumber::Parameter;
use serde_json::{Value, json};

use super::control_plane::named_config_map;
use crate::admission::cluster::{SIGNER, TRUST_BUNDLE};
use crate::admission::webhook::{VOLUME, usual_configuration};
use crate::scenario::ObjectRef;
use testkit::pki::Authority;

/// A source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Parameter)]
#[param(name = "source", regex = "pull Secret|ClusterTrustBundle|ConfigMap")]
pub(crate) enum Source {
    /// The pull Secret.
    PullSecret,
    /// The ClusterTrustBundle.
    TrustBundle,
    /// The ConfigMap with the configuration document.
    Configuration,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "pull Secret" => Self::PullSecret,
            "ClusterTrustBundle" => Self::TrustBundle,
            "ConfigMap" => Self::Configuration,
            other => return Err(other.to_owned()),
        })
    }
}

impl Source {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::PullSecret, Self::TrustBundle, Self::Configuration];

    fn path(self, namespace: &str) -> String {
        match self {
            Self::PullSecret => format!("/api/v1/namespaces/{namespace}/secrets/{PULL_SECRET}"),
            Self::TrustBundle => {
                format!("/apis/certificates.k8s.io/v1beta1/clustertrustbundles/{TRUST_BUNDLE}")
            }
            Self::Configuration => named_config_map(namespace, CONFIG_MAP),
        }
    }

    /// How steps name its copy on a runtime.
    pub(crate) fn object(self) -> ObjectRef {
        let (kind, namespace, name) = match self {
            Self::PullSecret => ("Secret", Some(SKR_NAMESPACE), PULL_SECRET),
            Self::TrustBundle => ("ClusterTrustBundle", None, TRUST_BUNDLE),
            Self::Configuration => ("ConfigMap", Some(SKR_NAMESPACE), CONFIG_MAP),
        };
        ObjectRef::new(kind, namespace, name)
    }

    /// Its path on KCP.
    pub(crate) fn on_kcp(self) -> String {
        self.path(KCP_NAMESPACE)
    }

    /// Its path on a runtime.
    pub(crate) fn on_skr(self) -> String {
        self.path(SKR_NAMESPACE)
    }

    /// The key of its hash in the state ConfigMap.
    pub(crate) fn state_key(self) -> &'static str {
        match self {
            Self::PullSecret => "lastSeen.pullSecret",
            Self::TrustBundle => "lastSeen.trustBundle",
            Self::Configuration => "lastSeen.configuration",
        }
    }

    /// The fields that are synchronized.
    pub(crate) fn content(self, object: &Value) -> Value {
        match self {
            Self::PullSecret => json!([object["type"], object["data"]]),
            Self::TrustBundle => object["spec"].clone(),
            Self::Configuration => object["data"].clone(),
        }
    }

    /// The object on KCP, with content that did not exist before.
    pub(crate) fn fresh(self) -> anyhow::Result<Value> {
        self.marked(&random())
    }

    /// The same with a mark. Sources of one mark belong together: the pull Secret has credentials for the host that replaces
    /// [`LIVE`] in the configuration.
    pub(crate) fn marked(self, mark: &str) -> anyhow::Result<Value> {
        Ok(match self {
            Self::PullSecret => pull_secret(&docker_config(mark)),
            Self::TrustBundle => trust_bundle(&certificates(mark)?),
            Self::Configuration => {
                let mut document = usual_configuration()?;
                document["overrides"][format!("mark-{mark}.test")] =
                    json!(format!("replaced-{mark}.test"));
                document["overrides"][LIVE] = json!(further(mark));
                config_map(&document.to_string())
            }
        })
    }

    /// An image, and a text that the patch for a Pod with this image contains once the webhook uses the content.
    pub(crate) fn probe(self, object: &Value) -> anyhow::Result<(String, String)> {
        match self {
            Self::PullSecret => {
                let hosts = hosts(object)?;
                let newest = |(_, entry): &(&String, &Value)| entry["password"] != KEPT;
                let mut known = hosts.iter().filter(|(host, _)| host.starts_with(FURTHER));
                let (host, _) = known.find(newest).context("a host with new credentials")?;
                Ok((format!("{host}/x"), PULL_SECRET.to_owned()))
            }
            Self::TrustBundle => Ok(("any/x".to_owned(), VOLUME.to_owned())),
            Self::Configuration => {
                let text = object["data"][CONFIG_KEY].as_str().context("a document")?;
                let document: Value = serde_json::from_str(text)?;
                let overrides = document["overrides"].as_object().context("overrides")?;
                let mark = overrides.iter().find(|(key, _)| key.starts_with("mark-"));
                let (mark, replacement) = mark.context("a host with a mark")?;
                let replacement = replacement.as_str().unwrap_or_default();
                Ok((format!("{mark}/x"), replacement.to_owned()))
            }
        }
    }

    /// The feature that uses it.
    pub(crate) fn feature(self) -> api::Feature {
        match self {
            Self::PullSecret => api::Feature::PullSecret,
            Self::TrustBundle => api::Feature::TrustBundle,
            Self::Configuration => api::Feature::RegistryRewrite,
        }
    }
}

/// A pull Secret that has the credentials of an earlier one too, as in a rotation.
pub(crate) fn with_hosts_of(object: &Value, earlier: &Value) -> anyhow::Result<Value> {
    let mut auths = hosts(object)?;
    for host in hosts(earlier)?.keys() {
        let kept = json!({ "username": "anyone", "password": KEPT });
        auths.entry(host.clone()).or_insert(kept);
    }
    Ok(pull_secret(&json!({ "auths": auths }).to_string()))
}

fn hosts(object: &Value) -> anyhow::Result<serde_json::Map<String, Value>> {
    let text = object["data"][DOCKER_CONFIG_KEY].as_str();
    let config: Value = serde_json::from_slice(&BASE64.decode(text.unwrap_or_default())?)?;
    config["auths"].as_object().cloned().context("auths")
}

fn further(mark: &str) -> String {
    format!("{FURTHER}{mark}.test")
}

fn docker_config(mark: &str) -> String {
    let entry = json!({ "username": "anyone", "password": mark });
    json!({ "auths": { (further(mark)): entry, "private.me": entry } }).to_string()
}

/// With `data`, not `stringData`: what is stored can then be compared with what was sent.
fn pull_secret(docker_config: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": DOCKER_CONFIG_TYPE,
        "metadata": { "name": PULL_SECRET, "namespace": KCP_NAMESPACE },
        "data": { (DOCKER_CONFIG_KEY): BASE64.encode(docker_config) },
    })
}

fn config_map(document: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": CONFIG_MAP, "namespace": KCP_NAMESPACE },
        "data": { (CONFIG_KEY): document },
    })
}

fn trust_bundle(certificates: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": TRUST_BUNDLE },
        "spec": { "signerName": SIGNER, "trustBundle": certificates },
    })
}

fn certificates(mark: &str) -> anyhow::Result<String> {
    Ok(Authority::new(&format!("authority {mark}"))?
        .pem()
        .to_owned())
}

/// A text that no other run uses.
pub(crate) fn random() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// A registry host that every configuration rewrites.
pub(crate) const LIVE: &str = "live.test";
const KEPT: &str = "kept";
/// Prefix of the hosts for which pull Secrets have credentials.
pub(crate) const FURTHER: &str = "further-";
/// File of the ClusterTrustBundle in a container.
pub(crate) const TRUST_BUNDLE_FILE: &str = "kube-apiserver-serving.pem";
