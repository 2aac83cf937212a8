//! State of a stored Pod, compared with the Pod that the webhook would create now.

use api::bootstrapper::RestartCause;
use api::{Feature, FeatureSet};
use jiff::Timestamp;

use crate::admission::{Code, Decision, Reason};

/// Times of the last changes of the objects of the active revision; `None` for an object that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionTimes {
    /// The configuration document.
    pub document: Timestamp,
    /// The registries for which the pull Secret has credentials.
    pub registries: Option<Timestamp>,
    /// The whole content of the pull Secret.
    pub credentials: Option<Timestamp>,
    /// The existence of the ClusterTrustBundle.
    pub bundle_exists: Option<Timestamp>,
    /// The content of the ClusterTrustBundle.
    pub bundle_content: Option<Timestamp>,
}

/// Relevant times of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodTimes {
    /// Time of the creation.
    pub created: Timestamp,
    /// Time of the last change of the annotations by which its Namespace opts in, or of its own annotations after its creation.
    pub opted_in: Option<Timestamp>,
    /// Time of the last change of the labels of its Namespace, if a selector of namespaces excludes the pull Secret.
    /// The labels determine no other change.
    pub selected: Option<Timestamp>,
    /// Whether the webhook has given the Pod a trust bundle that the document does not name any more.
    pub has_other_bundle: bool,
    /// Features that the document requests for its Namespace and that it did not opt out of when it was created, and features
    /// that it requested itself at that time: it has them whenever its Namespace opted in.
    pub required: FeatureSet,
}

/// State of a stored Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// No feature is requested for the Pod, or the Pod is never sent to the webhook.
    NotCovered,
    /// The Pod equals the Pod that the webhook would create.
    Current,
    /// The Pod differs from the Pod that the webhook would create.
    Deviates(Deviation),
    /// The Pod differs because its Namespace or the Pod opted in after its creation. No Pod created at that time
    /// would have been adapted.
    OptedInLater,
}

/// Deviation of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deviation {
    /// The Pod was created after the configuration that covers it, and lacks this change (the first of several).
    Missed(Code),
    /// The Pod was created before a change that reaches new Pods only.
    Outdated(RestartCause),
}

impl Deviation {
    /// Returns the label in metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missed(code) => code.name(),
            Self::Outdated(RestartCause::TrustBundle) => "TrustBundleChanged",
            Self::Outdated(RestartCause::PullSecret) => "PullSecretChanged",
            Self::Outdated(RestartCause::Configuration) => "ConfigurationChanged",
        }
    }

    /// Returns whether the Pod was missed.
    #[must_use]
    pub fn is_missed(self) -> bool {
        matches!(self, Self::Missed(_))
    }
}

/// Returns the state of a stored Pod, from the decision on it as if it were created now.
///
/// Times have a resolution of one second. A Pod that was created within the second of a change is not reported as
/// missed, but as outdated: an unnecessary restart is harmless, a false alarm is not.
#[must_use]
pub fn judge(decision: &Decision<'_>, pod: PodTimes, revision: &RevisionTimes) -> PodState {
    let mut findings = decision.findings.iter();
    if findings.all(|it| is_not_covered(&it.reason)) {
        return PodState::NotCovered;
    }
    // The name of a Secret that does not exist does not help a Pod.
    let is_missing =
        |reason: &Reason<'_>| reason.applied() && reason.code() != Code::PullSecretNotObserved;
    let applied = || decision.findings.iter().filter(|it| is_missing(&it.reason));
    if !decision.changed() || applied().next().is_none() {
        return outdated_content(decision, pod, revision).map_or(PodState::Current, |it| {
            PodState::Deviates(Deviation::Outdated(it))
        });
    }
    let is_before = |time: Option<Timestamp>| time.is_some_and(|it| pod.created <= it);
    let has = |feature| applied().any(|it| it.feature == feature);
    let cause = if has(Feature::TrustBundle) && is_before(revision.bundle_exists) {
        Some(RestartCause::TrustBundle)
    } else if has(Feature::PullSecret) && is_before(revision.registries) {
        Some(RestartCause::PullSecret)
    } else {
        is_before(Some(revision.document)).then_some(RestartCause::Configuration)
    };
    if let Some(cause) = cause {
        return PodState::Deviates(Deviation::Outdated(cause));
    }
    let opted_in_later = is_before(pod.opted_in);
    let selected_later = is_before(pod.selected);
    let mut missed = applied().filter(|it| {
        let is_new = opted_in_later && !pod.required.contains(it.feature);
        !is_new && (it.feature != Feature::PullSecret || !selected_later)
    });
    missed.next().map_or(PodState::OptedInLater, |it| {
        PodState::Deviates(Deviation::Missed(it.reason.code()))
    })
}

/// Returns the cause if the content of an object changed that the Pod uses already.
fn outdated_content(
    decision: &Decision<'_>,
    pod: PodTimes,
    revision: &RevisionTimes,
) -> Option<RestartCause> {
    let uses = |code| decision.findings.iter().any(|it| it.reason.code() == code);
    let is_before = |time: Option<Timestamp>| time.is_some_and(|it| pod.created <= it);
    let has_earlier_bundle = pod.has_other_bundle && is_before(Some(revision.document));
    if has_earlier_bundle || uses(Code::MountAlreadyPresent) && is_before(revision.bundle_content) {
        Some(RestartCause::TrustBundle)
    } else if uses(Code::PullSecretAlreadyPresent) && is_before(revision.credentials) {
        Some(RestartCause::PullSecret)
    } else {
        None
    }
}

fn is_not_covered(reason: &Reason<'_>) -> bool {
    matches!(
        reason,
        Reason::NotRequested
            | Reason::NotAvailable
            | Reason::OptedOutByPod
            | Reason::MirrorPod
            | Reason::PodTerminating
            | Reason::OperationNotHandled
            | Reason::NamespaceExcluded { .. }
            | Reason::OwnPod
    )
}
