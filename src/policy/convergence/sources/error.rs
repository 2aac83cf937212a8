//! Why a source cannot be used, without any part of a credential.

use api::config::DocumentError;
use api::names::{CONFIG_KEY, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};

use crate::admission::ConfigurationError;
use crate::image::KeyringError;

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A Secret of another type, which a kubelet would not use.
    #[error("the Secret's type is `{0}`, not `{DOCKER_CONFIG_TYPE}`")]
    Type(String),
    /// The key with the content is missing or empty.
    #[error("the key `{0}` is missing or empty")]
    Key(&'static str),
    /// The credentials are no docker config.
    #[error("`{DOCKER_CONFIG_KEY}` is no docker config")]
    DockerConfig(#[source] KeyringError),
    /// The bundle is no list of certificates.
    #[error("`spec.trustBundle` is no list of PEM certificates")]
    Pem(#[source] PemError),
    /// The document has not the expected shape.
    #[error("`{CONFIG_KEY}` cannot be read")]
    Document(#[source] DocumentError),
    /// The document's parts contradict each other.
    #[error("`{CONFIG_KEY}` contradicts itself")]
    Configuration(#[source] ConfigurationError),
}

/// Why a text is no list of certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is no certificate in it.
    #[error("no certificate found")]
    Empty,
    /// Something else than a certificate, perhaps a key that must not be spread.
    #[error("block {0} is no certificate")]
    Label(usize),
    /// A block that ends nowhere, has headers, or is no base64 of a DER sequence.
    #[error("block {0} is damaged")]
    Damaged(usize),
    /// The API server refuses bundles that hold a certificate twice.
    #[error("block {0} repeats an earlier one")]
    Repeated(usize),
}
