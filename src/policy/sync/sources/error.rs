//! Errors of invalid sources. The texts contain no credentials.

use api::config::DocumentError;
use api::names::{CONFIG_KEY, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};

use crate::admission::ConfigurationError;
use crate::image::KeyringError;

/// Reason why a source is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The Secret has another type, which a kubelet does not use.
    #[error("type: expected {DOCKER_CONFIG_TYPE}, got {0}")]
    Type(String),
    /// The key with the content is missing or empty.
    #[error("{0}: missing or empty")]
    Key(&'static str),
    /// The credentials are not a valid docker config.
    #[error("{DOCKER_CONFIG_KEY}")]
    DockerConfig(#[source] KeyringError),
    /// The bundle is not a list of certificates.
    #[error("spec.trustBundle")]
    Pem(#[source] PemError),
    /// The document cannot be parsed.
    #[error("{CONFIG_KEY}")]
    Document(#[source] DocumentError),
    /// Keys of the document contradict each other.
    #[error("{CONFIG_KEY}")]
    Configuration(#[source] ConfigurationError),
}

/// Reason why a text is not a list of certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is no certificate.
    #[error("no PEM certificate found")]
    Empty,
    /// A PEM block is not a certificate, perhaps a private key that must not be published.
    #[error("PEM block {0}: expected a certificate")]
    Label(usize),
    /// A PEM block is incomplete, has headers, or is not base64 of a DER sequence.
    #[error("PEM block {0}: malformed")]
    Damaged(usize),
    /// A certificate is repeated, which the API server rejects.
    #[error("PEM block {0}: duplicate certificate")]
    Repeated(usize),
}
