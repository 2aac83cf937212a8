//! Which version of configuration, pull Secret and trust bundle decisions read.
//!
//! The three arrive by three watches. The ConfigMap says in annotations which Secret and which bundle belong to it, so
//! decisions go over to a new version only when all its parts are there, whole or not at all; until then the version
//! before stays in force, whole. A part that carries no version, as today's installer writes it, and a document that
//! requires none are taken as they come.
//! Invariant: no IO and no clock; every state is an immutable value that follows from the one before.
//! Deliberately absent: a limit of the waiting. Whoever wrote half a version has to write the other half.

use std::fmt;
use std::sync::Arc;

use policy::admission::{Configuration, TrustBundlePresence};

use super::PullSecretSource;

mod parts;

pub use self::parts::{Carries, KnownBundle, Lack, Requirement, Requirements, Seen};

#[cfg(test)]
mod tests;

/// What decisions read, and what is copied: one version.
#[derive(Clone, Default)]
pub struct InForce {
    /// The configuration; `None` until a valid document was seen.
    pub configuration: Option<Arc<Configuration>>,
    /// The pull Secret of the product namespace.
    pub pull_secret: Arc<PullSecretSource>,
    /// What is known of the configured ClusterTrustBundle.
    pub trust_bundle: TrustBundlePresence,
}

impl InForce {
    /// Whether the pull Secret is known not to exist: its watch says so after a complete list, or the version is without
    /// it. A Secret that cannot be used exists.
    #[must_use]
    pub fn lacks_pull_secret(&self) -> bool {
        let configuration = self.configuration.as_ref();
        let name = configuration.map(|it| &*it.pull_secret().name);
        *self.pull_secret.seen.carries_for(name) == Carries::Nothing
    }
}

/// The newest that the watches brought, part by part. It need not be one version.
#[derive(Clone, Default)]
pub struct Newest {
    /// The last good document.
    pub configuration: Option<Arc<Configuration>>,
    /// What its ConfigMap requires of the other parts.
    pub requirements: Requirements,
    /// The pull Secret.
    pub pull_secret: Arc<PullSecretSource>,
    /// The ClusterTrustBundle.
    pub trust_bundle: KnownBundle,
}

/// Why the newest parts are not one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What the pull Secret lacks.
    pub pull_secret: Option<Lack>,
    /// What the trust bundle lacks.
    pub trust_bundle: Option<Lack>,
    /// Whether the previous revision stays active; otherwise nothing whole was in force yet, and the newest is taken as
    /// it comes.
    pub kept: bool,
}

/// The newest parts, and the version in force.
#[derive(Clone, Default)]
pub(super) struct Versions {
    pub(super) newest: Newest,
    pub(super) in_force: Arc<InForce>,
    pub(super) waiting: Option<Waiting>,
    /// Whether what is in force was whole when it came into force.
    whole: bool,
}

impl Versions {
    /// What follows from a change of the newest parts; `None` if nothing changed.
    pub(super) fn after(&self, change: impl FnOnce(&mut Newest)) -> Option<Self> {
        let mut newest = self.newest.clone();
        change(&mut newest);
        (!newest.is_the_same_as(&self.newest)).then(|| self.follow(newest))
    }

    fn follow(&self, newest: Newest) -> Self {
        let waiting = newest.waiting(self.whole);
        let keep = waiting.is_some_and(|it| it.kept);
        let in_force = if keep {
            Arc::clone(&self.in_force)
        } else {
            Arc::new(newest.taken())
        };
        Self {
            whole: keep || (waiting.is_none() && newest.configuration.is_some()),
            in_force,
            waiting,
            newest,
        }
    }

    /// What is worth telling of the waiting. While nothing whole was in force yet, a part that its watch has not brought
    /// is no news: that watch says so itself.
    #[must_use]
    pub(super) fn told(&self) -> Option<Waiting> {
        self.waiting.filter(|it| {
            it.kept
                || [it.pull_secret, it.trust_bundle]
                    .iter()
                    .all(|lack| *lack != Some(Lack::Unseen))
        })
    }
}

impl Newest {
    fn is_the_same_as(&self, other: &Self) -> bool {
        // Whoever offers a document knows whether it is another one; to compare it again would cost more than it saves.
        self.configuration.as_ref().map(Arc::as_ptr)
            == other.configuration.as_ref().map(Arc::as_ptr)
            && self.requirements == other.requirements
            && self.pull_secret == other.pull_secret
            && self.trust_bundle == other.trust_bundle
    }

    /// The decision: why these parts are not one version, and what is in force then; `None` if they are one.
    fn waiting(&self, whole_before: bool) -> Option<Waiting> {
        let pull_secret = self
            .requirements
            .pull_secret
            .lacked_by(self.pull_secret_carries());
        // A document without a bundle cannot wait for one, and an API server without the kind will never have it.
        let bundle = self.trust_bundle.presence != TrustBundlePresence::Unserved
            && self.bundle_name().is_some();
        let trust_bundle = bundle
            .then(|| {
                self.requirements
                    .trust_bundle
                    .lacked_by(self.bundle_carries())
            })
            .flatten();
        (pull_secret.is_some() || trust_bundle.is_some()).then_some(Waiting {
            pull_secret,
            trust_bundle,
            kept: whole_before,
        })
    }

    /// These parts as decisions read them.
    fn taken(&self) -> InForce {
        let trust_bundle = match (&self.requirements.trust_bundle, self.trust_bundle.presence) {
            (_, TrustBundlePresence::Unserved) => TrustBundlePresence::Unserved,
            (Requirement::None, _) => TrustBundlePresence::Absent,
            _ if *self.bundle_carries() == Carries::Unseen => TrustBundlePresence::Unknown,
            (_, presence) => presence,
        };
        InForce {
            configuration: self.configuration.clone(),
            pull_secret: match (&self.requirements.pull_secret, &self.configuration) {
                (Requirement::None, Some(it)) => {
                    let absent = Seen::absent(&it.pull_secret().name);
                    Arc::new(PullSecretSource::none(absent))
                }
                _ if *self.pull_secret_carries() == Carries::Unseen => Arc::default(),
                _ => Arc::clone(&self.pull_secret),
            },
            trust_bundle,
        }
    }

    fn pull_secret_carries(&self) -> &Carries {
        let name = self
            .configuration
            .as_ref()
            .map(|it| &*it.pull_secret().name);
        self.pull_secret.seen.carries_for(name)
    }

    fn bundle_carries(&self) -> &Carries {
        self.trust_bundle.seen.carries_for(self.bundle_name())
    }

    fn bundle_name(&self) -> Option<&str> {
        bundle_name(self.configuration.as_ref()?)
    }
}

/// The bundle that a configuration mounts, if any.
pub(crate) fn bundle_name(configuration: &Configuration) -> Option<&str> {
    Some(&configuration.trust_bundle()?.ok()?.name)
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("pull Secret", self.pull_secret),
            ("trust bundle", self.trust_bundle),
        ];
        for (part, lack) in parts {
            let lacks = match lack {
                None => continue,
                Some(Lack::Unseen) => "is not observed yet",
                Some(Lack::Missing) => "is missing",
                Some(Lack::OtherVersion) => "belongs to another revision",
            };
            write!(f, "the {part} {lacks}; ")?;
        }
        f.write_str(if self.kept {
            "the previous revision stays active"
        } else {
            "no revision was active, objects are used as they are"
        })
    }
}
