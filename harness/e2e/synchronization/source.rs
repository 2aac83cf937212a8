//! The three sources on KCP and their content.
//!
//! Every change writes new content that is visible in decisions of the webhook: the pull Secret has credentials for another
//! host, the configuration rewrites another host, the bundle has another certificate.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use api::Feature;
use api::kcp::KCP_NAMESPACE;
use api::names::{CONFIG_KEY, CONFIG_MAP, DOCKER_CONFIG_KEY, PULL_SECRET, SKR_NAMESPACE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::control_plane::named_config_map;
use crate::admission::webhook::{SIGNER, TRUST_BUNDLE, VOLUME};
use crate::admission::webhook::{configuration, usual_configuration};
use crate::definitions::random;
use crate::scenario::ObjectRef;
use testkit::json::{pull_secret, trust_bundle};
use testkit::pki::Authority;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    PullSecret,
    TrustBundle,
    /// The ConfigMap with the configuration document.
    Configuration,
}

impl FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "pull Secret" => Self::PullSecret,
            "ClusterTrustBundle" => Self::TrustBundle,
            "ConfigMap" => Self::Configuration,
            other => bail!("not a source: {other}"),
        })
    }
}

impl Source {
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

    /// Returns the reference to the source's copy on a runtime.
    pub(crate) fn object(self) -> ObjectRef {
        let (kind, namespace, name) = match self {
            Self::PullSecret => ("Secret", Some(SKR_NAMESPACE), PULL_SECRET),
            Self::TrustBundle => ("ClusterTrustBundle", None, TRUST_BUNDLE),
            Self::Configuration => ("ConfigMap", Some(SKR_NAMESPACE), CONFIG_MAP),
        };
        ObjectRef::new(kind, namespace, name)
    }

    pub(crate) fn on_kcp(self) -> String {
        self.path(KCP_NAMESPACE)
    }

    pub(crate) fn on_skr(self) -> String {
        self.path(SKR_NAMESPACE)
    }

    /// Returns the key of the source's hash in the state ConfigMap.
    pub(crate) fn state_key(self) -> &'static str {
        match self {
            Self::PullSecret => "lastSeen.pullSecret",
            Self::TrustBundle => "lastSeen.trustBundle",
            Self::Configuration => "lastSeen.configuration",
        }
    }

    /// Returns the object on KCP, with new content.
    pub(crate) fn fresh(self) -> Result<Value> {
        self.marked(&random())
    }

    /// Returns the object with content that contains `mark`. Sources with the same mark belong together: the pull Secret has
    /// credentials for the host that replaces [`LIVE`] in the configuration.
    pub(crate) fn marked(self, mark: &str) -> Result<Value> {
        let host = format!("{FURTHER}{mark}.test");
        Ok(match self {
            Self::PullSecret => {
                let password = format!("canary-{mark}");
                let entry = json!({ "username": "anyone", "password": password });
                let config = json!({ "auths": { (host): entry, "private.me": entry } });
                pull_secret(KCP_NAMESPACE, PULL_SECRET, &config)
            }
            Self::TrustBundle => {
                let authority = Authority::new(&format!("authority {mark}"))?;
                trust_bundle(TRUST_BUNDLE, SIGNER, authority.pem())
            }
            Self::Configuration => {
                let mut document = usual_configuration()?;
                let overrides = &mut document["overrides"];
                overrides[format!("mark-{mark}.test")] = json!(format!("replaced-{mark}.test"));
                overrides[LIVE] = json!(host);
                configuration(KCP_NAMESPACE, &document.to_string())
            }
        })
    }

    /// Returns the feature that uses the source, an image, and a text. The patch for a Pod with this image contains the text
    /// when the webhook uses the content.
    pub(crate) fn probe(self, object: &Value) -> Result<(Feature, String, String)> {
        Ok(match self {
            Self::PullSecret => {
                let hosts = hosts(object)?;
                let newest = |(_, entry): &(&String, &Value)| entry["password"] != KEPT;
                let mut known = hosts.iter().filter(|(host, _)| host.starts_with(FURTHER));
                let (host, _) = known.find(newest).context("a host with new credentials")?;
                (Feature::PullSecret, format!("{host}/x"), PULL_SECRET.into())
            }
            Self::TrustBundle => (Feature::TrustBundle, "any/x".into(), VOLUME.into()),
            Self::Configuration => {
                let text = object["data"][CONFIG_KEY].as_str().context("a document")?;
                let document: Value = serde_json::from_str(text)?;
                let overrides = document["overrides"].as_object().context("overrides")?;
                let mark = overrides.iter().find(|(key, _)| key.starts_with("mark-"));
                let (mark, replacement) = mark.context("a host with a mark")?;
                let replacement = replacement.as_str().unwrap_or_default();
                (
                    Feature::RegistryRewrite,
                    format!("{mark}/x"),
                    replacement.to_owned(),
                )
            }
        })
    }
}

/// Returns the fields of a source that are synchronized.
pub(crate) fn content(object: &Value) -> [&Value; 3] {
    ["type", "data", "spec"].map(|field| &object[field])
}

/// Returns a pull Secret that also has the credentials of an earlier one, as in a rotation.
pub(crate) fn with_hosts_of(object: &Value, earlier: &Value) -> Result<Value> {
    let mut auths = hosts(object)?;
    for host in hosts(earlier)?.keys() {
        let kept = json!({ "username": "anyone", "password": KEPT });
        auths.entry(host.clone()).or_insert(kept);
    }
    let config = json!({ "auths": auths });
    Ok(pull_secret(KCP_NAMESPACE, PULL_SECRET, &config))
}

fn hosts(object: &Value) -> Result<Map<String, Value>> {
    let text = object["data"][DOCKER_CONFIG_KEY].as_str();
    let config: Value = serde_json::from_slice(&BASE64.decode(text.unwrap_or_default())?)?;
    config["auths"].as_object().cloned().context("auths")
}

/// A registry host that every configuration rewrites.
pub(crate) const LIVE: &str = "live.test";
const KEPT: &str = "kept";
/// Prefix of the hosts for which pull Secrets have credentials.
pub(crate) const FURTHER: &str = "further-";
/// File of the ClusterTrustBundle in a container.
pub(crate) const TRUST_BUNDLE_FILE: &str = "kube-apiserver-serving.pem";
