//! The webhook's configuration document: the public JSON plus our optional keys.
//!
//! [`Document::parse`] checks the *shape*; what the words mean together (features that contradict each other,
//! cycles in `overrides`) is decided by `policy::admission::Configuration`.
//! The format is that of <https://github.com/kyma-project/rt-bootstrapper>, with further keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

#[cfg(feature = "crds")]
mod schema;
#[cfg(test)]
mod tests;

#[cfg(feature = "crds")]
pub use self::schema::schema;

/// A configuration document of the right shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Registry host (with port, if any) → replacement prefix.
    pub overrides: BTreeMap<String, String>,
    /// The bundle to mount; without it the feature does nothing.
    pub cluster_trust_bundle: Option<ClusterTrustBundle>,
    /// Namespace → features (or the alias `all`) that every Pod of it gets.
    pub namespace_features: BTreeMap<String, Vec<String>>,
    /// Features that may be used at all; empty means none.
    pub available_features: Vec<String>,
    /// Variables that switch a workload to FIPS mode; `None` means the default.
    pub fips_variables: Option<Vec<String>>,
    /// How the pull Secret is named and spread.
    pub image_pull_secret: ImagePullSecret,
    /// Features for which a Pod's `"false"` wins; `None` means the default (the trust bundle alone).
    pub opt_out: Option<Vec<String>>,
}

/// The ClusterTrustBundle and where a container finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTrustBundle {
    /// Name of the ClusterTrustBundle object.
    pub name: String,
    /// File name inside the projected volume.
    pub cert_write_path: String,
    /// Mount path in the container.
    pub volume_mount_path: String,
    /// Name of the Pod's volume.
    pub volume_name: String,
}

/// How the pull Secret is named, and which Pods and namespaces get it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePullSecret {
    /// Name of the pull Secret, in the namespace of the webhook and in every namespace with a copy. Without it, the value of
    /// the flag `--image-pull-secret-name`.
    pub name: Option<String>,
    /// When a Pod that opted in gets the entry in `imagePullSecrets`.
    pub inject: Inject,
    /// Label selector of the namespaces that may receive credentials. Without it, all namespaces.
    pub namespace_selector: Option<LabelSelector>,
}

/// When a Pod that opted in gets the pull Secret's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Inject {
    /// Only if the pull Secret has credentials for a registry of the Pod.
    #[default]
    Needed,
    /// Every Pod that opted in, as the public rt-bootstrapper does it.
    Always,
}

/// A label selector of Kubernetes' meaning: all requirements must hold, an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must be present with exactly these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all of them must hold.
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LabelRequirement {
    /// Key of the label.
    pub key: String,
    /// How the label is compared with `values`.
    pub operator: LabelOperator,
    /// Values that the label is compared with; empty for `Exists` and `DoesNotExist`.
    #[serde(default)]
    pub values: Vec<String>,
}

/// Operator of a [`LabelRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether a set of labels satisfies every requirement.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|it| it.matches(labels))
    }
}

impl LabelRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            LabelOperator::In => value.is_some_and(|value| self.values.contains(value)),
            LabelOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// Why a text is no configuration document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, or a value of the wrong type; the source names line and column.
    #[error("the document cannot be read as JSON of the expected shape")]
    Shape(#[source] serde_json::Error),
    /// `overrides` is required; an empty object is enough.
    #[error("`overrides` is missing (use {{}} for none)")]
    NoOverrides,
    /// One of the four strings of `clusterTrustBundle` is missing or empty.
    #[error("`clusterTrustBundle.{0}` is missing or empty")]
    TrustBundle(&'static str),
}

impl DocumentError {
    /// Line of the document at fault, counted from 1, where the parser knows it.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Shape(source) if source.line() > 0 => Some(source.line()),
            _ => None,
        }
    }

    /// The keys that lead to what is at fault, where it is no matter of lines; the last of them may be missing.
    #[must_use]
    pub fn path(&self) -> Vec<&str> {
        match self {
            Self::Shape(_) => Vec::new(),
            Self::NoOverrides => vec!["overrides"],
            Self::TrustBundle(key) => vec!["clusterTrustBundle", key],
        }
    }
}

/// Configuration document of the webhook (runtime-bootstrapper): what it may change in Pods, and for whom.
// What JSON gives us: every key may be absent or null, as in the public decoder; unknown keys are ignored. The comments of
// the fields are what an editor shows.
#[derive(Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Raw {
    /// Path or URL of the JSON Schema for editors. The webhook ignores it.
    #[serde(rename = "$schema")]
    #[cfg_attr(feature = "crds", schemars(with = "Option<String>"))]
    _schema: Option<IgnoredAny>,
    /// Registry host, with port if any, and the registry that replaces it, which may have a path. `docker.io` covers every
    /// reference that resolves to Docker Hub, such as `nginx`. Chains are resolved when the document is loaded; a cycle is
    /// invalid. Required; `{}` means that no registry is replaced.
    overrides: Option<BTreeMap<String, String>>,
    /// ClusterTrustBundle that the feature `add-cluster-trust-bundle` mounts. The four keys are required together.
    cluster_trust_bundle: Option<RawTrustBundle>,
    /// Namespace and the features that all its Pods get without an annotation. `all` stands for every available feature.
    namespace_features: Option<BTreeMap<String, Option<Vec<String>>>>,
    /// Features that this cluster offers, by annotation key. If the list is empty, no Pod is changed.
    available_features: Option<Vec<String>>,
    /// Environment variables that the feature `set-fips-mode` sets to `true`.
    fips_variables: Option<Vec<String>>,
    /// How the pull Secret is named, and which Pods and namespaces get it.
    image_pull_secret: Option<ImagePullSecret>,
    /// Features that a Pod can opt out of with the annotation value `"false"`, whoever opted in.
    opt_out: Option<Vec<String>>,
}

/// The ClusterTrustBundle and where a container finds it.
#[derive(Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RawTrustBundle {
    /// Name of the ClusterTrustBundle object.
    name: Option<String>,
    /// File name of the certificates inside the volume: a relative path.
    cert_write_path: Option<String>,
    /// Path in the container at which the volume is mounted.
    volume_mount_path: Option<String>,
    /// Name of the volume that is added to the Pod.
    volume_name: Option<String>,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// [`DocumentError`] if the text is no JSON of this shape, or a required key is missing.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let raw: Raw = serde_json::from_str(text).map_err(DocumentError::Shape)?;
        Ok(Self {
            overrides: raw.overrides.ok_or(DocumentError::NoOverrides)?,
            cluster_trust_bundle: raw
                .cluster_trust_bundle
                .map(ClusterTrustBundle::try_from)
                .transpose()?,
            namespace_features: raw
                .namespace_features
                .unwrap_or_default()
                .into_iter()
                .map(|(namespace, features)| (namespace, features.unwrap_or_default()))
                .collect(),
            available_features: raw.available_features.unwrap_or_default(),
            fips_variables: raw.fips_variables,
            image_pull_secret: raw.image_pull_secret.unwrap_or_default(),
            opt_out: raw.opt_out,
        })
    }
}

impl TryFrom<RawTrustBundle> for ClusterTrustBundle {
    type Error = DocumentError;

    fn try_from(raw: RawTrustBundle) -> Result<Self, DocumentError> {
        Ok(Self {
            name: required(raw.name, "name")?,
            cert_write_path: required(raw.cert_write_path, "certWritePath")?,
            volume_mount_path: required(raw.volume_mount_path, "volumeMountPath")?,
            volume_name: required(raw.volume_name, "volumeName")?,
        })
    }
}

fn required(value: Option<String>, key: &'static str) -> Result<String, DocumentError> {
    value
        .filter(|value| !value.is_empty())
        .ok_or(DocumentError::TrustBundle(key))
}
