//! What can be wrong with the inputs of a preview: where, and what to do about it.

use std::fmt;
use std::io;

use policy::admission::ConfigurationError;
use policy::image::KeyringError;

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

/// Why there is no preview.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreviewError {
    /// A file cannot be opened or read.
    #[error("{file}: cannot be read; check the path and the permissions")]
    Read {
        file: String,
        #[source]
        source: io::Error,
    },
    /// `-` is named twice, and there is only one standard input.
    #[error("standard input can be read only once; name `-` a single time")]
    StandardInputTwice,
    /// A file is larger than any real manifest.
    #[error("{file}: larger than {} MiB; split it", .limit / (1024 * 1024))]
    TooLarge { file: String, limit: u64 },
    /// A file is no text.
    #[error("{0}: not UTF-8; save the file as UTF-8")]
    Encoding(Place),
    /// The YAML parser refused the text.
    #[error("{place}: no valid YAML; correct the text there")]
    Yaml {
        place: Place,
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// The JSON parser refused the text.
    #[error("{place}: no valid JSON; correct the text there")]
    Json {
        place: Place,
        #[source]
        source: serde_json::Error,
    },
    /// A manifest is not what its kind asks for.
    #[error("{place}: {problem}")]
    Manifest { place: Place, problem: Problem },
    /// A Pod has a field of the wrong type. The parser's own error is not kept: its position is one in the review.
    #[error("{place}: {what} is no valid Pod: {reason}; correct it")]
    Pod {
        place: Place,
        what: String,
        reason: String,
    },
    /// The configuration file holds no configuration.
    #[error(
        "{file}: neither the JSON document nor a ConfigMap with the key `{key}`; name the file that holds one",
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
    #[error("{0}: no valid YAML or JSON; correct the text there")]
    SecretText(Place),
    /// The pull Secret's file holds something else.
    #[error(
        "{file}: neither a Secret nor a docker config with `auths`; name the file that holds one"
    )]
    NoSecret { file: String },
    /// The Secret is not one that a kubelet could pull with.
    #[error("{place}: {problem}")]
    Secret {
        place: Place,
        problem: SecretProblem,
    },
    /// The docker config is not one that a kubelet could pull with.
    #[error("{place}: the pull Secret holds no usable docker config, please correct it")]
    Keyring {
        place: Place,
        #[source]
        source: KeyringError,
    },
    /// The decision's patch does not fit the Pod: our own fault.
    #[error(
        "{0}: the decision does not fit this Pod; this is a defect of the program, please report it"
    )]
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

/// What is wrong with a manifest, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// A document that is no mapping.
    #[error("not a Kubernetes object; give a mapping with `apiVersion`, `kind` and `metadata`")]
    NotAnObject,
    /// An object that does not say what it is.
    #[error("`{0}` is missing or no text; say what the object is")]
    NoType(&'static str),
    /// Neither name.
    #[error("{kind} without `metadata.name` or `metadata.generateName`; give it one of them")]
    NoName { kind: String },
    /// A part that every object of the kind has.
    #[error("{kind} {name}: `{path}` is missing or no mapping; write it")]
    NoPart {
        kind: String,
        name: String,
        path: String,
    },
    /// The items of a list.
    #[error("`items` of {kind} is no list; make it one")]
    Items { kind: String },
    /// A name that is no text.
    #[error("`metadata.{0}` is no text; put it in quotes")]
    NameNotText(&'static str),
    /// Annotations or labels of another shape.
    #[error("`metadata.{0}` is no mapping; write `key: \"value\"` lines")]
    NotAMap(&'static str),
    /// An annotation or label with a value that is no text.
    #[error("`metadata.{map}.{key}` is {found}, not text; put the value in quotes")]
    NotText {
        map: &'static str,
        key: String,
        found: &'static str,
    },
}

/// What is wrong with a Secret, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretProblem {
    /// The kubelet pulls with one type only (the old form aside, which we do not copy).
    #[error(
        "the Secret's type is not `{expected}`, so the webhook would not use it; set `type`",
        expected = api::names::DOCKER_CONFIG_TYPE
    )]
    Type,
    /// The one key that matters.
    #[error(
        "the Secret has no text under `{key}` in `data` or `stringData`; add it",
        key = api::names::DOCKER_CONFIG_KEY
    )]
    NoKey,
    /// Data of a Secret is base64.
    #[error(
        "`{key}` in `data` of the Secret is not base64; encode it, or use `stringData`",
        key = api::names::DOCKER_CONFIG_KEY
    )]
    Base64,
}
