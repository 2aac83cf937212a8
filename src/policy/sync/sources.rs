//! The three sources on KCP: absent, unmanaged, invalid with a cause, or valid.
//!
//! Only content is synchronized, not labels, annotations and owners. Errors and `Debug` output contain no credentials.
//! Not in here: how the objects are read.

use std::collections::BTreeMap;
use std::fmt;

use api::config::Document as ConfigDocument;
use api::kcp::KCP_NAMESPACE;
use api::names::{CONFIG_KEY, CONFIG_MAP, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET};

use super::content::{Hash, Salt};
use super::{SourceKind, compatibility};
use crate::admission::{Configuration, Settings};
use crate::image::Keyring;

mod error;
mod pem;
mod references;

pub use error::{PemError, SourceError};
pub use references::ReferencedObjects;

/// The state of a source.
#[derive(Debug)]
pub enum SourceState<T> {
    /// The source does not exist.
    Absent,
    /// The source is not watched: no name is configured, or KCP does not serve its API. The copies on runtimes are not
    /// changed.
    Unmanaged,
    /// The source is invalid. The copies on runtimes are not changed.
    Invalid(SourceError),
    /// The source is valid and can be synchronized.
    Valid(T),
}

/// The pull Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PullSecret {
    /// The value of `.dockerconfigjson`.
    pub docker_config: Vec<u8>,
    /// Hash of the content.
    pub hash: Hash,
}

/// The ClusterTrustBundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// The signer of the bundle, if any.
    pub signer_name: Option<String>,
    /// The certificates.
    pub pem: String,
    /// Hash of the content.
    pub hash: Hash,
}

/// The webhook's configuration document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The complete `data` of the ConfigMap.
    pub data: BTreeMap<String, String>,
    /// The webhook that the document requires.
    pub requirement: compatibility::Requirement,
    /// Names of the objects that the document refers to.
    pub references: ReferencedObjects,
    /// Hash of the content.
    pub hash: Hash,
}

/// Names of the three sources on KCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNames {
    /// Namespace of the ConfigMap and the Secret.
    pub namespace: String,
    /// The ConfigMap with the configuration document.
    pub config_map: String,
    /// The pull Secret. `None`: unmanaged, the copies on runtimes are not changed.
    pub pull_secret: Option<String>,
    /// The ClusterTrustBundle. `None`: unmanaged, the copies on runtimes are not changed.
    pub trust_bundle: Option<String>,
}

impl Default for SourceNames {
    /// The default names of KIM: the ConfigMap only.
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
    /// The name of a source; `None` if it is unmanaged.
    #[must_use]
    pub fn get(&self, kind: SourceKind) -> Option<&str> {
        match kind {
            SourceKind::PullSecret => self.pull_secret.as_deref(),
            SourceKind::TrustBundle => self.trust_bundle.as_deref(),
            SourceKind::Configuration => Some(&self.config_map),
        }
    }

    /// Kind, namespace and name of a source, for messages.
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

/// The current state of the three sources.
#[derive(Debug)]
pub struct Sources {
    /// The names of the sources.
    pub names: SourceNames,
    /// The pull Secret.
    pub pull_secret: SourceState<PullSecret>,
    /// The ClusterTrustBundle.
    pub trust_bundle: SourceState<TrustBundle>,
    /// The webhook's ConfigMap.
    pub configuration: SourceState<Document>,
}

/// The fields of a Secret that are read.
#[derive(Clone, Copy)]
pub struct SecretView<'a> {
    /// `type`; absent means `Opaque`.
    pub r#type: Option<&'a str>,
    /// `data[".dockerconfigjson"]`, decoded.
    pub docker_config: Option<&'a [u8]>,
}

/// The fields of a ClusterTrustBundle that are read.
#[derive(Clone, Copy, Debug)]
pub struct TrustBundleView<'a> {
    /// `spec.signerName`.
    pub signer_name: Option<&'a str>,
    /// `spec.trustBundle`.
    pub trust_bundle: Option<&'a str>,
}

/// The fields of a ConfigMap that are read.
#[derive(Clone, Copy, Debug)]
pub struct ConfigMapView<'a> {
    /// `data`; `None` if there is none.
    pub data: Option<&'a BTreeMap<String, String>>,
}

impl<T> SourceState<T> {
    /// The content, if it is valid.
    #[must_use]
    pub fn valid(&self) -> Option<&T> {
        match self {
            Self::Valid(content) => Some(content),
            Self::Absent | Self::Unmanaged | Self::Invalid(_) => None,
        }
    }

    /// The error, if the source is invalid.
    #[must_use]
    pub fn error(&self) -> Option<&SourceError> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Absent | Self::Unmanaged | Self::Valid(_) => None,
        }
    }

    fn summary(&self, hash: impl Fn(&T) -> Hash) -> SourceSummary {
        match self {
            Self::Absent => SourceSummary::Absent,
            Self::Unmanaged => SourceSummary::Unmanaged,
            Self::Invalid(_) => SourceSummary::Invalid,
            Self::Valid(content) => SourceSummary::Valid(hash(content)),
        }
    }
}

/// A [`SourceState`] without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceSummary {
    /// The source does not exist.
    Absent,
    /// The source is unmanaged.
    Unmanaged,
    /// The source is invalid.
    Invalid,
    /// The source is valid, with the hash of its content.
    Valid(Hash),
}

impl Sources {
    /// The state of one source, without its content.
    #[must_use]
    pub fn summary(&self, kind: SourceKind) -> SourceSummary {
        match kind {
            SourceKind::PullSecret => self.pull_secret.summary(|it| it.hash),
            SourceKind::TrustBundle => self.trust_bundle.summary(|it| it.hash),
            SourceKind::Configuration => self.configuration.summary(|it| it.hash),
        }
    }

    /// The error of one source, if it is invalid.
    #[must_use]
    pub fn error(&self, kind: SourceKind) -> Option<&SourceError> {
        match kind {
            SourceKind::PullSecret => self.pull_secret.error(),
            SourceKind::TrustBundle => self.trust_bundle.error(),
            SourceKind::Configuration => self.configuration.error(),
        }
    }

    /// The invalid sources with their errors.
    pub fn invalid(&self) -> impl Iterator<Item = (SourceKind, &SourceError)> {
        let error = |kind| self.error(kind).map(|error| (kind, error));
        SourceKind::ALL.into_iter().filter_map(error)
    }
}

/// Validates the pull Secret, with the credentials parsed as in a kubelet.
#[must_use]
pub fn read_pull_secret(salt: &Salt, view: Option<SecretView<'_>>) -> SourceState<PullSecret> {
    view.map_or(SourceState::Absent, |view| {
        pull_secret(salt, view).map_or_else(SourceState::Invalid, SourceState::Valid)
    })
}

/// Validates the trust bundle: at least one certificate, and no other PEM block.
#[must_use]
pub fn read_trust_bundle(
    salt: &Salt,
    view: Option<TrustBundleView<'_>>,
) -> SourceState<TrustBundle> {
    view.map_or(SourceState::Absent, |view| {
        trust_bundle(salt, view).map_or_else(SourceState::Invalid, SourceState::Valid)
    })
}

/// Validates the configuration: the key exists and the webhook accepts the document.
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
        hash: salt.hash(SourceKind::PullSecret.name(), [docker_config]),
    })
}

fn trust_bundle(salt: &Salt, view: TrustBundleView<'_>) -> Result<TrustBundle, SourceError> {
    let text = view.trust_bundle.unwrap_or_default();
    pem::check(text).map_err(SourceError::Pem)?;
    let signer = view.signer_name.filter(|name| !name.is_empty());
    let hash = salt.hash(
        SourceKind::TrustBundle.name(),
        [signer.unwrap_or_default().as_bytes(), text.as_bytes()],
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
    let document = ConfigDocument::parse(text).map_err(SourceError::Document)?;
    // Landscape and default Secret name do not affect validity.
    let settings = Settings {
        landscape: None,
        pull_secret: PULL_SECRET.to_owned(),
    };
    Configuration::new(&document, &settings).map_err(SourceError::Configuration)?;
    let entries = data.iter();
    let parts = entries.flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
    Ok(Document {
        data: data.clone(),
        requirement: compatibility::requirement(&document),
        references: ReferencedObjects::of(&document),
        hash: salt.hash(SourceKind::Configuration.name(), parts),
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
