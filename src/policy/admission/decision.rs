//! The function [`decide`], which the webhook and the preview share.

use std::collections::BTreeMap;

use api::{Feature, FeatureSet};

use crate::image::Keyring;

use super::opt_in::OptIn;
use super::patch::{Patch, PatchWriter};
use super::review::{Operation, Request};
use super::{
    Annotations, Configuration, Finding, Reason, exclusion, marker, mounts, pull_secret, registry,
    variables,
};

/// The known state at the time of a request: a snapshot, without look-ups.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The current configuration.
    pub configuration: &'a Configuration,
    /// The Namespace of the Pod; `None` if the snapshot does not contain it.
    pub namespace: Option<&'a Namespace>,
    /// The known state of the pull Secret.
    pub pull_secret: &'a PullSecret,
    /// The known state of the ClusterTrustBundle.
    pub trust_bundle: TrustBundlePresence,
    /// Whether the API server evaluates the fallback policy of this configuration, which runs before the webhook.
    pub fallback_policy: bool,
}

/// The relevant fields of a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The relevant annotations.
    pub annotations: Annotations,
    /// The labels, for the selector of the pull Secret.
    pub labels: BTreeMap<String, String>,
}

/// The known state of the pull Secret in the product namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PullSecret {
    /// The Secret was not observed yet, is absent, or has a format that a kubelet ignores. A Pod may name such a
    /// Secret without effect. A Pod that does not name it cannot be corrected later.
    #[default]
    Unknown,
    /// The Secret was observed, and no kubelet can parse it. A kubelet fails every pull of a Pod that names such a Secret.
    Invalid,
    /// The registries for which the Secret has credentials.
    Known(Keyring),
}

/// The known state of the configured ClusterTrustBundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustBundlePresence {
    /// The watch has not responded yet. The bundle is not mounted.
    #[default]
    Unknown,
    /// The bundle exists.
    Present,
    /// The bundle does not exist.
    Absent,
    /// The API server does not serve the kind.
    Unserved,
    /// The API server serves the kind, and does not project it into Pods or never reported whether it does.
    NotProjected,
}

/// The decision about a request.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// The change of the Pod.
    pub patch: Patch,
    /// The reasons: at least one finding for every feature.
    pub findings: Vec<Finding<'a>>,
}

/// A decision in progress.
pub(super) struct Draft<'a> {
    pub(super) patch: PatchWriter,
    pub(super) findings: Vec<Finding<'a>>,
}

impl<'a> Draft<'a> {
    pub(super) fn report(&mut self, feature: Feature, reason: Reason<'a>) {
        self.findings.push(Finding::new(feature, reason));
    }
}

impl<'a> Decision<'a> {
    /// Returns a decision without a change, with one reason for all features.
    fn unchanged(reason: &Reason<'a>) -> Self {
        Self {
            patch: Patch::default(),
            findings: Feature::ALL
                .map(|it| Finding::new(it, reason.clone()))
                .to_vec(),
        }
    }

    /// Returns whether the Pod is changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        !self.patch.is_empty()
    }
}

/// Decides what becomes of a Pod that the API server may not send at all: `label` is the value that the Pod has for the
/// key of [`api::names::OWN_LABEL`], and the Pods of the webhook are in `product_namespace`.
#[must_use]
pub fn decide_unsent<'a>(
    request: &'a Request<'a>,
    product_namespace: &str,
    label: Option<&str>,
    context: &Context<'a>,
) -> Decision<'a> {
    match exclusion(&request.namespace, product_namespace, label) {
        Some(reason) => Decision::unchanged(&reason),
        None => decide(request, context),
    }
}

/// Decides about a Pod.
#[must_use]
pub fn decide<'a>(request: &'a Request<'a>, context: &Context<'a>) -> Decision<'a> {
    if let Some(reason) = out_of_bounds(request) {
        return Decision::unchanged(&reason);
    }
    let opt_in = OptIn::of(
        context.configuration,
        &request.namespace,
        context.namespace,
        request.object.metadata.annotations.unwrap_or_default(),
    );
    let enabled = opt_in.enabled();
    let mut draft = Draft {
        patch: PatchWriter::new(request.patch_limit),
        findings: Vec::with_capacity(16),
    };
    for feature in Feature::ALL {
        if let Some(reason) = opt_in.refusal(feature) {
            draft.report(feature, reason);
        }
    }
    let refusals = draft.findings.len();
    if request.operation == Operation::Create {
        create(request, context, enabled, &mut draft);
    } else {
        update(request, context, enabled, &mut draft);
    }
    let Draft {
        patch,
        mut findings,
    } = draft;
    let patch = patch.finish().unwrap_or_else(|| {
        findings.truncate(refusals);
        let too_large = |feature| Finding::new(feature, Reason::PatchTooLarge);
        findings.extend(enabled.iter().map(too_large));
        Patch::default()
    });
    if context.fallback_policy && request.operation == Operation::Create {
        attribute_to_policy(context.configuration, &mut findings);
    }
    // A stable order makes reports comparable: by feature, and for each feature in the order of the Pod.
    findings.sort_by_key(|finding| finding.feature);
    Decision { patch, findings }
}

/// Reports that the policy applied each feature that is in place and complete. A Pod that was written with the
/// feature in place cannot be distinguished from a Pod that the policy adapted.
fn attribute_to_policy(configuration: &Configuration, findings: &mut Vec<Finding<'_>>) {
    let in_place = |reason: &Reason<'_>| match reason {
        Reason::NoMatchingOverride { image, .. } => configuration.overrides.have_given(image),
        reason => reason.in_place(),
    };
    for feature in Feature::ALL {
        let own = || findings.iter().filter(|it| it.feature == feature);
        let is_left = own().any(|it| it.reason.applied());
        if !is_left && own().any(|it| in_place(&it.reason)) {
            findings.retain(|it| it.feature != feature || !in_place(&it.reason));
            findings.push(Finding::new(feature, Reason::AppliedByPolicy));
        }
    }
}

fn out_of_bounds(request: &Request<'_>) -> Option<Reason<'static>> {
    let metadata = &request.object.metadata;
    if request.operation == Operation::Other {
        Some(Reason::OperationNotHandled)
    } else if metadata.annotations.is_some_and(Annotations::mirror) {
        Some(Reason::MirrorPod)
    } else if metadata.deletion_timestamp.is_some() {
        Some(Reason::PodTerminating)
    } else {
        None
    }
}

fn create<'a>(
    request: &'a Request<'a>,
    context: &Context<'a>,
    enabled: FeatureSet,
    draft: &mut Draft<'a>,
) {
    let configuration = context.configuration;
    let spec = &request.object.spec;
    if enabled.contains(Feature::RegistryRewrite) {
        registry::rewrite_all(configuration, spec, draft);
    }
    if enabled.contains(Feature::PullSecret) {
        pull_secret::inject(context, spec, draft);
    }
    if enabled.contains(Feature::TrustBundle) {
        mounts::mount(context, spec, draft);
    }
    variables::set(configuration, enabled, spec, draft);
    marker::mark(request.object.metadata.annotations, &mut draft.patch);
}

fn update<'a>(
    request: &'a Request<'a>,
    context: &Context<'a>,
    enabled: FeatureSet,
    draft: &mut Draft<'a>,
) {
    let spec = &request.object.spec;
    for feature in enabled.iter() {
        match (feature, &request.old) {
            (Feature::RegistryRewrite, Some(old)) => {
                let rewrite = match request.operation {
                    Operation::AddEphemeral => registry::rewrite_new_ephemeral,
                    _ => registry::rewrite_changed,
                };
                rewrite(context.configuration, spec, &old.spec, draft);
            }
            (Feature::PullSecret, _) => {
                let missing = pull_secret::not_named(context, spec, &draft.findings);
                draft.report(feature, missing.unwrap_or(Reason::ImmutableField));
            }
            // Nor is an image changed without the stored Pod: it is unknown which images this request changed.
            _ => draft.report(feature, Reason::ImmutableField),
        }
    }
}
