//! Notices about a document that can be used: they are almost always mistakes without a visible effect.

use api::ALL_KEY;
use api::config::{Document, KEYS};
use api::json::FieldPath;
use api::names::EXCLUDED_NAMESPACE;
use api::suggest::{DidYouMean, closest};

use super::UnusableTrustBundle;
use crate::image::Reference;

/// A notice about a document that is still valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// No feature is available, so no Pod is ever changed.
    #[error("availableFeatures: empty: no Pod is changed")]
    NothingAvailable,
    /// The key for all features has no effect, because no feature is available.
    #[error("`{ALL_KEY}` of namespace `{0}` has no effect while `availableFeatures` is empty")]
    AllOfNothing(String),
    /// The result of an override is not an image reference.
    #[error("overrides[{0:?}]: the result is not a valid image reference: not applied")]
    UnusableOverride(String),
    /// The key of an override cannot be the registry of an image.
    #[error(
        "overrides[{0:?}]: not a registry host such as docker.io or localhost:5000: matches no image"
    )]
    OverrideNeverMatches(String),
    /// A namespace has features, but its Pods are never sent to the webhook.
    #[error("namespaceFeatures.{0}: no effect: Pods of namespace {0} are never changed")]
    NamespaceExcluded(String),
    /// A key is unknown.
    #[error("{key}: unknown key, ignored{}", DidYouMean(*.meant))]
    UnknownKey {
        /// Path to the unknown key.
        key: FieldPath,
        /// Path to the key that was probably meant.
        meant: Option<&'static str>,
    },
    /// A key occurs more than once.
    #[error("{0}: duplicate key: the last value is used")]
    DuplicateKey(FieldPath),
    /// The bundle cannot be mounted by any Pod.
    #[error("`clusterTrustBundle.{0}` would make a Pod invalid: the bundle is not mounted")]
    UnusableTrustBundle(&'static str),
}

/// The values of a document that have no effect.
pub(super) struct Unusable {
    /// The keys of overrides that do not yield an image reference.
    pub(super) overrides: Vec<String>,
    pub(super) trust_bundle: Option<UnusableTrustBundle>,
}

/// Returns all notices about a document, in the order of its keys.
pub(super) fn of(document: &Document, unusable: Unusable) -> Vec<Notice> {
    let mut notices = Vec::new();
    let nothing_available = document.available_features.is_empty();
    if nothing_available {
        notices.push(Notice::NothingAvailable);
    }
    for (namespace, features) in &document.namespace_features {
        if nothing_available && features.iter().any(|key| key == ALL_KEY) {
            notices.push(Notice::AllOfNothing(namespace.clone()));
        }
        if namespace == EXCLUDED_NAMESPACE && !features.is_empty() {
            notices.push(Notice::NamespaceExcluded(namespace.clone()));
        }
    }
    let unmatched = document.overrides.keys().filter(|host| !is_host(host));
    notices.extend(unmatched.cloned().map(Notice::OverrideNeverMatches));
    notices.extend(unusable.overrides.into_iter().map(Notice::UnusableOverride));
    if let Some(UnusableTrustBundle(key)) = unusable.trust_bundle {
        notices.push(Notice::UnusableTrustBundle(key));
    }
    notices.extend(document.unknown_keys.iter().map(|key| Notice::UnknownKey {
        key: key.clone(),
        meant: closest(&key.to_string(), KEYS),
    }));
    let duplicates = document.duplicate_keys.iter().cloned();
    notices.extend(duplicates.map(Notice::DuplicateKey));
    notices
}

/// Returns whether an image can have this registry.
fn is_host(key: &str) -> bool {
    let image = format!("{key}/any");
    Reference::parse(&image).is_ok_and(|it| it.written_domain() == Some(key))
}
