//! What can be wrong with the inputs of a preview, and where. A run tells everything that is wrong, up to a bound.

use std::fmt;
use std::io;
use std::process::ExitCode;

use policy::admission::ConfigurationError;
use policy::admission::review::PodError;
use policy::image::KeyringError;

use crate::edge;

/// How many errors of a run are printed.
const MOST_PRINTED: usize = 20;

/// A file, and the line in it where that is known.
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

/// Everything that is wrong with the inputs.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<PreviewError>);

impl Errors {
    /// The value of a result, or nothing, with its errors added to these.
    pub(super) fn keep<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(errors) => {
                self.0.extend(errors.into().0);
                None
            }
        }
    }

    /// The value, if nothing is wrong.
    pub(super) fn none_or<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// Prints them, each in one line.
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

/// Why there is no preview.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreviewError {
    /// A file cannot be opened or read.
    #[error("{file}: cannot be read")]
    Read {
        file: String,
        #[source]
        source: io::Error,
    },
    /// A directory holds no manifests.
    #[error("{0}: no files *.yaml, *.yml or *.json")]
    NoFiles(String),
    /// `-` is named twice, and there is only one standard input.
    #[error("-: standard input can be read only once")]
    StandardInputTwice,
    /// A file is larger than any real manifest.
    #[error("{file}: larger than {} MiB", .limit / (1024 * 1024))]
    TooLarge { file: String, limit: u64 },
    /// A file is no text.
    #[error("{0}: not UTF-8")]
    Encoding(Place),
    /// The YAML parser refused the text.
    #[error("{place}: not valid YAML: {problem}")]
    Yaml { place: Place, problem: String },
    /// The JSON parser refused the text.
    #[error("{place}: not valid JSON: {problem}")]
    Json { place: Place, problem: String },
    /// A manifest is not what its kind asks for.
    #[error("{place}: {at}{problem}")]
    Manifest {
        place: Place,
        /// The object and the field, as far as they are known, each with a colon behind it.
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
    /// The configuration file holds no configuration.
    #[error(
        "{file}: expected the JSON document of the configuration, or a ConfigMap with the key {key}",
        key = api::names::CONFIG_KEY
    )]
    NoConfiguration { file: String },
    /// The document has another shape.
    #[error("{place}: {problem}")]
    Document { place: Place, problem: String },
    /// The document contradicts itself.
    #[error("{place}")]
    Configuration {
        place: Place,
        #[source]
        source: ConfigurationError,
    },
    /// The pull Secret's file cannot be read. Never says anything of its content.
    #[error("{0}: not valid YAML or JSON")]
    SecretText(Place),
    /// The pull Secret's file holds something else.
    #[error("{file}: expected a Secret, or a docker config with the key auths")]
    NoSecret { file: String },
    /// The Secret is not one that a kubelet could pull with.
    #[error("{place}: Secret: {problem}")]
    Secret {
        place: Place,
        problem: SecretProblem,
    },
    /// The docker config is not one that a kubelet could pull with.
    #[error("{place}: Secret: not a valid docker config")]
    Keyring {
        place: Place,
        #[source]
        source: KeyringError,
    },
    /// The decision's patch does not fit the Pod: our own fault.
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

/// What is wrong with a field of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// It is missing, null or empty.
    #[error("required")]
    Required,
    /// It has another type.
    #[error("expected {expected}, got {found}")]
    Type {
        expected: &'static str,
        found: &'static str,
    },
    /// It is not what a Pod has there.
    #[error("{0}")]
    Shape(String),
}

/// What is wrong with a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretProblem {
    /// The kubelet pulls with one type only (the old form aside, which we do not copy).
    #[error("type: expected {}", api::names::DOCKER_CONFIG_TYPE)]
    Type,
    /// The one key that matters.
    #[error("data[{:?}]: required", api::names::DOCKER_CONFIG_KEY)]
    NoKey,
    /// Data of a Secret is base64.
    #[error("data[{:?}]: not base64", api::names::DOCKER_CONFIG_KEY)]
    Base64,
}
