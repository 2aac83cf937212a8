//! Whether a webhook understands a document: if not, the runtime keeps what it has.
//!
//! The public manager reads every public document and passes over keys that it does not know, so a document with keys of
//! ours would take effect only in part. Its version numbers say nothing about ours; our Deployment is known by its
//! annotation.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use api::config::{Document, ImagePullSecret};

/// A version of the form `major.minor.patch`; a leading `v`, a pre-release and build data are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u32; 3]);

/// A text is no [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid version (major.minor.patch)")]
pub struct NoVersion;

/// What a webhook must be to understand a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The document is public: every webhook will do.
    Any,
    /// Ours, from a version on, because of a key.
    AtLeast {
        /// The first version that knows the key.
        version: Version,
        /// The key of the document.
        key: &'static str,
    },
}

/// The webhook that runs on a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// None: whoever starts will read the document first.
    Nothing,
    /// One that we did not install, or that does not say its version.
    Foreign,
    /// Ours, of this version; while a rollout goes on, the older one counts as foreign.
    Ours(Version),
}

/// The webhook cannot use the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} requires webhook version {needed} or later, {} is running", Has(.running))]
pub struct TooOld {
    /// The first version that knows the key.
    pub needed: Version,
    /// The key of the document.
    pub key: &'static str,
    /// What runs.
    pub running: Running,
}

struct Has<'a>(&'a Running);

/// Whether a document uses a key.
type Used = fn(&Document) -> bool;

/// Keys that the public manager does not know, and since when ours does.
const SINCE: [(&str, Version, Used); 3] = [
    ("fipsVariables", Version([0, 1, 0]), |it| {
        it.fips_variables.is_some()
    }),
    ("imagePullSecret", Version([0, 1, 0]), |it| {
        it.image_pull_secret != ImagePullSecret::default()
    }),
    ("optOut", Version([0, 1, 0]), |it| it.opt_out.is_some()),
];

/// What a document asks of the webhook.
#[must_use]
pub fn requirement(document: &Document) -> Requirement {
    SINCE
        .iter()
        .filter(|(_, _, used)| used(document))
        .max_by(|(_, one, _), (_, other, _)| match one.cmp(other) {
            // Of equals the first is named.
            Ordering::Equal => Ordering::Greater,
            order => order,
        })
        .map_or(Requirement::Any, |(key, version, _)| Requirement::AtLeast {
            version: *version,
            key,
        })
}

/// Whether the document may go to a runtime where this webhook runs.
///
/// # Errors
/// [`TooOld`] if it would take effect only in part.
pub fn judge(requirement: Requirement, running: Running) -> Result<(), TooOld> {
    let Requirement::AtLeast { version, key } = requirement else {
        return Ok(());
    };
    match running {
        Running::Nothing => Ok(()),
        Running::Ours(has) if has >= version => Ok(()),
        Running::Ours(_) | Running::Foreign => Err(TooOld {
            needed: version,
            key,
            running,
        }),
    }
}

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = core.split('.');
        let mut next = || {
            parts
                .next()
                .and_then(|part| part.parse().ok())
                .ok_or(NoVersion)
        };
        let version = Self([next()?, next()?, next()?]);
        if parts.next().is_some() {
            return Err(NoVersion);
        }
        Ok(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

impl fmt::Display for Has<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Running::Nothing => formatter.write_str("none"),
            Running::Foreign => formatter.write_str("another one"),
            Running::Ours(version) => version.fmt(formatter),
        }
    }
}
