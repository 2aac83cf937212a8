//! What a stored Pod is, beside the Pod that the webhook would make of it now.

use api::bootstrapper::RestartCause;
use api::{Feature, FeatureSet};
use jiff::Timestamp;

use crate::admission::{Code, Decision, Reason};

/// Since when the parts of the active revision are what they are; `None` for a part that does not exist.
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

/// Times of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodTimes {
    /// When it was created.
    pub created: Timestamp,
    /// When the annotations by which its Namespace opts in were changed last, or its own annotations after its creation.
    pub opted_in: Option<Timestamp>,
    /// When the labels of its Namespace were changed last, if a selector of Namespaces keeps the pull Secret out. They decide
    /// no other change.
    pub selected: Option<Timestamp>,
    /// Features that the document requests for its Namespace and that it cannot opt out of: it has them whenever it opted in.
    pub required: FeatureSet,
}

/// What a stored Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// No feature is requested for it, or it is never sent to the webhook.
    NotCovered,
    /// It is as the webhook would make it.
    Current,
    /// It is not.
    Deviates(Deviation),
    /// It is not, and no Pod created at its time would have been: its Namespace or the Pod opted in afterwards.
    OptedInLater,
}

/// How a Pod deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deviation {
    /// It was created after the configuration that covers it, and lacks this change (the first of several).
    Missed(Code),
    /// It was created before a change that reaches new Pods only.
    Outdated(RestartCause),
}

impl Deviation {
    /// Its label in metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missed(code) => code.name(),
            Self::Outdated(RestartCause::TrustBundle) => "TrustBundleChanged",
            Self::Outdated(RestartCause::PullSecret) => "PullSecretChanged",
            Self::Outdated(RestartCause::Configuration) => "ConfigurationChanged",
        }
    }

    /// Whether the Pod was missed.
    #[must_use]
    pub fn is_missed(self) -> bool {
        matches!(self, Self::Missed(_))
    }
}

/// Judges a stored Pod by the decision on it as if it were created now.
///
/// Times have a resolution of one second. A Pod that was created within the second of a change is not reported as
/// missed, and is outdated: a restart too many is harmless, an alarm too many is not.
#[must_use]
pub fn judge(decision: &Decision<'_>, pod: PodTimes, revision: &RevisionTimes) -> PodState {
    let mut findings = decision.findings.iter();
    if findings.all(|it| is_not_covered(&it.reason)) {
        return PodState::NotCovered;
    }
    // The name of a Secret that does not exist helps no Pod.
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
    match cause {
        Some(cause) => PodState::Deviates(Deviation::Outdated(cause)),
        None => {
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
    }
}

/// What changed inside of objects that the Pod uses already.
fn outdated_content(
    decision: &Decision<'_>,
    pod: PodTimes,
    revision: &RevisionTimes,
) -> Option<RestartCause> {
    let uses = |code| decision.findings.iter().any(|it| it.reason.code() == code);
    let is_before = |time: Option<Timestamp>| time.is_some_and(|it| pod.created <= it);
    if uses(Code::MountAlreadyPresent) && is_before(revision.bundle_content) {
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
