//! Errors of invalid sources. No text holds a part of a credential.

use api::config::DocumentError;
use api::names::{CONFIG_KEY, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};

use crate::admission::ConfigurationError;
use crate::image::KeyringError;

/// Why a source is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A Secret of another type, which a kubelet would not use.
    #[error("type: expected {DOCKER_CONFIG_TYPE}, got {0}")]
    Type(String),
    /// The key with the content is missing or empty.
    #[error("{0}: missing or empty")]
    Key(&'static str),
    /// The credentials are no docker config.
    #[error("{DOCKER_CONFIG_KEY}")]
    DockerConfig(#[source] KeyringError),
    /// The bundle is no list of certificates.
    #[error("spec.trustBundle")]
    Pem(#[source] PemError),
    /// The document has not the expected shape.
    #[error("{CONFIG_KEY}")]
    Document(#[source] DocumentError),
    /// The keys of the document contradict each other.
    #[error("{CONFIG_KEY}")]
    Configuration(#[source] ConfigurationError),
}

/// Why a text is no list of certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is no certificate in it.
    #[error("no PEM certificate found")]
    Empty,
    /// Something else than a certificate, perhaps a key that must not be spread.
    #[error("PEM block {0}: expected a certificate")]
    Label(usize),
    /// A block that ends nowhere, has headers, or is no base64 of a DER sequence.
    #[error("PEM block {0}: malformed")]
    Damaged(usize),
    /// The API server refuses bundles that hold a certificate twice.
    #[error("PEM block {0}: duplicate certificate")]
    Repeated(usize),
}
