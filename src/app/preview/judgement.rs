//! Decisions of the webhook: a review is created for each Pod, parsed in the same way as in the webhook, and decided.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::Feature;
use api::names::{OWN_LABEL, SKR_NAMESPACE};
use json_patch::Patch;
use policy::admission::review::{self, Request, Subject};
use policy::admission::{
    Code, Configuration, Context, Finding, PullSecret, TrustBundlePresence, decide_unsent,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::error::{Errors, Place};
use super::manifest::{Described, Source, Workload, undescribed};
use super::near_miss::{self, NearMiss};

#[cfg(test)]
mod tests;

/// Message of a result that cannot be written as JSON.
pub(super) const UNWRITTEN: &str = "the result cannot be written as JSON";

/// Inputs of the decisions.
pub(super) struct Landscape<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) pull_secret: &'a PullSecret,
    pub(super) namespaces: &'a BTreeMap<String, Described>,
}

/// A Pod, and the decision about it. The report for programs has this format.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verdict {
    pub(super) source: Source,
    /// Whether the Pod would be changed.
    pub(super) changed: bool,
    /// The Pod in the manifests.
    #[serde(skip)]
    pub(super) before: Value,
    /// The Pod as it would be admitted.
    #[serde(rename = "pod")]
    pub(super) after: Value,
    /// The patch from `before` to `after`; empty if nothing changes.
    pub(super) patch: Patch,
    /// Reasons for and against changes.
    pub(super) reasons: Vec<Explanation>,
    /// Annotations and labels that have no effect, but look like an opt-in or opt-out.
    pub(super) near_misses: Vec<NearMiss>,
}

/// A finding that outlives its review.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Explanation {
    #[serde(skip)]
    pub(super) feature: Feature,
    #[serde(skip)]
    pub(super) applied: bool,
    #[serde(skip)]
    pub(super) warns: bool,
    #[serde(skip)]
    pub(super) code: Code,
    #[serde(skip)]
    pub(super) message: String,
    /// The serialized finding for reports.
    json: Box<RawValue>,
}

impl Explanation {
    fn of(finding: &Finding<'_>) -> Result<Self, serde_json::Error> {
        Ok(Self {
            feature: finding.feature,
            applied: finding.reason.applied(),
            warns: finding.reason.warns(),
            code: finding.reason.code(),
            message: finding.reason.to_string(),
            json: to_raw_value(finding)?,
        })
    }

    /// Returns whether the Pod is never changed, independent of its opt-ins.
    pub(super) fn is_of_excluded_pod(&self) -> bool {
        matches!(
            self.code,
            Code::NamespaceExcluded | Code::OwnPod | Code::MirrorPod | Code::PodTerminating
        )
    }

    /// Returns whether the Pod does not get the feature: it is not requested, not available, or opted out of.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self.code,
            Code::NotRequested | Code::NotAvailable | Code::OptedOutByPod
        )
    }
}

/// Returns the decision on each Pod, in order.
pub(super) fn judge(
    workloads: &[Workload],
    landscape: &Landscape<'_>,
) -> Result<Vec<Verdict>, Errors> {
    let mut errors = Errors::default();
    let verdicts = workloads.iter();
    let verdicts = verdicts.filter_map(|workload| errors.keep(verdict(workload, landscape)));
    let verdicts = verdicts.collect();
    errors.none_or(Some(verdicts))
}

fn verdict(workload: &Workload, landscape: &Landscape<'_>) -> anyhow::Result<Verdict> {
    let undescribed = undescribed(&workload.source.namespace);
    let described = landscape.namespaces.get(&workload.source.namespace);
    let context = Context {
        configuration: landscape.configuration,
        namespace: Some(described.map_or(&undescribed, |it| &it.namespace)),
        pull_secret: landscape.pull_secret,
        trust_bundle: TrustBundlePresence::Present,
        fallback_policy: false,
    };
    let pod = workload.pod.to_string();
    let body = review::of_created_pod(&workload.source.namespace, &pod);
    match review::parse(body.as_bytes()).map(|review| review.subject) {
        Ok(Subject::Pod(request)) => {
            let mut verdict = answer(workload, &request, &context)?;
            verdict.near_misses = near_miss::of(workload, described, &verdict.reasons);
            Ok(verdict)
        }
        Ok(Subject::Unreadable(source)) => {
            let context = format!("{}: {}", workload.place, workload.source);
            Err(anyhow::Error::new(source).context(context))
        }
        Ok(Subject::Foreign) | Err(_) => Err(defect(&workload.place)),
    }
}

fn answer(
    workload: &Workload,
    request: &Request<'_>,
    context: &Context<'_>,
) -> anyhow::Result<Verdict> {
    let defect = || defect(&workload.place);
    let label = &workload.pod["metadata"]["labels"][OWN_LABEL.0];
    let decision = decide_unsent(request, SKR_NAMESPACE, label.as_str(), context);
    let operations = decision.patch.json().unwrap_or(b"[]");
    let patch: Patch = serde_json::from_slice(operations).map_err(|_| defect())?;
    let mut after = workload.pod.clone();
    json_patch::patch(&mut after, &patch).map_err(|_| defect())?;
    let reasons: Result<_, _> = decision.findings.iter().map(Explanation::of).collect();
    Ok(Verdict {
        source: workload.source.clone(),
        changed: !patch.0.is_empty(),
        before: workload.pod.clone(),
        after,
        patch,
        reasons: reasons.context(UNWRITTEN)?,
        near_misses: Vec::new(),
    })
}

/// Error of a patch that does not fit its Pod.
fn defect(place: &Place) -> anyhow::Error {
    anyhow::anyhow!("{place}: the decision does not fit this Pod: a defect of this program")
}
