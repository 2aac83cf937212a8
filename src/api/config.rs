//! Configuration document of the webhook: the public JSON with additional optional keys.
//!
//! [`Document::parse`] checks only the *structure*. `policy::admission::Configuration` checks the semantics (contradictory
//! features, cycles in `overrides`). The format is that of <https://github.com/kyma-project/rt-bootstrapper>, with further
//! keys.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::json::FieldPath;
use raw::Raw;
use selector::null_is_default;

mod raw;
mod selector;
#[cfg(test)]
mod tests;

pub use selector::{LabelOperator, LabelRequirement, LabelSelector, SelectorError};

/// All supported keys of the document, as paths.
pub const KEYS: [&str; 14] = [
    "overrides",
    "availableFeatures",
    "namespaceFeatures",
    "clusterTrustBundle",
    "clusterTrustBundle.name",
    "clusterTrustBundle.certWritePath",
    "clusterTrustBundle.volumeMountPath",
    "clusterTrustBundle.volumeName",
    "fipsVariables",
    "imagePullSecret",
    "imagePullSecret.name",
    "imagePullSecret.inject",
    "imagePullSecret.namespaceSelector",
    "optOut",
];

/// Configuration document of the webhook (runtime-bootstrapper): the permitted changes of Pods, and the Pods to which they apply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema), schemars(with = "Raw"))]
pub struct Document {
    /// Registry host (with port, if any) → replacement prefix.
    pub overrides: BTreeMap<String, String>,
    /// ClusterTrustBundle that is mounted; without it the feature has no effect.
    pub cluster_trust_bundle: Option<ClusterTrustBundle>,
    /// Namespace → features (or the alias `all`) that all its Pods get.
    pub namespace_features: BTreeMap<String, Vec<String>>,
    /// Features that are available; empty means none.
    pub available_features: Vec<String>,
    /// Variables that switch a workload to FIPS mode; `None` means the default.
    pub fips_variables: Option<Vec<String>>,
    /// Name of the pull Secret, and the Pods and namespaces that get it.
    pub image_pull_secret: ImagePullSecret,
    /// Features for which the value `"false"` of a Pod has priority; `None` means the default (only the trust bundle).
    pub opt_out: Option<Vec<String>>,
    /// Unsupported keys. They are accepted, because a newer document must not break an older webhook.
    pub unknown_keys: Vec<FieldPath>,
    /// Keys of `overrides` and `namespaceFeatures` that occur more than once. The last occurrence applies.
    pub duplicate_keys: Vec<FieldPath>,
}

/// ClusterTrustBundle and its location in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterTrustBundle {
    /// Name of the ClusterTrustBundle object.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// File name of the certificates inside the volume: a relative path.
    #[serde(deserialize_with = "null_is_default")]
    pub cert_write_path: String,
    /// Path in the container at which the volume is mounted.
    #[serde(deserialize_with = "null_is_default")]
    pub volume_mount_path: String,
    /// Name of the volume that is added to the Pod.
    #[serde(deserialize_with = "null_is_default")]
    pub volume_name: String,
}

/// Name of the pull Secret, and the Pods and namespaces that get it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePullSecret {
    /// Name of the pull Secret, in the namespace of the webhook and in every namespace with a copy. Without it, the value of
    /// the flag `--image-pull-secret-name`.
    pub name: Option<String>,
    /// When a Pod that opted in gets the entry in `imagePullSecrets`.
    #[serde(deserialize_with = "null_is_default")]
    pub inject: Inject,
    /// Label selector of the namespaces that may receive credentials. Without it, all namespaces.
    pub namespace_selector: Option<LabelSelector>,
}

/// When a Pod that opted in gets the entry of the pull Secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Inject {
    /// Only if the pull Secret has credentials for a registry of the Pod.
    #[default]
    Needed,
    /// Always if the Pod opted in, as in the public rt-bootstrapper.
    Always,
}

/// Reason why a text is not a valid configuration document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text is not JSON, or a value has the wrong type.
    #[error("line {line}, column {column}: {}", AtField(.path, .problem))]
    Shape {
        /// The field; empty after a syntax error.
        path: FieldPath,
        /// Expected and actual value.
        problem: String,
        /// Line of the text, counted from 1.
        line: usize,
        /// Column of the line, counted from 1.
        column: usize,
    },
    /// `overrides` is required; an empty object is sufficient.
    #[error("overrides: required ({{}} for none)")]
    NoOverrides,
    /// One of the four strings of `clusterTrustBundle` is missing or empty.
    #[error("clusterTrustBundle.{0}: required")]
    TrustBundle(&'static str),
    /// The API server would reject the label selector.
    #[error("imagePullSecret.namespaceSelector.matchExpressions[{index}].values: {cause}")]
    Selector {
        /// The index of the requirement.
        index: usize,
        /// Problem of the requirement.
        cause: SelectorError,
    },
}

/// A problem, prefixed with its field if there is one.
struct AtField<'a>(&'a FieldPath, &'a str);

impl fmt::Display for AtField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, problem) = self;
        match path.0.as_slice() {
            [] => f.write_str(problem),
            _ => write!(f, "{path}: {problem}"),
        }
    }
}

impl DocumentError {
    /// Returns the line of the error in the document, counted from 1, if the parser reports it.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Shape { line, .. } => Some(*line).filter(|line| *line > 0),
            _ => None,
        }
    }

    /// Returns the keys of the invalid field, for errors without a line. The last key may be missing in the document.
    #[must_use]
    pub fn path(&self) -> Vec<&str> {
        match self {
            Self::Shape { .. } => Vec::new(),
            Self::NoOverrides => vec!["overrides"],
            Self::TrustBundle(key) => vec!["clusterTrustBundle", key],
            Self::Selector { .. } => {
                vec!["imagePullSecret", "namespaceSelector", "matchExpressions"]
            }
        }
    }

    /// Returns the field and its problem without the position, for callers that print the position themselves.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::Shape { path, problem, .. } => AtField(path, problem).to_string(),
            other => other.to_string(),
        }
    }
}

impl Document {
    /// Parses a document.
    ///
    /// # Errors
    /// [`DocumentError`] if the text is not JSON of this structure, or a required key is missing.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let (raw, unknown_keys) = Raw::parse(text)?;
        let (overrides, twice) = raw.overrides.ok_or(DocumentError::NoOverrides)?.unique();
        let mut duplicate_keys = below("overrides", twice);
        let namespaces = raw.namespace_features.map(raw::Entries::unique);
        let (namespaces, twice) = namespaces.unwrap_or_default();
        duplicate_keys.extend(below("namespaceFeatures", twice));
        if let Some(bundle) = &raw.cluster_trust_bundle {
            bundle.check()?;
        }
        let image_pull_secret = raw.image_pull_secret.unwrap_or_default();
        if let Some(selector) = &image_pull_secret.namespace_selector {
            let checked = selector.check();
            checked.map_err(|(index, cause)| DocumentError::Selector { index, cause })?;
        }
        Ok(Self {
            overrides,
            cluster_trust_bundle: raw.cluster_trust_bundle,
            namespace_features: namespaces
                .into_iter()
                .map(|(namespace, features)| (namespace, features.unwrap_or_default()))
                .collect(),
            available_features: raw.available_features.unwrap_or_default(),
            fips_variables: raw.fips_variables,
            image_pull_secret,
            opt_out: raw.opt_out,
            unknown_keys,
            duplicate_keys,
        })
    }
}

impl ClusterTrustBundle {
    fn check(&self) -> Result<(), DocumentError> {
        let keys = [
            ("name", &self.name),
            ("certWritePath", &self.cert_write_path),
            ("volumeMountPath", &self.volume_mount_path),
            ("volumeName", &self.volume_name),
        ];
        match keys.into_iter().find(|(_, value)| value.is_empty()) {
            Some((key, _)) => Err(DocumentError::TrustBundle(key)),
            None => Ok(()),
        }
    }
}

fn below(parent: &str, keys: Vec<String>) -> Vec<FieldPath> {
    let keys = keys.into_iter();
    keys.map(|key| FieldPath::default().key(parent).key(key))
        .collect()
}
