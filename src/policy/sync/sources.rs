//! The three sources on KCP: absent, unmanaged, invalid with a cause, or valid.
//!
//! Only content is synchronized, not labels, annotations and owners. Errors and `Debug` output contain no credentials.
//! Not in here: how the objects are read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::config::Document as ConfigDocument;
use api::names::{CONFIG_KEY, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET};

use super::ObjectNames;
use super::content::{Hash, Salt};
use super::status::error_chain;
use super::{SourceKind, compatibility};
use crate::admission::{Configuration, Settings};
use crate::image::Keyring;

mod error;
mod pem;
mod references;

pub use error::{PemError, SourceError};
pub use references::ReferencedObjects;

/// The state of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState<T> {
    /// The source does not exist.
    Absent,
    /// The source is not watched: no name is configured, or KCP does not serve its API. The copies on runtimes are not
    /// changed.
    Unmanaged,
    /// The source is invalid, with the cause (without secret content). The copies on runtimes are not changed.
    Invalid(String),
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

/// The current state of the three sources. Contents are shared, so that credentials are in memory once.
#[derive(Debug)]
pub struct Sources {
    /// The names of the sources.
    pub names: ObjectNames,
    /// The pull Secret.
    pub pull_secret: SourceState<Arc<PullSecret>>,
    /// The ClusterTrustBundle.
    pub trust_bundle: SourceState<Arc<TrustBundle>>,
    /// The webhook's ConfigMap.
    pub configuration: SourceState<Arc<Document>>,
}

impl<T> SourceState<Arc<T>> {
    /// Returns the state of a managed source, from the object that was read; `None` if there is no object.
    #[must_use]
    pub fn of(object: Option<Result<T, SourceError>>) -> Self {
        match object {
            None => Self::Absent,
            Some(Ok(content)) => Self::Valid(Arc::new(content)),
            Some(Err(error)) => Self::Invalid(error_chain(&error)),
        }
    }
}

impl<T> SourceState<T> {
    /// Returns the content, if it is valid.
    #[must_use]
    pub fn valid(&self) -> Option<&T> {
        match self {
            Self::Valid(content) => Some(content),
            Self::Absent | Self::Unmanaged | Self::Invalid(_) => None,
        }
    }

    fn with_hash(&self, hash: impl Fn(&T) -> Hash) -> SourceState<Hash> {
        match self {
            Self::Absent => SourceState::Absent,
            Self::Unmanaged => SourceState::Unmanaged,
            Self::Invalid(error) => SourceState::Invalid(error.clone()),
            Self::Valid(content) => SourceState::Valid(hash(content)),
        }
    }
}

impl Sources {
    /// Returns the state of one source, with the hash of its content.
    #[must_use]
    pub fn get(&self, kind: SourceKind) -> SourceState<Hash> {
        match kind {
            SourceKind::PullSecret => self.pull_secret.with_hash(|it| it.hash),
            SourceKind::TrustBundle => self.trust_bundle.with_hash(|it| it.hash),
            SourceKind::Configuration => self.configuration.with_hash(|it| it.hash),
        }
    }

    /// Returns the invalid sources with the causes, as one text; `None` if no source is invalid.
    #[must_use]
    pub fn invalid_text(&self) -> Option<String> {
        let texts: Vec<String> = self
            .invalid()
            .map(|(kind, error)| format!("{}: {error}", kind.name()))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the invalid sources with the causes.
    pub fn invalid(&self) -> impl Iterator<Item = (SourceKind, String)> {
        let cause = |kind| match self.get(kind) {
            SourceState::Invalid(cause) => Some((kind, cause)),
            SourceState::Absent | SourceState::Unmanaged | SourceState::Valid(_) => None,
        };
        SourceKind::ALL.into_iter().filter_map(cause)
    }
}

/// Validates the pull Secret: its `type`, where an absent type means `Opaque`, and its decoded `.dockerconfigjson`,
/// in which the credentials are parsed as in a kubelet.
///
/// # Errors
/// [`SourceError`] if it is invalid.
pub fn read_pull_secret(
    salt: &Salt,
    r#type: Option<&str>,
    docker_config: Option<&[u8]>,
) -> Result<PullSecret, SourceError> {
    let found = r#type.unwrap_or("Opaque");
    if found != DOCKER_CONFIG_TYPE {
        return Err(SourceError::Type(found.to_owned()));
    }
    let docker_config = docker_config
        .filter(|bytes| !bytes.is_empty())
        .ok_or(SourceError::Key(DOCKER_CONFIG_KEY))?;
    Keyring::parse(docker_config).map_err(SourceError::DockerConfig)?;
    Ok(PullSecret {
        docker_config: docker_config.to_vec(),
        hash: salt.hash(SourceKind::PullSecret.name(), [docker_config]),
    })
}

/// Validates the trust bundle by its `spec.signerName` and `spec.trustBundle`: at least one certificate, and no other PEM
/// block.
///
/// # Errors
/// [`SourceError`] if it is invalid.
pub fn read_trust_bundle(
    salt: &Salt,
    signer_name: Option<&str>,
    trust_bundle: Option<&str>,
) -> Result<TrustBundle, SourceError> {
    let text = trust_bundle.unwrap_or_default();
    pem::check(text).map_err(SourceError::Pem)?;
    let signer = signer_name.filter(|name| !name.is_empty());
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

/// Validates the configuration by the `data` of its ConfigMap: the key exists and the webhook accepts the document.
///
/// # Errors
/// [`SourceError`] if it is invalid.
pub fn read_configuration(
    salt: &Salt,
    data: Option<&BTreeMap<String, String>>,
) -> Result<Document, SourceError> {
    let data = data.ok_or(SourceError::Key(CONFIG_KEY))?;
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
