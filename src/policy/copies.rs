//! The copies of the pull Secret: the action for one namespace, from the desired and the observed state.
//!
//! Deliberately absent: the bytes of the Secret. The caller, which has both Secrets, compares them.

use api::Feature;
use api::names::EXCLUDED_NAMESPACE;

use crate::admission::{Configuration, Namespace};

#[cfg(test)]
mod tests;

/// The observed Secret of a namespace with the name of the pull Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// There is no Secret.
    Nothing,
    /// A copy of the webhook with the content of the source.
    Current,
    /// A copy of the webhook with other content.
    Stale,
    /// A copy of the webhook with another type, which cannot be changed in place.
    Misshapen,
    /// A Secret that another client created.
    Foreign,
}

/// The action for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No action.
    Keep,
    /// Write the copy.
    Apply,
    /// Delete the copy, then write it.
    Recreate,
    /// Delete the copy.
    Remove(RemovalCause),
    /// Report a Secret of another client, and do not change it.
    ReportForeign,
}

/// Reason why a copy is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Neither the configuration nor the Namespace nor a Pod requests the copy any longer, or credentials are not
    /// allowed in the namespace. The copy stays while Pods use it.
    NotNeeded,
    /// The source Secret was deleted, which revokes the credentials. The copy is deleted even if Pods use it.
    SourceDeleted,
}

/// The known state of the source, which is the pull Secret of the product namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePresence {
    /// The source exists and can be copied.
    Present,
    /// The source is known not to exist.
    Absent,
    /// The state is not known yet, or the source cannot be used.
    Unknown,
}

/// Reason why a namespace needs the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The configuration or the Namespace opts in.
    Namespace,
    /// A Pod in the namespace opts in.
    Pod,
    /// No Pod may need the Secret, or credentials are not allowed in the namespace.
    None,
}

/// Returns whether a namespace needs the Secret.
///
/// `pods` is true if a Pod of the namespace opts in by itself. Namespace `kube-system` never needs the Secret,
/// because no Pod in it is adapted.
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

/// Returns the action for a namespace. A source that is known to be absent revokes the credentials: every copy of it
/// is deleted. While the state of the source is unknown, needed copies stay unchanged.
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
