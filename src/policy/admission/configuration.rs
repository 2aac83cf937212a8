//! The configuration of the webhook: a parsed and validated configuration document.

use std::collections::HashMap;

use api::config::{Document, Inject, LabelSelector};
use api::names::{FIPS_VARIABLE, LANDSCAPE_VARIABLE};
use api::syntax::is_subdomain;
use api::{ALL_KEY, Feature, FeatureSet, UnknownFeature};

use super::entry::Entry;
use super::overrides::Overrides;
use super::variables::Variable;
use notices::Unusable;

mod names;
mod notices;

pub use notices::Notice;

/// Settings of the process that are not in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the landscape; `None` disables `set-landscape`.
    pub landscape: Option<String>,
    /// Name of the pull Secret, unless the document contains one.
    pub pull_secret: String,
}

/// All configuration that a decision reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    settings: Settings,
    pub(super) overrides: Overrides,
    trust_bundle: Option<Result<TrustBundle, UnusableTrustBundle>>,
    namespaces: HashMap<String, FeatureSet>,
    available: FeatureSet,
    opt_out: FeatureSet,
    variables: Vec<Variable>,
    pull_secret: PullSecretRule,
    notices: Vec<Notice>,
}

/// The volume of the trust bundle and its mount path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// Name of the ClusterTrustBundle.
    pub name: String,
    /// File name inside the volume.
    pub file: String,
    /// The cleaned mount path.
    pub mount_path: String,
    /// Name of the volume.
    pub volume: String,
    pub(super) mount_entry: Entry,
    pub(super) volume_entry: Entry,
}

/// The key of `clusterTrustBundle` whose value would make the API server reject every Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusableTrustBundle(pub &'static str);

/// Rule that determines the Pods to which the pull Secret is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSecretRule {
    /// Name of the Secret.
    pub name: String,
    /// Condition for adding the entry.
    pub inject: Inject,
    /// Selector of the namespaces that may receive credentials; `None` means all.
    pub namespaces: Option<LabelSelector>,
    pub(super) entry: Entry,
}

/// Reason why a well-formed document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// A list names a feature that does not exist.
    #[error("{list}")]
    Feature {
        /// The key of the document.
        list: String,
        /// Name in the list.
        #[source]
        source: UnknownFeature,
    },
    /// A namespace has a feature that `availableFeatures` does not contain.
    #[error("namespaceFeatures.{namespace}: {key} is not in availableFeatures")]
    NotAvailable {
        /// Name of the namespace.
        namespace: String,
        /// Key of the feature.
        key: &'static str,
    },
    /// The overrides contain a cycle.
    #[error("overrides: cycle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// A name is not a valid name of an environment variable, or is reserved.
    #[error("fipsVariables: {0:?}: not a valid name of a variable, or reserved")]
    Variable(String),
    /// A name is not a valid name of a Secret.
    #[error("imagePullSecret.name: {0:?}: not a valid object name (RFC 1123 subdomain)")]
    PullSecretName(String),
}

impl ConfigurationError {
    /// Returns the path to the error in the document: keys, and the text of an item of a list.
    #[must_use]
    pub fn path(&self) -> Vec<&str> {
        match self {
            // A namespace has no dot in its name.
            Self::Feature { list, source } => list.split('.').chain([source.0.as_str()]).collect(),
            Self::NotAvailable { namespace, key } => vec!["namespaceFeatures", namespace, key],
            Self::Cycle(hosts) => [Some("overrides"), hosts.first().map(String::as_str)]
                .into_iter()
                .flatten()
                .collect(),
            Self::Variable(name) => vec!["fipsVariables", name],
            Self::PullSecretName(_) => vec!["imagePullSecret", "name"],
        }
    }
}

impl Configuration {
    /// Validates a document and resolves its overrides.
    ///
    /// # Errors
    /// [`ConfigurationError`] if the document is invalid or contradictory.
    pub fn new(document: &Document, settings: &Settings) -> Result<Self, ConfigurationError> {
        let available = features("availableFeatures", &document.available_features, false)?;
        let (overrides, unusable) = Overrides::resolve(&document.overrides)
            .map_err(|it| ConfigurationError::Cycle(it.0))?;
        let trust_bundle = document
            .cluster_trust_bundle
            .as_ref()
            .map(names::trust_bundle);
        let namespaces = namespaces(document, available)?;
        let unusable = Unusable {
            overrides: unusable,
            trust_bundle: match &trust_bundle {
                Some(Err(unusable)) => Some(*unusable),
                _ => None,
            },
        };
        Ok(Self {
            settings: settings.clone(),
            overrides,
            trust_bundle,
            namespaces,
            available,
            opt_out: match &document.opt_out {
                Some(list) => features("optOut", list, true)?,
                None => FeatureSet::from_iter([Feature::TrustBundle]),
            },
            variables: variables(document, settings)?,
            pull_secret: pull_secret(document, settings)?,
            notices: notices::of(document, unusable),
        })
    }

    /// What the process added to the document.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is odd about the document.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns the available features.
    #[must_use]
    pub fn available(&self) -> FeatureSet {
        self.available
    }

    /// Returns the features that every Pod of the namespace gets.
    #[must_use]
    pub fn namespace_features(&self, namespace: &str) -> FeatureSet {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// Returns the bundle to mount. `None` if the document names no bundle; an error with the invalid key if the
    /// bundle cannot be mounted.
    #[must_use]
    pub fn trust_bundle(&self) -> Option<Result<&TrustBundle, UnusableTrustBundle>> {
        let bundle = self.trust_bundle.as_ref()?;
        Some(bundle.as_ref().map_err(|unusable| *unusable))
    }

    /// Returns the rule that determines the Pods to which the pull Secret is added.
    #[must_use]
    pub fn pull_secret(&self) -> &PullSecretRule {
        &self.pull_secret
    }

    /// Returns an image whose registry an override replaces; `None` if there is no such override.
    #[must_use]
    pub fn overridden_image(&self) -> Option<String> {
        self.overrides.example()
    }

    /// Returns the namespaces with features in the document, in alphabetical order.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&str, FeatureSet)> {
        let mut all: Vec<_> = self.namespaces.iter().collect();
        all.sort_unstable_by_key(|it| it.0);
        all.into_iter().map(|(namespace, set)| (&**namespace, *set))
    }

    /// The features that a Pod may opt out of.
    #[must_use]
    pub fn opt_out(&self) -> FeatureSet {
        self.opt_out
    }

    pub(super) fn variables(&self) -> &[Variable] {
        &self.variables
    }
}

/// Reads a list of feature keys. If `alias` is set, the key for all features is allowed.
fn features(list: &str, keys: &[String], alias: bool) -> Result<FeatureSet, ConfigurationError> {
    let mut set = FeatureSet::EMPTY;
    for key in keys {
        if alias && key == ALL_KEY {
            set = set.union(FeatureSet::from_iter(Feature::ALL));
            continue;
        }
        let feature = Feature::from_key(key).ok_or_else(|| ConfigurationError::Feature {
            list: list.to_owned(),
            source: UnknownFeature(key.clone()),
        })?;
        set.insert(feature);
    }
    Ok(set)
}

fn namespaces(
    document: &Document,
    available: FeatureSet,
) -> Result<HashMap<String, FeatureSet>, ConfigurationError> {
    let mut namespaces = HashMap::with_capacity(document.namespace_features.len());
    for (namespace, keys) in &document.namespace_features {
        let explicit: Vec<String> = keys.iter().filter(|key| *key != ALL_KEY).cloned().collect();
        let mut set = features(&format!("namespaceFeatures.{namespace}"), &explicit, false)?;
        // The oldest documents have no `availableFeatures`: they are valid, and no feature is applied.
        if let Some(feature) = set.difference(available).iter().next()
            && !available.is_empty()
        {
            return Err(ConfigurationError::NotAvailable {
                namespace: namespace.clone(),
                key: feature.key(),
            });
        }
        if explicit.len() < keys.len() {
            set = set.union(available);
        }
        namespaces.insert(namespace.clone(), set);
    }
    Ok(namespaces)
}

fn variables(
    document: &Document,
    settings: &Settings,
) -> Result<Vec<Variable>, ConfigurationError> {
    let fips = fips_variables(document)?.into_iter();
    let fips = fips.map(|name| Variable::new(Feature::FipsMode, name, "true"));
    let landscape = settings.landscape.as_deref().filter(|it| !it.is_empty());
    let landscape =
        landscape.map(|it| Variable::new(Feature::Landscape, LANDSCAPE_VARIABLE.to_owned(), it));
    Ok(fips.chain(landscape).collect())
}

fn fips_variables(document: &Document) -> Result<Vec<String>, ConfigurationError> {
    let Some(written) = &document.fips_variables else {
        return Ok(vec![FIPS_VARIABLE.to_owned()]);
    };
    let mut variables: Vec<String> = Vec::with_capacity(written.len());
    for name in written {
        // If two features set one variable to different values, each would overwrite the value of the other one.
        if !names::is_variable(name) || name == LANDSCAPE_VARIABLE {
            return Err(ConfigurationError::Variable(name.clone()));
        }
        if !variables.contains(name) {
            variables.push(name.clone());
        }
    }
    Ok(variables)
}

fn pull_secret(
    document: &Document,
    settings: &Settings,
) -> Result<PullSecretRule, ConfigurationError> {
    let written = &document.image_pull_secret;
    let name = written
        .name
        .clone()
        .unwrap_or_else(|| settings.pull_secret.clone());
    if !is_subdomain(&name) {
        return Err(ConfigurationError::PullSecretName(name));
    }
    Ok(PullSecretRule {
        entry: Entry::pull_secret(&name),
        name,
        inject: written.inject,
        namespaces: written.namespace_selector.clone(),
    })
}
