//! Errors of the inputs of a preview, with their positions. A run reports all errors, up to a limit.

use std::fmt;
use std::io;
use std::process::ExitCode;

use policy::admission::ConfigurationError;
use policy::admission::review::PodError;
use policy::image::KeyringError;

use crate::edge;

/// Maximum number of printed errors of a run.
const MOST_PRINTED: usize = 20;

/// A file, and the line in it if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) file: String,
    pub(super) line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// All errors of the inputs.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<PreviewError>);

impl Errors {
    /// Returns the value of a result, or adds its errors to this list.
    pub(super) fn keep<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(errors) => {
                self.0.extend(errors.into().0);
                None
            }
        }
    }

    /// Returns the value, if there are no errors.
    pub(super) fn none_or<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// Prints the errors, each in one line.
    pub(super) fn report(self) -> ExitCode {
        let count = self.0.len();
        for error in self.0.into_iter().take(MOST_PRINTED) {
            edge::report(&error.into());
        }
        if let Some(more @ 1..) = count.checked_sub(MOST_PRINTED) {
            edge::report(&anyhow::anyhow!("{more} more errors"));
        }
        ExitCode::FAILURE
    }
}

impl From<PreviewError> for Errors {
    fn from(error: PreviewError) -> Self {
        Self(vec![error])
    }
}

impl From<Vec<PreviewError>> for Errors {
    fn from(errors: Vec<PreviewError>) -> Self {
        Self(errors)
    }
}

/// Reason why there is no preview.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreviewError {
    /// A file cannot be opened or read.
    #[error("{file}: cannot be read")]
    Read {
        file: String,
        #[source]
        source: io::Error,
    },
    /// A directory contains no manifests.
    #[error("{0}: no files *.yaml, *.yml or *.json")]
    NoFiles(String),
    /// `-` occurs twice, but standard input can be read only once.
    #[error("-: standard input can be read only once")]
    StandardInputTwice,
    /// A file is larger than any real manifest.
    #[error("{file}: larger than {} MiB", .limit / (1024 * 1024))]
    TooLarge { file: String, limit: u64 },
    /// A file is not UTF-8 text.
    #[error("{0}: not UTF-8")]
    Encoding(Place),
    /// The text is not valid YAML.
    #[error("{place}: not valid YAML: {problem}")]
    Yaml { place: Place, problem: String },
    /// The text is not valid JSON.
    #[error("{place}: not valid JSON: {problem}")]
    Json { place: Place, problem: String },
    /// A manifest is invalid for its kind.
    #[error("{place}: {at}{problem}")]
    Manifest {
        place: Place,
        /// The object and the field, as far as they are known, each followed by a colon.
        at: String,
        problem: Problem,
    },
    /// A Pod has more list items than a review may have.
    #[error("{place}: {subject}")]
    Pod {
        place: Place,
        subject: String,
        #[source]
        source: PodError,
    },
    /// The configuration file contains no configuration.
    #[error(
        "{file}: expected the JSON document of the configuration, or a ConfigMap with the key {key}",
        key = api::names::CONFIG_KEY
    )]
    NoConfiguration { file: String },
    /// The structure of the document is invalid.
    #[error("{place}: {problem}")]
    Document { place: Place, problem: String },
    /// The document is contradictory.
    #[error("{place}")]
    Configuration {
        place: Place,
        #[source]
        source: ConfigurationError,
    },
    /// The file of the pull Secret cannot be parsed. The error contains no content of the file.
    #[error("{0}: not valid YAML or JSON")]
    SecretText(Place),
    /// The file of the pull Secret contains another object.
    #[error("{file}: expected a Secret, or a docker config with the key auths")]
    NoSecret { file: String },
    /// A kubelet could not pull with the Secret.
    #[error("{place}: Secret: {problem}")]
    Secret {
        place: Place,
        problem: SecretProblem,
    },
    /// A kubelet could not pull with the docker config.
    #[error("{place}: Secret: not a valid docker config")]
    Keyring {
        place: Place,
        #[source]
        source: KeyringError,
    },
    /// The patch of the decision does not fit the Pod, which is a defect of this program.
    #[error("{0}: the decision does not fit this Pod: a defect of this program")]
    Defect(Place),
    /// The result could not be written as YAML.
    #[error("the result cannot be written as YAML")]
    WriteYaml(#[source] serde_saphyr::SerializeError),
    /// The result could not be written as JSON.
    #[error("the result cannot be written as JSON")]
    WriteJson(#[source] serde_json::Error),
    /// Standard output cannot be written.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
}

/// Problem of a field of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The field is missing, null or empty.
    #[error("required")]
    Required,
    /// The field has a wrong type.
    #[error("expected {expected}, got {found}")]
    Type {
        expected: &'static str,
        found: &'static str,
    },
    /// The value is not valid in this field of a Pod.
    #[error("{0}")]
    Shape(String),
}

/// Problem of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretProblem {
    /// The kubelet pulls with this type only (except an old type, which is not copied).
    #[error("type: expected {}", api::names::DOCKER_CONFIG_TYPE)]
    Type,
    /// The required key is missing.
    #[error("data[{:?}]: required", api::names::DOCKER_CONFIG_KEY)]
    NoKey,
    /// The data of the Secret is not base64.
    #[error("data[{:?}]: not base64", api::names::DOCKER_CONFIG_KEY)]
    Base64,
}
