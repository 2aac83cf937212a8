//! What should be on a runtime, what is there, and what to do about the difference.
//!
//! [`sources`] are read and understood once a change, [`desired`] is computed once for all runtimes, [`plan`] compares it
//! with what one runtime holds, [`status`] says what came of it. [`signal`] is the interim mode, in which today's manager
//! does the writing. [`rollout`] says which runtimes may start with a revision, [`scheduler`] when each is reconciled.
//!
//! Invariants: a source that is absent for ever, unreadable or invalid yields no action on its object; nothing is written
//! while the identity of the runtime is in doubt; a plan computed after its own effect is empty.
//! Deliberately absent: requests, clocks, queues and records (all in `controller`).

pub mod compatibility;
pub mod content;
pub mod desired;
mod differs;
pub mod fields;
pub mod identity;
pub mod inventory;
pub mod known;
mod lane;
pub mod manifests;
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

pub use content::{Hash, Salt};
pub use differs::differing_fields;
pub use lane::{Lane, Lanes};

/// One of the three objects that are kept in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// The Secret with the credentials of private registries.
    PullSecret,
    /// The ClusterTrustBundle with the landscape's roots.
    TrustBundle,
    /// The ConfigMap with the webhook's configuration document.
    Configuration,
}

impl SourceKind {
    /// All three, in the order in which they are written: the document comes after what it requires.
    pub const ALL: [Self; 3] = [Self::PullSecret, Self::TrustBundle, Self::Configuration];

    /// The name in records, statuses and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PullSecret => "pullSecret",
            Self::TrustBundle => "trustBundle",
            Self::Configuration => "configuration",
        }
    }

    /// `kind` of the object.
    #[must_use]
    pub fn object(self) -> &'static str {
        match self {
            Self::PullSecret => "Secret",
            Self::TrustBundle => "ClusterTrustBundle",
            Self::Configuration => "ConfigMap",
        }
    }
}
