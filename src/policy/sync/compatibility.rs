//! Compatibility of configuration documents with webhook versions. An incompatible document is not written.
//!
//! The public rt-bootstrapper ignores keys that it does not know, so that a document with keys of this project would
//! take effect only in part. Its version numbers are unrelated to those of this project; a Deployment of this project
//! has the manifest hash as annotation.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use api::config::{Document, ImagePullSecret};

/// A version of the form `major.minor.patch`; a leading `v`, a pre-release and build metadata are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u32; 3]);

/// The text is not a valid [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid version (major.minor.patch)")]
pub struct VersionError;

/// The webhook that a document requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Any webhook: the document uses only keys of the public rt-bootstrapper.
    Any,
    /// A webhook of this project, because of a key.
    AtLeast {
        /// The first version that supports the key.
        version: Version,
        /// The key of the document.
        key: &'static str,
    },
}

/// The webhook that runs on a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunningWebhook {
    /// No webhook: the next one reads the document when it starts.
    Absent,
    /// A webhook that the controller did not install, or whose version is unknown.
    Unmanaged,
    /// A webhook of this project. During a rolling update [`RunningWebhook::Unmanaged`] is used instead.
    Managed(Version),
}

/// The webhook does not support a key of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} requires webhook version {needed} or later, {} is running", DisplayRunning(.running))]
pub struct IncompatibleVersion {
    /// The first version that supports the key.
    pub needed: Version,
    /// The key of the document.
    pub key: &'static str,
    /// The webhook on the runtime.
    pub running: RunningWebhook,
}

struct DisplayRunning<'a>(&'a RunningWebhook);

/// Whether a document uses a key.
type IsUsed = fn(&Document) -> bool;

/// Keys that the public rt-bootstrapper does not support, with the first version that does.
const KEYS: [(&str, Version, IsUsed); 3] = [
    ("fipsVariables", Version([0, 1, 0]), |it| {
        it.fips_variables.is_some()
    }),
    ("imagePullSecret", Version([0, 1, 0]), |it| {
        it.image_pull_secret != ImagePullSecret::default()
    }),
    ("optOut", Version([0, 1, 0]), |it| it.opt_out.is_some()),
];

/// The webhook that a document requires.
#[must_use]
pub fn requirement(document: &Document) -> Requirement {
    KEYS.iter()
        .filter(|(_, _, used)| used(document))
        .max_by(|(_, one, _), (_, other, _)| match one.cmp(other) {
            // Of keys with the same version the first is reported.
            Ordering::Equal => Ordering::Greater,
            order => order,
        })
        .map_or(Requirement::Any, |(key, version, _)| Requirement::AtLeast {
            version: *version,
            key,
        })
}

/// Checks whether a document can be written to a runtime with this webhook.
///
/// # Errors
/// [`IncompatibleVersion`] if the document would take effect only in part.
pub fn check_compatibility(
    requirement: Requirement,
    running: RunningWebhook,
) -> Result<(), IncompatibleVersion> {
    let Requirement::AtLeast { version, key } = requirement else {
        return Ok(());
    };
    match running {
        RunningWebhook::Absent => Ok(()),
        RunningWebhook::Managed(has) if has >= version => Ok(()),
        RunningWebhook::Managed(_) | RunningWebhook::Unmanaged => Err(IncompatibleVersion {
            needed: version,
            key,
            running,
        }),
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = core.split('.');
        let mut next = || {
            parts
                .next()
                .and_then(|part| part.parse().ok())
                .ok_or(VersionError)
        };
        let version = Self([next()?, next()?, next()?]);
        if parts.next().is_some() {
            return Err(VersionError);
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

impl fmt::Display for DisplayRunning<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RunningWebhook::Absent => formatter.write_str("none"),
            RunningWebhook::Unmanaged => formatter.write_str("another one"),
            RunningWebhook::Managed(version) => version.fmt(formatter),
        }
    }
}
