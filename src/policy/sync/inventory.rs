//! The inventory of a runtime: the objects that the controller has applied there.
//!
//! It is a key of the ownership ConfigMap, with one line per object (`apps/v1 Deployment kyma-system/name`). An
//! object is added before it is applied. Therefore an object that a later version does not contain can be deleted,
//! when that version is installed or the webhook is uninstalled.
//!
//! Clients of the runtime can change the inventory. Therefore a listed object is deleted only if its manifest hash and
//! field manager show that the controller applied it. Invalid lines are ignored, and the number of lines is bounded.

use std::collections::BTreeSet;

use api::kcp::{CONTENT_HASH, KIM_FIELD_MANAGER, MANIFEST_HASH, OWNER_CONFIG_MAP, OWNER_INVENTORY};
use api::names::{OWN_LABEL, SKR_NAMESPACE};
use serde_json::Value;

use super::desired::TRUST_BUNDLE_VERSION;
use super::managed_fields::{applied_by_controller, managed_by};
use super::manifests::Installation;
use super::observed::{Observed, annotation, data, is_terminating, label, text};
use super::target::Target;
use super::{ObjectNames, SourceKind};

/// Maximum number of lines that are read; the manifests have fewer than twenty objects.
const MAX_LINES: usize = 128;

/// Objects of the public manifests that the manifests of this project do not contain, with their names in the public
/// kustomization (<https://github.com/kyma-project/rt-bootstrapper/tree/main/config>), as lines of an inventory. All
/// of them grant permissions that the ServiceAccount, which has the same name in both, does not need.
const PUBLIC_ONLY_OBJECTS: [&str; 4] = [
    // Leader election, for which this project has another Role.
    "rbac.authorization.k8s.io/v1 Role kyma-system/rt-bootstrapper-leader-election-role",
    "rbac.authorization.k8s.io/v1 RoleBinding kyma-system/rt-bootstrapper-leader-election-rolebinding",
    // TokenReviews for metrics with authentication.
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding rt-bootstrapper-metrics-auth-rolebinding",
    // Restarts of Pods in another namespace than that of the webhook.
    "rbac.authorization.k8s.io/v1 RoleBinding istio-system/rt-bootstrapper-pod-restarter-rolebinding",
];

/// The ServiceAccount of both webhooks.
const ACCOUNT: &str = "rt-bootstrapper-controller-manager";

/// Parses the inventory in a key of the live ownership ConfigMap.
pub(super) fn parse(marker: Option<&Value>, key: &str) -> BTreeSet<Target> {
    let text = marker.and_then(|it| data(it, key));
    let lines = text.unwrap_or_default().lines().take(MAX_LINES);
    lines.filter_map(Target::of_line).collect()
}

/// Formats an inventory.
pub(super) fn format<'t>(targets: impl IntoIterator<Item = &'t Target>) -> String {
    let lines: BTreeSet<String> = targets.into_iter().map(Target::line).collect();
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns the objects that may be on the runtime in addition to manifests and sources, so that a full reconcile must
/// read them. They are the objects in the inventory, and at adoption the objects of the public manifests that are not
/// in the manifests of this project.
#[must_use]
pub fn candidates(
    installation: &Installation,
    names: &ObjectNames,
    observed: &Observed,
) -> BTreeSet<Target> {
    let mut candidates = parse(observed.marker.as_ref(), OWNER_INVENTORY);
    if is_adoption(observed) {
        candidates.extend(public_only_objects());
    }
    candidates.retain(|it| {
        let is_manifest = installation
            .manifests()
            .iter()
            .any(|of| may_be_same_object(&of.target, it));
        !is_manifest && !is_reserved(names, it)
    });
    candidates
}

/// Returns the entry of the inventory for a source.
pub(super) fn recorded(
    kind: SourceKind,
    names: &ObjectNames,
    observed: &Observed,
) -> Option<Target> {
    let source = names.target(kind, Some(TRUST_BUNDLE_VERSION))?;
    let listed = parse(observed.marker.as_ref(), OWNER_INVENTORY);
    listed
        .into_iter()
        .find(|it| may_be_same_object(it, &source))
}

/// Returns whether a candidate is deleted after the current manifests are installed.
pub(super) fn is_obsolete(target: &Target, live: &Value) -> bool {
    let is_manifest = annotation(live, MANIFEST_HASH).is_some() && is_managed(live);
    !is_terminating(live) && (is_manifest || is_public_only(target, live))
}

/// Returns whether a candidate belongs to the controller or to the public webhook.
#[must_use]
pub fn is_managed_or_public(target: &Target, live: &Value) -> bool {
    is_managed(live) || is_public_only(target, live)
}

/// Returns whether the controller applied an object, according to both annotation and field manager: a copy by
/// another client has the annotation only.
pub(super) fn is_managed(live: &Value) -> bool {
    let is_marked = |key: &&str| annotation(live, key).is_some();
    applied_by_controller(live) && [MANIFEST_HASH, CONTENT_HASH].iter().any(is_marked)
}

/// Returns whether KIM has installed the webhook, and the controller has not adopted it yet.
fn is_adoption(observed: &Observed) -> bool {
    let is_foreign = |it: &Value| annotation(it, MANIFEST_HASH).is_none();
    let marker = observed.marker.as_ref();
    // The controller may have installed the watcher on this runtime.
    let is_unknown = marker.is_none_or(|it| data(it, OWNER_INVENTORY).is_none());
    is_unknown && observed.deployment.as_ref().is_some_and(is_foreign)
}

fn public_only_objects() -> impl Iterator<Item = Target> {
    PUBLIC_ONLY_OBJECTS.into_iter().filter_map(Target::of_line)
}

/// Returns whether an object belongs to the public manifests: by its name, and by its label, its field manager, or
/// its only subject, the ServiceAccount of the webhook.
fn is_public_only(target: &Target, live: &Value) -> bool {
    if !public_only_objects().any(|it| it == *target) {
        return false;
    }
    let is_account = |it: &Value| {
        text(it, "/kind") == Some("ServiceAccount")
            && text(it, "/name") == Some(ACCOUNT)
            && text(it, "/namespace") == Some(SKR_NAMESPACE)
    };
    let subjects = live.get("subjects").and_then(Value::as_array);
    label(live, OWN_LABEL.0) == Some(OWN_LABEL.1)
        || managed_by(live, KIM_FIELD_MANAGER)
        || subjects.is_some_and(|it| !it.is_empty() && it.iter().all(is_account))
}

/// Returns whether two entries may be the same object, which can be read in several versions and may have been moved
/// between groups.
fn may_be_same_object(one: &Target, other: &Target) -> bool {
    let key = |it: &Target| {
        (
            it.kind(),
            it.namespace().map(str::to_owned),
            it.name().to_owned(),
        )
    };
    key(one) == key(other)
}

/// Returns whether the object is the ownership ConfigMap or has the name of a synchronized object.
fn is_reserved(names: &ObjectNames, target: &Target) -> bool {
    let marker = Target::config_map(&names.namespace, OWNER_CONFIG_MAP);
    let sources = SourceKind::ALL.into_iter();
    let sources = sources.filter_map(|kind| names.target(kind, Some(TRUST_BUNDLE_VERSION)));
    let mut reserved = sources.chain([marker]);
    reserved.any(|it| may_be_same_object(&it, target))
}
