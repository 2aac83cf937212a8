//! Decides which revision of configuration, pull Secret and trust bundle is active.
//!
//! Three watches observe the three objects. Annotations of the ConfigMap require hashes of the Secret and the bundle, so a
//! revision becomes active only when all its objects are observed. Until then the previous revision stays completely
//! active, for any length of time. An object without a hash (KIM writes none) and a document without requirements are used
//! directly. However, a Secret or bundle with another name is awaited until it is known whether it exists. Otherwise Pods
//! that are created in between would get neither, and a Secret that the replica may not read would stop working pulls. No
//! I/O and no clock; each state is an immutable value that is computed from the previous state.

use std::sync::Arc;

use api::kcp::{CONTENT_HASH, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::admission::{Configuration, TrustBundlePresence};
use sha2::{Digest as _, Sha256};

use super::PullSecretSource;

/// One revision: the information for decisions, and the content that is copied.
#[derive(Clone, Default)]
pub(crate) struct ActiveRevision {
    /// The configuration; `None` until a valid document was observed.
    pub(crate) configuration: Option<Arc<Configuration>>,
    /// The pull Secret of the product namespace.
    pub(crate) pull_secret: Arc<PullSecretSource>,
    /// Whether the configured ClusterTrustBundle exists.
    pub(crate) trust_bundle: TrustBundlePresence,
    /// The ConfigMap of the configuration.
    pub(crate) document: ObservedObject,
    /// The observed ClusterTrustBundle; unknown if the revision has none.
    pub(crate) bundle: ObservedObject,
}

/// The objects that the watches observed last. They may be of different revisions.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct LatestRevision {
    /// The last valid document.
    pub(crate) configuration: Option<Arc<Configuration>>,
    /// ConfigMap of this document.
    pub(crate) document: ObservedObject,
    /// Requirements of this ConfigMap.
    pub(crate) requirements: Requirements,
    pub(crate) pull_secret: Arc<PullSecretSource>,
    pub(crate) trust_bundle: ObservedObject,
}

/// The hashes that a ConfigMap requires. Without a hash the object is used directly. [`REQUIRES_NONE`] means that the
/// revision has no such object, even if one exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requirements {
    pub(crate) pull_secret: Option<String>,
    pub(crate) trust_bundle: Option<String>,
}

/// The observed state of an object. Hashes are compared and never computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedObject {
    /// Name of the object; `None` means any name.
    name: Option<String>,
    pub(crate) presence: TrustBundlePresence,
    /// Hash of an object that has one.
    hash: Option<String>,
    /// Times of creation and of the last write, by the clock of the API server.
    pub(crate) times: Option<ObjectTimes>,
    /// Digest of the content, if the watch reads it.
    pub(crate) content: Option<[u8; 32]>,
    /// The text of a document.
    pub(crate) text: Option<Arc<str>>,
}

/// Times of the creation and of the last write of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectTimes {
    pub(crate) created: Timestamp,
    pub(crate) written: Timestamp,
}

/// The latest objects and the active revision.
#[derive(Clone, Default)]
pub(super) struct Revisions {
    pub(super) latest: LatestRevision,
    pub(super) active: Arc<ActiveRevision>,
    /// Reason why the latest objects are not of one revision, if this must be reported.
    pub(super) mismatch: Option<String>,
    /// Whether the active revision was complete when it became active.
    is_complete: bool,
}

const NOT_OBSERVED: &str = "is not observed yet";

impl Revisions {
    /// Returns the state after a change of the latest objects; `None` if nothing changed.
    pub(super) fn after(&self, change: impl FnOnce(&mut LatestRevision)) -> Option<Self> {
        let mut latest = self.latest.clone();
        change(&mut latest);
        (latest != self.latest).then(|| self.follow(latest))
    }

    /// Computes the next state. A complete revision stays active until the next one is complete, except that a deleted trust
    /// bundle is not used. Before the first complete
    /// revision, the latest objects are active. An object that is not observed yet is not reported here, because its watch
    /// reports it.
    fn follow(&self, latest: LatestRevision) -> Self {
        let mut mismatches = latest.mismatches();
        if self.is_complete && mismatches.is_empty() {
            mismatches = latest.new_and_unknown(&self.active);
        }
        let is_one = mismatches.is_empty();
        let keep = self.is_complete && !is_one;
        let is_starting = !keep && mismatches.iter().any(|(_, text)| *text == NOT_OBSERVED);
        let mismatch = (!is_one && !is_starting).then(|| {
            let objects = mismatches.iter();
            let objects = objects.map(|(object, text)| format!("the {object} {text}; "));
            let consequence = if keep {
                "the previous revision stays active"
            } else {
                "no revision was active, objects are used as they are"
            };
            objects.collect::<String>() + consequence
        });
        Self {
            active: if keep {
                self.kept(&latest)
            } else {
                Arc::new(latest.activated())
            },
            mismatch,
            is_complete: keep || (is_one && latest.configuration.is_some()),
            latest,
        }
    }

    /// Returns the active revision while the next one is not complete. Its trust bundle exists if Pods can mount the object,
    /// because a Pod that mounts a bundle that was deleted, or that is not projected, does not start or has an empty directory.
    fn kept(&self, latest: &LatestRevision) -> Arc<ActiveRevision> {
        use TrustBundlePresence::{Absent, NotProjected, Present, Unserved};
        let active = &self.active;
        let name = active.configuration.as_deref().and_then(bundle_name);
        let observed = latest.trust_bundle.named(name);
        let is_unusable = |it| matches!(it, Absent | NotProjected | Unserved);
        let is_lost = active.trust_bundle == Present && is_unusable(observed.presence);
        let is_back = is_unusable(active.bundle.presence) && observed.presence == Present;
        if name.is_none() || !(is_lost || is_back) {
            return Arc::clone(active);
        }
        Arc::new(ActiveRevision {
            trust_bundle: observed.presence,
            bundle: observed.clone(),
            ..ActiveRevision::clone(active)
        })
    }
}

impl ActiveRevision {
    /// Returns whether all inputs of decisions were observed.
    pub(crate) fn is_observed(&self) -> bool {
        let Some(configuration) = self.configuration.as_deref() else {
            return false;
        };
        let has_bundle = bundle_name(configuration).is_some();
        self.secret_presence() != TrustBundlePresence::Unknown
            && !(has_bundle && self.trust_bundle == TrustBundlePresence::Unknown)
    }

    /// Returns whether the pull Secret is known not to exist, or the revision has none. A Secret that is not usable exists. Without a
    /// configuration, this is not known until the ConfigMap was observed, because its annotations may require the Secret.
    pub(crate) fn lacks_pull_secret(&self) -> bool {
        let is_known =
            self.configuration.is_some() || self.document.presence != TrustBundlePresence::Unknown;
        is_known && self.secret_presence() == TrustBundlePresence::Absent
    }

    fn secret_presence(&self) -> TrustBundlePresence {
        let name = secret_name(self.configuration.as_deref());
        self.pull_secret.object.named(name).presence
    }
}

impl LatestRevision {
    /// Returns the objects that are not of the revision of the configuration, and the reasons; empty if all are.
    pub(super) fn mismatches(&self) -> Vec<(&'static str, &'static str)> {
        let required = &self.requirements;
        // A document without a bundle does not wait for a bundle.
        let bundle = required.trust_bundle.as_ref();
        let bundle = bundle.filter(|_| self.bundle_name().is_some());
        let objects = [
            ("pull Secret", required.pull_secret.as_ref(), self.secret()),
            ("trust bundle", bundle, self.bundle()),
        ];
        let mismatches = objects
            .into_iter()
            .filter_map(|(object, required, observed)| {
                let required = required.filter(|it| *it != REQUIRES_NONE)?;
                let text = match observed.presence {
                    TrustBundlePresence::Unknown => NOT_OBSERVED,
                    TrustBundlePresence::Absent => "is missing",
                    // If an API server does not serve or project the kind, no Pod will get the object.
                    TrustBundlePresence::Unserved | TrustBundlePresence::NotProjected => {
                        return None;
                    }
                    TrustBundlePresence::Present if observed.hash.as_ref()? == required => {
                        return None;
                    }
                    TrustBundlePresence::Present => "belongs to another revision",
                };
                Some((object, text))
            });
        mismatches.collect()
    }

    /// Returns these objects as an active revision.
    fn activated(&self) -> ActiveRevision {
        let is_none = |required: &Option<String>| required.as_deref() == Some(REQUIRES_NONE);
        let name = secret_name(self.configuration.as_deref());
        ActiveRevision {
            configuration: self.configuration.clone(),
            pull_secret: match name {
                Some(name) if is_none(&self.requirements.pull_secret) => {
                    Arc::new(PullSecretSource::absent(name))
                }
                _ if self.secret().presence == TrustBundlePresence::Unknown => Arc::default(),
                // It is expected to come back: its absence does not revoke the copies.
                _ if self.secret().presence == TrustBundlePresence::Absent
                    && self.requirements.pull_secret.is_some()
                    && !is_none(&self.requirements.pull_secret) =>
                {
                    Arc::default()
                }
                _ => Arc::clone(&self.pull_secret),
            },
            document: self.document.clone(),
            bundle: if is_none(&self.requirements.trust_bundle) {
                ObservedObject::default()
            } else {
                self.bundle().clone()
            },
            trust_bundle: match self.bundle().presence {
                presence @ (TrustBundlePresence::Unserved | TrustBundlePresence::NotProjected) => {
                    presence
                }
                _ if is_none(&self.requirements.trust_bundle) => TrustBundlePresence::Absent,
                presence => presence,
            },
        }
    }

    fn secret(&self) -> &ObservedObject {
        let name = secret_name(self.configuration.as_deref());
        self.pull_secret.object.named(name)
    }

    fn bundle(&self) -> &ObservedObject {
        self.trust_bundle.named(self.bundle_name())
    }

    /// Returns the objects that the active document does not contain, and whose existence is not known yet.
    fn new_and_unknown(&self, active: &ActiveRevision) -> Vec<(&'static str, &'static str)> {
        let configuration = active.configuration.as_deref();
        let bundle = configuration.and_then(bundle_name);
        let objects = [
            (
                "pull Secret",
                secret_name(self.configuration.as_deref()),
                secret_name(configuration),
                self.secret(),
            ),
            ("trust bundle", self.bundle_name(), bundle, self.bundle()),
        ];
        let new = objects.into_iter().filter(|(_, name, active, observed)| {
            name.is_some() && name != active && observed.presence == TrustBundlePresence::Unknown
        });
        new.map(|(object, ..)| (object, NOT_OBSERVED)).collect()
    }

    fn bundle_name(&self) -> Option<&str> {
        bundle_name(self.configuration.as_ref()?)
    }
}

fn secret_name(configuration: Option<&Configuration>) -> Option<&str> {
    configuration.map(|it| &*it.pull_secret().name)
}

/// Returns the name of the bundle that a configuration mounts, if any.
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
    /// Returns the state of an existing object.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            name: metadata.name.clone(),
            presence: TrustBundlePresence::Present,
            hash: annotation(metadata, CONTENT_HASH),
            times: ObjectTimes::of(metadata),
            content: None,
            text: None,
        }
    }

    /// Returns the same object with the digest of its content.
    pub(crate) fn with_content(self, content: &[u8]) -> Self {
        Self {
            content: Some(Sha256::digest(content).into()),
            ..self
        }
    }

    /// Returns the same object with the text of a document.
    pub(crate) fn with_text(self, text: &str) -> Self {
        Self {
            text: Some(text.into()),
            ..self.with_content(text.as_bytes())
        }
    }

    /// Returns the state of an object that does not exist.
    pub(crate) fn absent(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..TrustBundlePresence::Absent.into()
        }
    }

    /// Returns the name of the observed object.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns this state, if it is of an object with this name, and otherwise an unknown state.
    fn named(&self, name: Option<&str>) -> &Self {
        static UNKNOWN: ObservedObject = ObservedObject {
            name: None,
            presence: TrustBundlePresence::Unknown,
            hash: None,
            times: None,
            content: None,
            text: None,
        };
        match (&self.name, name) {
            (Some(observed), Some(name)) if observed != name => &UNKNOWN,
            _ => self,
        }
    }
}

impl ObjectTimes {
    fn of(metadata: &ObjectMeta) -> Option<Self> {
        let created = metadata.creation_timestamp.as_ref()?.0;
        let entries = metadata.managed_fields.iter().flatten();
        let written = entries.filter_map(|it| Some(it.time.as_ref()?.0)).max();
        Some(Self {
            created,
            written: written.map_or(created, |it| it.max(created)),
        })
    }
}

/// Conversion for a state that is known without an object.
impl From<TrustBundlePresence> for ObservedObject {
    fn from(presence: TrustBundlePresence) -> Self {
        Self {
            presence,
            ..Self::default()
        }
    }
}

/// Returns the value of an annotation, if it is not empty.
fn annotation(metadata: &ObjectMeta, key: &str) -> Option<String> {
    let value = metadata.annotations.as_ref()?.get(key)?;
    (!value.is_empty()).then(|| value.clone())
}

#[cfg(test)]
mod tests;
