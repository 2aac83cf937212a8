//! Which revision of configuration, pull Secret and trust bundle is active.
//!
//! The three are observed by three watches. Annotations of the ConfigMap require hashes of the Secret and the bundle, so
//! a revision becomes active only when all its objects are there; until then the one before stays active as a whole,
//! however long that takes. An object without a hash (KIM writes none) and a document without requirements are
//! used as they are. No IO and no clock; every state is an immutable value that follows from the one before.

use std::sync::Arc;

use api::runtimes::{CONTENT_HASH, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::admission::{Configuration, TrustBundlePresence};

use super::PullSecretSource;

/// What decisions read, and what is copied: one revision.
#[derive(Clone, Default)]
pub(crate) struct ActiveRevision {
    /// The configuration; `None` until a valid document was observed.
    pub(crate) configuration: Option<Arc<Configuration>>,
    /// The pull Secret of the product namespace.
    pub(crate) pull_secret: Arc<PullSecretSource>,
    /// Whether the configured ClusterTrustBundle exists.
    pub(crate) trust_bundle: TrustBundlePresence,
}

/// The objects that the watches observed last. They may be of different revisions.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct LatestRevision {
    /// The last valid document.
    pub(crate) configuration: Option<Arc<Configuration>>,
    /// What its ConfigMap requires.
    pub(crate) requirements: Requirements,
    pub(crate) pull_secret: Arc<PullSecretSource>,
    pub(crate) trust_bundle: ObservedObject,
}

/// The hashes that a ConfigMap requires. Without one the object is used as it is; [`REQUIRES_NONE`] means that the
/// revision has no such object, whatever exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requirements {
    pub(crate) pull_secret: Option<String>,
    pub(crate) trust_bundle: Option<String>,
}

/// Name and hash of an object. Hashes are compared and never computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedObject {
    /// The object's name; `None` for any.
    pub(crate) name: Option<String>,
    pub(crate) hash: ObservedHash,
}

/// What is known of an object's hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ObservedHash {
    #[default]
    Unknown,
    Absent,
    /// The API server does not serve the kind.
    Unserved,
    /// The object has no hash.
    None,
    /// The object has this hash.
    Hash(String),
}

/// The latest objects and the active revision.
#[derive(Clone, Default)]
pub(super) struct Revisions {
    pub(super) latest: LatestRevision,
    pub(super) active: Arc<ActiveRevision>,
    /// Why the latest objects are not of one revision, if that is to be reported.
    pub(super) mismatch: Option<String>,
    /// Whether the active revision was complete when it became active.
    is_complete: bool,
}

const NOT_OBSERVED: &str = "is not observed yet";

impl Revisions {
    /// What follows from a change of the latest objects; `None` if nothing changed.
    pub(super) fn after(&self, change: impl FnOnce(&mut LatestRevision)) -> Option<Self> {
        let mut latest = self.latest.clone();
        change(&mut latest);
        (latest != self.latest).then(|| self.follow(latest))
    }

    /// A complete revision stays active until the next one is complete. Before the first complete one, the latest
    /// objects are active, and an object that is not observed yet is not reported: its watch does that.
    fn follow(&self, latest: LatestRevision) -> Self {
        let mismatches = latest.mismatches();
        let is_one = mismatches.is_empty();
        let keep = self.is_complete && !is_one;
        let is_starting = !keep && mismatches.iter().any(|(_, text)| *text == NOT_OBSERVED);
        let mismatch = (!is_one && !is_starting).then(|| {
            let objects = mismatches
                .iter()
                .map(|(object, text)| format!("the {object} {text}; "));
            let consequence = if keep {
                "the previous revision stays active"
            } else {
                "no revision was active, objects are used as they are"
            };
            objects.collect::<String>() + consequence
        });
        Self {
            active: if keep {
                Arc::clone(&self.active)
            } else {
                Arc::new(latest.activated())
            },
            mismatch,
            is_complete: keep || (is_one && latest.configuration.is_some()),
            latest,
        }
    }
}

impl ActiveRevision {
    /// Whether the pull Secret is known not to exist, or the revision has none. One that cannot be used exists.
    pub(crate) fn lacks_pull_secret(&self) -> bool {
        let name = secret_name(self.configuration.as_deref());
        *self.pull_secret.object.hash_of(name) == ObservedHash::Absent
    }
}

impl LatestRevision {
    /// The objects that are not of the revision of the configuration, and why; empty if all are.
    pub(super) fn mismatches(&self) -> Vec<(&'static str, &'static str)> {
        let Requirements {
            pull_secret,
            trust_bundle,
        } = &self.requirements;
        // A document without a bundle does not wait for one.
        let trust_bundle = trust_bundle
            .as_deref()
            .filter(|_| self.bundle_name().is_some());
        let objects = [
            (
                "pull Secret",
                pull_secret.as_deref(),
                self.pull_secret_hash(),
            ),
            ("trust bundle", trust_bundle, self.bundle_hash()),
        ];
        let mismatches = objects
            .into_iter()
            .filter_map(|(object, required, observed)| {
                let required = required.filter(|it| *it != REQUIRES_NONE)?;
                let text = match observed {
                    ObservedHash::Unknown => NOT_OBSERVED,
                    ObservedHash::Absent => "is missing",
                    ObservedHash::Hash(hash) if hash != required => "belongs to another revision",
                    // An API server that does not serve the kind will never have the object.
                    ObservedHash::Hash(_) | ObservedHash::None | ObservedHash::Unserved => {
                        return None;
                    }
                };
                Some((object, text))
            });
        mismatches.collect()
    }

    /// These objects as decisions read them.
    fn activated(&self) -> ActiveRevision {
        let is_none = |required: &Option<String>| required.as_deref() == Some(REQUIRES_NONE);
        let name = secret_name(self.configuration.as_deref());
        ActiveRevision {
            configuration: self.configuration.clone(),
            pull_secret: match name {
                Some(name) if is_none(&self.requirements.pull_secret) => {
                    Arc::new(PullSecretSource::none(ObservedObject::absent(name)))
                }
                _ if *self.pull_secret_hash() == ObservedHash::Unknown => Arc::default(),
                _ => Arc::clone(&self.pull_secret),
            },
            trust_bundle: match self.bundle_hash().presence() {
                TrustBundlePresence::Unserved => TrustBundlePresence::Unserved,
                _ if is_none(&self.requirements.trust_bundle) => TrustBundlePresence::Absent,
                presence => presence,
            },
        }
    }

    fn pull_secret_hash(&self) -> &ObservedHash {
        let name = secret_name(self.configuration.as_deref());
        self.pull_secret.object.hash_of(name)
    }

    fn bundle_hash(&self) -> &ObservedHash {
        self.trust_bundle.hash_of(self.bundle_name())
    }

    fn bundle_name(&self) -> Option<&str> {
        bundle_name(self.configuration.as_ref()?)
    }
}

fn secret_name(configuration: Option<&Configuration>) -> Option<&str> {
    configuration.map(|it| &*it.pull_secret().name)
}

/// The bundle that a configuration mounts, if any.
pub(crate) fn bundle_name(configuration: &Configuration) -> Option<&str> {
    Some(&configuration.trust_bundle()?.ok()?.name)
}

impl Requirements {
    /// Reads the annotations of a ConfigMap.
    pub(crate) fn read(metadata: &ObjectMeta) -> Self {
        Self {
            pull_secret: annotation(metadata, REQUIRES_PULL_SECRET),
            trust_bundle: annotation(metadata, REQUIRES_TRUST_BUNDLE),
        }
    }
}

impl ObservedObject {
    /// An object that exists.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let hash = annotation(metadata, CONTENT_HASH);
        Self {
            name: metadata.name.clone(),
            hash: hash.map_or(ObservedHash::None, ObservedHash::Hash),
        }
    }

    /// An object that does not exist.
    pub(crate) fn absent(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            hash: ObservedHash::Absent,
        }
    }

    /// The hash of the object of that name: an object of another name tells nothing about it.
    fn hash_of(&self, name: Option<&str>) -> &ObservedHash {
        match (&self.name, name) {
            (Some(observed), Some(name)) if observed != name => &ObservedHash::Unknown,
            _ => &self.hash,
        }
    }
}

impl ObservedHash {
    /// Whether the object exists.
    pub(crate) fn presence(&self) -> TrustBundlePresence {
        match self {
            Self::Unknown => TrustBundlePresence::Unknown,
            Self::Absent => TrustBundlePresence::Absent,
            Self::Unserved => TrustBundlePresence::Unserved,
            Self::None | Self::Hash(_) => TrustBundlePresence::Present,
        }
    }
}

/// For what is known without an object.
impl From<TrustBundlePresence> for ObservedObject {
    fn from(presence: TrustBundlePresence) -> Self {
        let hash = match presence {
            TrustBundlePresence::Unknown => ObservedHash::Unknown,
            TrustBundlePresence::Absent => ObservedHash::Absent,
            TrustBundlePresence::Unserved => ObservedHash::Unserved,
            TrustBundlePresence::Present => ObservedHash::None,
        };
        Self { name: None, hash }
    }
}

/// The value of an annotation that is not empty.
fn annotation(metadata: &ObjectMeta, key: &str) -> Option<String> {
    let value = metadata.annotations.as_ref()?.get(key)?;
    (!value.is_empty()).then(|| value.clone())
}

#[cfg(test)]
mod tests;
