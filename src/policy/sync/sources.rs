//! The three sources on KCP: read from plain views, understood once, and either valid, invalid with a reason, or absent.
//!
//! Only content is taken: labels, annotations and owners of a source stay on KCP.
//! Deliberately absent: where the objects come from. Nothing here says any part of a credential.

use std::collections::BTreeMap;
use std::fmt;

use api::config::Document as Shape;
use api::kcp::KCP_NAMESPACE;
use api::names::{CONFIG_KEY, CONFIG_MAP, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET};

use super::content::{Hash, Salt};
use super::{SourceKind, compatibility};
use crate::admission::{Configuration, Settings};
use crate::image::Keyring;

mod error;
mod mentions;
mod pem;

pub use error::{PemError, SourceError};
pub use mentions::ReferencedObjects;

/// What is known about a source.
#[derive(Debug)]
pub enum SourceState<T> {
    /// There is no such object.
    Absent,
    /// It is not looked for: no name is set for it, or KCP does not serve its API. What was rolled out stays as it is,
    /// and nothing waits for it.
    Unmanaged,
    /// There is one that cannot be used: nothing is changed anywhere.
    Invalid(SourceError),
    /// There is one that may be rolled out.
    Valid(T),
}

/// The credentials of private registries.
#[derive(Clone, PartialEq, Eq)]
pub struct PullSecret {
    /// The value of `.dockerconfigjson`.
    pub docker_config: Vec<u8>,
    /// Hash of the content.
    pub hash: Hash,
}

/// The landscape's roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// The signer that the bundle belongs to, if any.
    pub signer_name: Option<String>,
    /// The certificates.
    pub pem: String,
    /// Hash of the content.
    pub hash: Hash,
}

/// The webhook's configuration document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The whole `data` of the ConfigMap.
    pub data: BTreeMap<String, String>,
    /// What a webhook must be to understand the document.
    pub requirement: compatibility::Requirement,
    /// Which parts the document names.
    pub mentions: ReferencedObjects,
    /// What is odd about the document, for the operator.
    pub notices: Vec<String>,
    /// Hash of the content.
    pub hash: Hash,
}

/// Names of the three sources on KCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNames {
    /// Namespace of the ConfigMap and the Secret.
    pub namespace: String,
    /// The ConfigMap with the webhook's configuration.
    pub config_map: String,
    /// The Secret with credentials. Without a name none is looked for, and what was rolled out stays.
    pub pull_secret: Option<String>,
    /// The ClusterTrustBundle. Without a name none is looked for, and what was rolled out stays.
    pub trust_bundle: Option<String>,
}

impl Default for SourceNames {
    /// The names that KIM's own installation has: the ConfigMap alone.
    fn default() -> Self {
        Self {
            namespace: KCP_NAMESPACE.to_owned(),
            config_map: CONFIG_MAP.to_owned(),
            pull_secret: None,
            trust_bundle: None,
        }
    }
}

impl SourceNames {
    /// The name of one of the three; `None` if it has none, so that it is not looked for.
    #[must_use]
    pub fn get(&self, kind: SourceKind) -> Option<&str> {
        match kind {
            SourceKind::PullSecret => self.pull_secret.as_deref(),
            SourceKind::TrustBundle => self.trust_bundle.as_deref(),
            SourceKind::Configuration => Some(&self.config_map),
        }
    }

    /// One of the three as messages name it: kind, namespace if it is in one, and name.
    #[must_use]
    pub fn reference(&self, kind: SourceKind) -> String {
        let (object, name) = (kind.object(), self.get(kind).unwrap_or_default());
        match kind {
            SourceKind::PullSecret | SourceKind::Configuration => {
                format!("{object} {}/{name}", self.namespace)
            }
            SourceKind::TrustBundle => format!("{object} {name}"),
        }
    }
}

/// The three sources as they are at one moment.
#[derive(Debug)]
pub struct Sources {
    /// The names under which they were looked for.
    pub names: SourceNames,
    /// The pull Secret.
    pub pull_secret: SourceState<PullSecret>,
    /// The ClusterTrustBundle.
    pub trust_bundle: SourceState<TrustBundle>,
    /// The webhook's ConfigMap.
    pub configuration: SourceState<Document>,
}

/// What is read of a Secret.
#[derive(Clone, Copy)]
pub struct SecretView<'a> {
    /// `type`; absent means `Opaque`.
    pub r#type: Option<&'a str>,
    /// `data[".dockerconfigjson"]`, decoded.
    pub docker_config: Option<&'a [u8]>,
}

/// What is read of a ClusterTrustBundle.
#[derive(Clone, Copy, Debug)]
pub struct TrustBundleView<'a> {
    /// `spec.signerName`.
    pub signer_name: Option<&'a str>,
    /// `spec.trustBundle`.
    pub trust_bundle: Option<&'a str>,
}

/// What is read of a ConfigMap.
#[derive(Clone, Copy, Debug)]
pub struct ConfigMapView<'a> {
    /// `data`; `None` if there is none.
    pub data: Option<&'a BTreeMap<String, String>>,
}

impl<T> SourceState<T> {
    /// The content, if it may be rolled out.
    #[must_use]
    pub fn valid(&self) -> Option<&T> {
        match self {
            Self::Valid(content) => Some(content),
            Self::Absent | Self::Unmanaged | Self::Invalid(_) => None,
        }
    }

    /// Why it cannot be used.
    #[must_use]
    pub fn error(&self) -> Option<&SourceError> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Absent | Self::Unmanaged | Self::Valid(_) => None,
        }
    }

    fn summary(&self, hash: impl Fn(&T) -> Hash) -> Summary {
        match self {
            Self::Absent => Summary::Absent,
            Self::Unmanaged => Summary::Unmanaged,
            Self::Invalid(_) => Summary::Invalid,
            Self::Valid(content) => Summary::Valid(hash(content)),
        }
    }
}

/// A [`SourceState`] without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// There is no such object.
    Absent,
    /// It is not looked for.
    Unmanaged,
    /// It cannot be used.
    Invalid,
    /// It may be rolled out.
    Valid(Hash),
}

impl Sources {
    /// One of the three, without its content.
    #[must_use]
    pub fn summary(&self, kind: SourceKind) -> Summary {
        match kind {
            SourceKind::PullSecret => self.pull_secret.summary(|it| it.hash),
            SourceKind::TrustBundle => self.trust_bundle.summary(|it| it.hash),
            SourceKind::Configuration => self.configuration.summary(|it| it.hash),
        }
    }

    /// Why one of the three cannot be used.
    #[must_use]
    pub fn error(&self, kind: SourceKind) -> Option<&SourceError> {
        match kind {
            SourceKind::PullSecret => self.pull_secret.error(),
            SourceKind::TrustBundle => self.trust_bundle.error(),
            SourceKind::Configuration => self.configuration.error(),
        }
    }

    /// Those that are there and cannot be used, and why.
    pub fn unusable(&self) -> impl Iterator<Item = (SourceKind, &SourceError)> {
        let error = |kind| self.error(kind).map(|error| (kind, error));
        SourceKind::ALL.into_iter().filter_map(error)
    }
}

/// Reads the pull Secret. The credentials are judged as a kubelet would.
#[must_use]
pub fn read_pull_secret(salt: &Salt, view: Option<SecretView<'_>>) -> SourceState<PullSecret> {
    view.map_or(SourceState::Absent, |view| {
        pull_secret(salt, view).map_or_else(SourceState::Invalid, SourceState::Valid)
    })
}

/// Reads the trust bundle: at least one certificate, and nothing that is none.
#[must_use]
pub fn read_trust_bundle(
    salt: &Salt,
    view: Option<TrustBundleView<'_>>,
) -> SourceState<TrustBundle> {
    view.map_or(SourceState::Absent, |view| {
        trust_bundle(salt, view).map_or_else(SourceState::Invalid, SourceState::Valid)
    })
}

/// Reads the configuration: the key is there, and the webhook would accept the document.
#[must_use]
pub fn read_configuration(salt: &Salt, view: Option<ConfigMapView<'_>>) -> SourceState<Document> {
    view.map_or(SourceState::Absent, |view| {
        configuration(salt, view).map_or_else(SourceState::Invalid, SourceState::Valid)
    })
}

fn pull_secret(salt: &Salt, view: SecretView<'_>) -> Result<PullSecret, SourceError> {
    let found = view.r#type.unwrap_or("Opaque");
    if found != DOCKER_CONFIG_TYPE {
        return Err(SourceError::Type(found.to_owned()));
    }
    let docker_config = view
        .docker_config
        .filter(|bytes| !bytes.is_empty())
        .ok_or(SourceError::Key(DOCKER_CONFIG_KEY))?;
    Keyring::parse(docker_config).map_err(SourceError::DockerConfig)?;
    Ok(PullSecret {
        docker_config: docker_config.to_vec(),
        hash: salt.hash(SourceKind::PullSecret.name(), &[docker_config]),
    })
}

fn trust_bundle(salt: &Salt, view: TrustBundleView<'_>) -> Result<TrustBundle, SourceError> {
    let text = view.trust_bundle.unwrap_or_default();
    pem::check(text).map_err(SourceError::Pem)?;
    let signer = view.signer_name.filter(|name| !name.is_empty());
    let hash = salt.hash(
        SourceKind::TrustBundle.name(),
        &[signer.unwrap_or_default().as_bytes(), text.as_bytes()],
    );
    Ok(TrustBundle {
        signer_name: signer.map(str::to_owned),
        pem: text.to_owned(),
        hash,
    })
}

fn configuration(salt: &Salt, view: ConfigMapView<'_>) -> Result<Document, SourceError> {
    let data = view.data.ok_or(SourceError::Key(CONFIG_KEY))?;
    let text = data
        .get(CONFIG_KEY)
        .filter(|text| !text.trim().is_empty())
        .ok_or(SourceError::Key(CONFIG_KEY))?;
    let shape = Shape::parse(text).map_err(SourceError::Document)?;
    // Neither the landscape nor the Secret's default name has a say in whether a document is valid.
    let settings = Settings {
        landscape: None,
        pull_secret: PULL_SECRET.to_owned(),
    };
    let understood = Configuration::new(&shape, &settings).map_err(SourceError::Configuration)?;
    let parts: Vec<&[u8]> = data
        .iter()
        .flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()])
        .collect();
    Ok(Document {
        data: data.clone(),
        requirement: compatibility::requirement(&shape),
        mentions: ReferencedObjects::of(&shape),
        notices: understood
            .notices()
            .iter()
            .map(ToString::to_string)
            .collect(),
        hash: salt.hash(SourceKind::Configuration.name(), &parts),
    })
}

impl fmt::Debug for PullSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PullSecret")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SecretView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SecretView")
            .field("type", &self.r#type)
            .finish_non_exhaustive()
    }
}
