//! The three sources on the control plane, and what becomes of them in a scenario.
//!
//! Invariant: each change makes a content that was never there before and that the webhook can be asked about: the pull
//! Secret opens a further host, the configuration rewrites a further one, the bundle has a further certificate.

use std::str::FromStr;

use anyhow::{Context as _, ensure};
use api::names::{
    CONFIG_KEY, CONFIG_MAP, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET, SKR_NAMESPACE,
};
use api::runtimes::KCP_NAMESPACE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cucumber::Parameter;
use serde_json::{Value, json};

use super::objects;
use crate::world::{bundle, random, shared_configuration};

/// One of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Parameter)]
#[param(name = "source", regex = "pull Secret|trust bundle|configuration")]
pub(super) enum Source {
    /// The pull Secret.
    PullSecret,
    /// The ClusterTrustBundle.
    TrustBundle,
    /// The ConfigMap with the webhook's document.
    Configuration,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "pull Secret" => Self::PullSecret,
            "trust bundle" => Self::TrustBundle,
            "configuration" => Self::Configuration,
            other => return Err(other.to_owned()),
        })
    }
}

impl Source {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::PullSecret, Self::TrustBundle, Self::Configuration];

    fn path(self, namespace: &str) -> String {
        match self {
            Self::PullSecret => objects::secret(namespace),
            Self::TrustBundle => objects::trust_bundle(namespace),
            Self::Configuration => objects::config_map(namespace),
        }
    }

    /// Its path on the control plane.
    pub(super) fn on_kcp(self) -> String {
        self.path(KCP_NAMESPACE)
    }

    /// Its path on a runtime.
    pub(super) fn on_skr(self) -> String {
        self.path(SKR_NAMESPACE)
    }

    /// The key of its hash in the controller's record.
    pub(super) fn in_record(self) -> &'static str {
        match self {
            Self::PullSecret => "lastSeen.pullSecret",
            Self::TrustBundle => "lastSeen.trustBundle",
            Self::Configuration => "lastSeen.configuration",
        }
    }

    /// What is compared of an object.
    pub(super) fn content(self, object: &Value) -> Value {
        match self {
            Self::PullSecret => json!([object["type"], object["data"]]),
            Self::TrustBundle => object["spec"].clone(),
            Self::Configuration => object["data"].clone(),
        }
    }

    /// The object on the control plane with a content that was never there before.
    pub(super) fn fresh(self) -> anyhow::Result<Value> {
        self.marked(&random())
    }

    /// The same with a mark. Sources of one mark belong together: the pull Secret opens the host to which the
    /// configuration leads [`LIVE`].
    pub(super) fn marked(self, mark: &str) -> anyhow::Result<Value> {
        Ok(match self {
            Self::PullSecret => pull_secret(&docker_config(mark)),
            Self::TrustBundle => bundle::object(&certificates(mark)?),
            Self::Configuration => {
                let mut document = shared_configuration()?;
                document["overrides"][format!("mark-{mark}.test")] =
                    json!(format!("in-force-{mark}.test"));
                document["overrides"][LIVE] = json!(further(mark));
                config_map(&document.to_string())
            }
        })
    }

    /// An image whose Pod shows that the webhook knows a content, and what is then in its answer.
    pub(super) fn probe(self, object: &Value) -> anyhow::Result<(String, String)> {
        match self {
            Self::PullSecret => {
                let hosts = hosts(object)?;
                let newest = |(_, entry): &(&String, &Value)| entry["password"] != KEPT;
                let mut ours = hosts.iter().filter(|(host, _)| host.starts_with(FURTHER));
                let (host, _) = ours.find(newest).context("a host of ours")?;
                Ok((format!("{host}/x"), PULL_SECRET.to_owned()))
            }
            Self::TrustBundle => Ok(("any/x".to_owned(), crate::world::effects::VOLUME.to_owned())),
            Self::Configuration => {
                let text = object["data"][CONFIG_KEY].as_str().context("a document")?;
                let document: Value = serde_json::from_str(text)?;
                let overrides = document["overrides"].as_object().context("overrides")?;
                let mark = overrides.iter().find(|(key, _)| key.starts_with("mark-"));
                let (mark, replacement) = mark.context("a mark of ours")?;
                let replacement = replacement.as_str().unwrap_or_default();
                Ok((format!("{mark}/x"), replacement.to_owned()))
            }
        }
    }

    /// The feature that shows it.
    pub(super) fn feature(self) -> api::Feature {
        match self {
            Self::PullSecret => api::Feature::PullSecret,
            Self::TrustBundle => api::Feature::TrustBundle,
            Self::Configuration => api::Feature::RegistryRewrite,
        }
    }
}

/// The object of the control plane that nobody can use, by the words of the features.
pub(super) fn unusable(source: Source, words: &str) -> anyhow::Result<Value> {
    let object = match (source, words) {
        (Source::PullSecret, "no docker configuration") => pull_secret("{ \"auths\": 7 }"),
        (Source::PullSecret, "a Secret of another type") => {
            let mut object = Source::PullSecret.fresh()?;
            object["type"] = json!("Opaque");
            object
        }
        (Source::Configuration, "a ConfigMap without the key") => json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": CONFIG_MAP, "namespace": KCP_NAMESPACE },
            "data": { "another-key.json": "{}" },
        }),
        (Source::Configuration, "an invalid document") => config_map("{ \"overrides\": 7 }"),
        _ => Value::Null,
    };
    ensure!(
        !object.is_null(),
        "{source:?}: {words}: not in the vocabulary"
    );
    Ok(object)
}

/// A pull Secret that opens what another one opens as well: how credentials are rotated.
pub(super) fn opening_also(object: &Value, earlier: &Value) -> anyhow::Result<Value> {
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

fn certificates(mark: &str) -> anyhow::Result<String> {
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    let name = format!("authority {mark}");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    Ok(params.self_signed(&rcgen::KeyPair::generate()?)?.pem())
}

/// A registry that every configuration leads elsewhere.
pub(super) const LIVE: &str = "live.test";
const KEPT: &str = "kept";
/// How the hosts begin that pull Secrets open.
pub(super) const FURTHER: &str = "further-";
