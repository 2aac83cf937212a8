//! A configuration document that has been understood: what it holds cannot be wrong any more.

use std::collections::HashMap;

use api::config::{Document, Inject, LabelSelector};
use api::names::{FIPS_VARIABLE, LANDSCAPE_VARIABLE};
use api::{ALL_KEY, Feature, FeatureSet, UnknownFeature};

use super::entry::Entry;
use super::overrides::Overrides;
use super::variables::Variable;
use notices::Unusable;

mod names;
mod notices;

pub use notices::Notice;

/// What the process adds to the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The landscape's name; `None` skips `set-landscape`.
    pub landscape: Option<String>,
    /// The pull Secret's name where the document gives none.
    pub pull_secret: String,
}

/// Everything that a decision reads from the configuration.
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

/// The trust bundle's volume and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// The ClusterTrustBundle's name.
    pub name: String,
    /// The file inside the volume.
    pub file: String,
    /// The mount path, cleaned.
    pub mount_path: String,
    /// The volume's name.
    pub volume: String,
    pub(super) mount_entry: Entry,
    pub(super) volume_entry: Entry,
}

/// The key of `clusterTrustBundle` that would make the API server refuse every Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusableTrustBundle(pub &'static str);

/// When and where the pull Secret is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSecretRule {
    /// The Secret's name.
    pub name: String,
    /// When the entry is added.
    pub inject: Inject,
    /// The namespaces that credentials may go to; `None` means all.
    pub namespaces: Option<LabelSelector>,
    pub(super) entry: Entry,
}

/// Why a document of the right shape cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// A list names a feature that does not exist.
    #[error("{list}")]
    Feature {
        /// The key of the document.
        list: String,
        /// The name.
        #[source]
        source: UnknownFeature,
    },
    /// A namespace is given a feature that the catalogue lacks.
    #[error("namespaceFeatures.{namespace}: {key} is not in availableFeatures")]
    NotAvailable {
        /// The namespace.
        namespace: String,
        /// The feature's key.
        key: &'static str,
    },
    /// Overrides that lead back to themselves.
    #[error("overrides: cycle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// A name that no environment could hold, or that is taken.
    #[error("fipsVariables: {0:?}: not a valid name of a variable, or reserved")]
    Variable(String),
    /// A name that no Secret can have.
    #[error("imagePullSecret.name: {0:?}: not a valid object name (RFC 1123 subdomain)")]
    PullSecretName(String),
}

impl ConfigurationError {
    /// What leads to the fault in the document: keys, and an item of a list by its text.
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
    /// Understands a document.
    ///
    /// # Errors
    /// [`ConfigurationError`] if its parts contradict each other.
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

    /// Features that may be used at all.
    #[must_use]
    pub fn available(&self) -> FeatureSet {
        self.available
    }

    /// Features that every Pod of the namespace gets.
    #[must_use]
    pub fn namespace_features(&self, namespace: &str) -> FeatureSet {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// The bundle to mount; `None` if the document names none, the key at fault if it cannot be mounted.
    #[must_use]
    pub fn trust_bundle(&self) -> Option<Result<&TrustBundle, UnusableTrustBundle>> {
        self.trust_bundle.as_ref().map(|it| match it {
            Ok(bundle) => Ok(bundle),
            Err(unusable) => Err(*unusable),
        })
    }

    /// When and where the pull Secret is named.
    #[must_use]
    pub fn pull_secret(&self) -> &PullSecretRule {
        &self.pull_secret
    }

    /// An image whose registry an override replaces; `None` if there is no such override.
    #[must_use]
    pub fn overridden_image(&self) -> Option<String> {
        self.overrides.example()
    }

    /// The namespaces that the document gives features, in their order.
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

/// Reads a list of feature keys. An alias stands for every feature where it is allowed.
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
        // An empty catalogue is the oldest documents' shape: they load, and nothing runs.
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
        // Two features that set one variable to different values would undo each other for ever.
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
    if !names::is_subdomain(&name) {
        return Err(ConfigurationError::PullSecretName(name));
    }
    Ok(PullSecretRule {
        entry: Entry::pull_secret(&name),
        name,
        inject: written.inject,
        namespaces: written.namespace_selector.clone(),
    })
}
