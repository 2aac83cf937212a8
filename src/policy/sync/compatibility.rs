//! Compatibility of configuration documents with webhook versions. An incompatible document is not written.
//!
//! The public rt-bootstrapper ignores unknown keys, so that a document with keys of this project would take effect
//! only partly. Its version numbers are unrelated to the version numbers of this project. A Deployment of this
//! project has the manifest hash as annotation.

use api::config::{Document, ImagePullSecret};
use semver::Version;

/// The webhook that a document requires.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq, strum::Display)]
pub enum RunningWebhook {
    /// No webhook: the next webhook reads the document when it starts.
    #[strum(to_string = "none")]
    Absent,
    /// A webhook that the controller did not install, or whose version is unknown.
    #[strum(to_string = "another one")]
    Unmanaged,
    /// A webhook of this project. During a rolling update [`RunningWebhook::Unmanaged`] is used instead.
    #[strum(to_string = "{0}")]
    Managed(Version),
}

/// Error: the webhook does not support a key of the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} requires webhook version {needed} or later, {running} is running")]
pub struct IncompatibleVersion {
    /// The first version that supports the key.
    pub needed: Version,
    /// The key of the document.
    pub key: &'static str,
    /// The webhook on the runtime.
    pub running: RunningWebhook,
}

/// Parses a semantic version. A leading `v` is ignored; a pre-release is older than its release.
pub(super) fn parse_version(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

/// Returns the webhook that a document requires.
pub(super) fn requirement(document: &Document) -> Requirement {
    // A new key does not compile here until it is listed. Keys with `_` are supported by the public rt-bootstrapper.
    let Document {
        overrides: _,
        cluster_trust_bundle: _,
        namespace_features: _,
        available_features: _,
        fips_variables,
        image_pull_secret,
        opt_out,
        unknown_keys: _,
        duplicate_keys: _,
    } = document;
    let has_pull_secret = *image_pull_secret != ImagePullSecret::default();
    // Whether a key is used, and the first version that supports it.
    let keys = [
        (fips_variables.is_some(), "fipsVariables", [0, 1, 0]),
        (has_pull_secret, "imagePullSecret", [0, 1, 0]),
        (opt_out.is_some(), "optOut", [0, 1, 0]),
    ];
    let used = keys.into_iter().filter(|(is_used, ..)| *is_used);
    // If several keys have the same version, the first key is reported.
    let newest = used.rev().max_by_key(|(.., version)| *version);
    newest.map_or(Requirement::Any, |(_, key, [major, minor, patch])| {
        let version = Version::new(major, minor, patch);
        Requirement::AtLeast { version, key }
    })
}

/// Checks whether a document can be written to a runtime with this webhook.
///
/// # Errors
/// [`IncompatibleVersion`] if the document would take effect only partly.
pub fn check_compatibility(
    requirement: &Requirement,
    running: RunningWebhook,
) -> Result<(), IncompatibleVersion> {
    let Requirement::AtLeast { version, key } = requirement else {
        return Ok(());
    };
    match running {
        RunningWebhook::Absent => Ok(()),
        RunningWebhook::Managed(has) if has >= *version => Ok(()),
        RunningWebhook::Managed(_) | RunningWebhook::Unmanaged => Err(IncompatibleVersion {
            needed: version.clone(),
            key,
            running,
        }),
    }
}
