//! Decisions about runtimes: the desired objects, the differences to the live objects, and the actions that remove
//! the differences.
//!
//! [`sources`] are validated once for each change. [`desired`] is computed once for all runtimes. [`plan`] compares
//! it with the objects of one runtime. [`status`] describes the result. [`signal`] is the mode in which KIM writes.
//! [`rollout`] determines which runtimes may start with a revision, and [`scheduler`] when each is reconciled.
//!
//! Invariants: a source that never existed, cannot be read or is invalid causes no action on its object; nothing is
//! written while the identity of the runtime is not verified; a plan that is computed after its own effect is empty.
//! Not in here: requests, clocks and stored state (all in `controller`).

pub mod compatibility;
pub mod content;
pub mod desired;
mod diff;
pub mod history;
pub mod identity;
pub mod inventory;
mod lane;
pub mod managed_fields;
pub mod manifests;
mod names;
pub mod observed;
pub mod plan;
pub mod rollout;
pub mod scheduler;
pub mod signal;
pub mod sources;
pub mod status;
pub mod target;

#[cfg(test)]
mod tests;

use api::bootstrapper::ConfigurationStatus;
use api::kcp::{REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};

pub use content::{Hash, Salt};
pub use diff::differing_fields;
pub(crate) use diff::is_applied;
pub use lane::{Lane, Lanes};
pub use names::ObjectNames;

/// One of the three objects that are synchronized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "camelCase")]
pub enum SourceKind {
    /// The Secret with the credentials of private registries.
    PullSecret,
    /// The ClusterTrustBundle with the root certificates of the landscape.
    TrustBundle,
    /// The ConfigMap with the webhook's configuration document.
    Configuration,
}

impl SourceKind {
    /// All three sources, in the order in which they are written: the document is written after the objects that it requires.
    pub const ALL: [Self; 3] = [Self::PullSecret, Self::TrustBundle, Self::Configuration];

    /// Returns the name in stored state, statuses and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the `kind` of the object.
    #[must_use]
    pub fn object(self) -> &'static str {
        match self {
            Self::PullSecret => "Secret",
            Self::TrustBundle => "ClusterTrustBundle",
            Self::Configuration => "ConfigMap",
        }
    }

    /// Returns the annotation of a document that requires a hash of this object; `None` for the document itself.
    fn requires_key(self) -> Option<&'static str> {
        match self {
            Self::PullSecret => Some(REQUIRES_PULL_SECRET),
            Self::TrustBundle => Some(REQUIRES_TRUST_BUNDLE),
            Self::Configuration => None,
        }
    }

    /// Returns the hash of the object in a status.
    #[must_use]
    pub fn hash(self, status: &ConfigurationStatus) -> Option<&str> {
        let hash = match self {
            Self::PullSecret => &status.pull_secret_hash,
            Self::TrustBundle => &status.trust_bundle_hash,
            Self::Configuration => &status.config_map_hash,
        };
        hash.as_deref()
    }

    /// Sets the hash of this object in a status.
    pub fn set_hash(self, status: &mut ConfigurationStatus, hash: Option<String>) {
        match self {
            Self::PullSecret => status.pull_secret_hash = hash,
            Self::TrustBundle => status.trust_bundle_hash = hash,
            Self::Configuration => status.config_map_hash = hash,
        }
    }
}
