//! The pull Secret's copies: what to do about one namespace, given what is wanted and what is there.
//!
//! Deliberately absent: the Secret's bytes. Whether a copy is equal is found by the caller, which holds both.

use api::Feature;
use api::names::EXCLUDED_NAMESPACE;

use crate::admission::{Configuration, Namespace};

#[cfg(test)]
mod tests;

/// What a namespace holds under the pull Secret's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nothing.
    Nothing,
    /// A copy that we made and that says what the source says.
    Current,
    /// A copy that we made and that says something else.
    Stale,
    /// A copy that we made, of another type: the type cannot be changed in place.
    Misshapen,
    /// A Secret that another client created.
    Foreign,
}

/// What to do about a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Write the copy.
    Apply,
    /// Remove the copy, then write it.
    Recreate,
    /// Remove the copy.
    Remove(RemovalCause),
    /// Leave a foreign Secret alone, and say so.
    ReportForeign,
}

/// Why a copy is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Neither the configuration nor the Namespace nor a Pod asks for it any longer, or credentials may not go there.
    /// Pods that use the copy keep it.
    NotNeeded,
    /// The source Secret was deleted, which revokes the credentials: the copy goes whatever uses it.
    SourceDeleted,
}

/// What is known of the source, the pull Secret of the product namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePresence {
    /// It exists and can be copied.
    Present,
    /// It is known not to exist.
    Absent,
    /// Not known yet, or there is one that cannot be used.
    Unknown,
}

/// Why a namespace needs the Secret, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The configuration or the Namespace asks for it.
    Namespace,
    /// A Pod in it asks for it.
    Pod,
    /// No Pod may need it, or credentials may not go there.
    None,
}

/// Whether a namespace needs the Secret.
///
/// `pods` tells whether a Pod of the namespace opts in by itself. Namespace `kube-system` never needs it, because no Pod in it
/// is adapted.
#[must_use]
pub fn need(configuration: &Configuration, name: &str, namespace: &Namespace, pods: bool) -> Need {
    let available = configuration.available();
    let allowed = configuration
        .pull_secret()
        .namespaces
        .as_ref()
        .is_none_or(|selector| selector.matches(&namespace.labels));
    if name == EXCLUDED_NAMESPACE || !allowed || !available.contains(Feature::PullSecret) {
        return Need::None;
    }
    let by_namespace = configuration
        .namespace_features(name)
        .union(namespace.annotations.requested(available));
    if by_namespace.contains(Feature::PullSecret) {
        Need::Namespace
    } else if pods {
        Need::Pod
    } else {
        Need::None
    }
}

/// What to do about a namespace. A source that is known to be absent revokes the credentials: every copy of it is removed.
/// While nothing is known of it, copies that are needed stay as they are.
#[must_use]
pub fn plan(need: Need, source: SourcePresence, observed: Observed) -> Action {
    use SourcePresence::{Absent, Present};
    match (need, source, observed) {
        (_, Absent, Observed::Current | Observed::Stale | Observed::Misshapen) => {
            Action::Remove(RemovalCause::SourceDeleted)
        }
        (Need::None, _, Observed::Current | Observed::Stale | Observed::Misshapen) => {
            Action::Remove(RemovalCause::NotNeeded)
        }
        (_, Present, Observed::Nothing | Observed::Stale) if need != Need::None => Action::Apply,
        (_, Present, Observed::Misshapen) => Action::Recreate,
        (_, Present, Observed::Foreign) if need != Need::None => Action::ReportForeign,
        _ => Action::Keep,
    }
}
