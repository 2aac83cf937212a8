//! The inventory of a runtime: which objects the controller has applied there.
//!
//! It is text in the marker of ownership, one line per object (`apps/v1 Deployment kyma-system/name`). An object is in it
//! before it is applied, so what a later version no longer has is found again, when that version is installed and when the
//! webhook is uninstalled.
//!
//! Clients of the runtime can write the marker, so an entry is a question, not a permission: an object is deleted only if it
//! says itself, by its manifest hash and its field manager, that the controller applied it. Lines that are not valid are
//! dropped, and the number of lines that are read is bounded.

use std::collections::BTreeSet;

use api::kcp::{CONTENT_HASH, KIM_FIELD_MANAGER, MANIFEST_HASH, OWNER_CONFIG_MAP, OWNER_INVENTORY};
use api::names::{OWN_LABEL, SKR_NAMESPACE};
use serde_json::Value;

use super::fields::{applied_by_controller, managed_by};
use super::manifests::Installation;
use super::observed::{Names, Observed, annotation, data, is_terminating, text};
use super::target::Target;

/// Lines that are read; the manifests have fewer than twenty objects.
const MAX_LINES: usize = 128;

/// Objects of the public manifests that ours do not have, under the names that the public kustomization gives them
/// (<https://github.com/kyma-project/rt-bootstrapper/tree/main/config>), as lines of an inventory. All give permissions to the
/// ServiceAccount, which has the same name here, and which our webhook does not need.
const PUBLIC_LEFTOVERS: [&str; 6] = [
    // Leader election, of which ours has a Role of its own.
    "rbac.authorization.k8s.io/v1 Role kyma-system/rt-bootstrapper-leader-election-role",
    "rbac.authorization.k8s.io/v1 RoleBinding kyma-system/rt-bootstrapper-leader-election-rolebinding",
    // Reviews of tokens, for metrics behind authentication.
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding rt-bootstrapper-metrics-auth-rolebinding",
    // Deletion of Pods, after a change of the trust bundle.
    "rbac.authorization.k8s.io/v1 RoleBinding kyma-system/rt-bootstrapper-pod-restarter-rolebinding",
    "rbac.authorization.k8s.io/v1 RoleBinding istio-system/rt-bootstrapper-pod-restarter-rolebinding",
    "rbac.authorization.k8s.io/v1 ClusterRole rt-bootstrapper-pod-restarter-role",
];

/// The ServiceAccount of the public webhook, and of ours.
const ACCOUNT: &str = "rt-bootstrapper-controller-manager";

/// The entries of the live marker.
pub(super) fn listed(marker: Option<&Value>) -> BTreeSet<Target> {
    let text = marker.and_then(|it| data(it, OWNER_INVENTORY));
    let lines = text.unwrap_or_default().lines().take(MAX_LINES);
    lines.filter_map(Target::of_line).collect()
}

/// The text of an inventory.
pub(super) fn written<'t>(targets: impl IntoIterator<Item = &'t Target>) -> String {
    let lines: BTreeSet<String> = targets.into_iter().map(Target::line).collect();
    lines.into_iter().map(|line| line + "\n").collect()
}

/// What may be on the runtime besides the current manifests and sources, and what a thorough reconcile has to read: entries of
/// the inventory, and at adoption the objects that the public manifests have and ours do not.
#[must_use]
pub fn candidates(
    installation: &Installation,
    names: &Names,
    observed: &Observed,
) -> BTreeSet<Target> {
    let mut candidates = listed(observed.marker.as_ref());
    if is_adoption(observed) {
        candidates.extend(leftovers());
    }
    candidates.retain(|it| {
        let is_manifest = installation
            .manifests()
            .iter()
            .any(|of| is_same(&of.target, it));
        !is_manifest && !is_named(names, it)
    });
    candidates
}

/// Whether a candidate is to be deleted when the current manifests are installed. A source that was synchronized under another
/// name stays: Pods may mount it.
pub(super) fn is_obsolete(target: &Target, live: &Value) -> bool {
    let is_manifest = annotation(live, MANIFEST_HASH).is_some() && is_applied(live);
    !is_terminating(live) && (is_manifest || is_leftover(target, live))
}

/// Whether a candidate is the controller's, or of the public webhook.
pub(super) fn is_known(target: &Target, live: &Value) -> bool {
    is_applied(live) || is_leftover(target, live)
}

/// Whether the controller applied an object, by both its mark and its field manager: a copy that another client made of the
/// object has the mark only.
pub(super) fn is_applied(live: &Value) -> bool {
    let is_marked = |key: &&str| annotation(live, key).is_some();
    applied_by_controller(live) && [MANIFEST_HASH, CONTENT_HASH].iter().any(is_marked)
}

/// Whether the webhook of KIM is there, and the controller has not been.
fn is_adoption(observed: &Observed) -> bool {
    let is_foreign = |it: &Value| annotation(it, MANIFEST_HASH).is_none();
    observed.marker.is_none() && observed.deployment.as_ref().is_some_and(is_foreign)
}

fn leftovers() -> impl Iterator<Item = Target> {
    PUBLIC_LEFTOVERS.into_iter().filter_map(Target::of_line)
}

/// Whether an object is certainly of the public manifests: by its name, and by its label, its manager, or that all it does is
/// to give permissions to the webhook's account.
fn is_leftover(target: &Target, live: &Value) -> bool {
    if !leftovers().any(|it| it == *target) {
        return false;
    }
    let label = live
        .pointer("/metadata/labels")
        .and_then(|it| it.get(OWN_LABEL.0));
    let is_account = |it: &Value| {
        text(it, "/kind") == Some("ServiceAccount")
            && text(it, "/name") == Some(ACCOUNT)
            && text(it, "/namespace") == Some(SKR_NAMESPACE)
    };
    let subjects = live.get("subjects").and_then(Value::as_array);
    label.is_some_and(|it| it == OWN_LABEL.1)
        || managed_by(live, KIM_FIELD_MANAGER)
        || subjects.is_some_and(|it| !it.is_empty() && it.iter().all(is_account))
}

/// Whether two entries may be one object: it can be read in several versions, and was moved between groups before.
fn is_same(one: &Target, other: &Target) -> bool {
    let key = |it: &Target| {
        (
            it.kind(),
            it.namespace().map(str::to_owned),
            it.name().to_owned(),
        )
    };
    key(one) == key(other)
}

/// Whether it is the marker, or has the name of one of the three objects.
fn is_named(names: &Names, target: &Target) -> bool {
    let name = Some(target.name());
    let is_inside = target.namespace() == Some(&names.namespace);
    match target.kind() {
        "Secret" => is_inside && name == names.pull_secret.as_deref(),
        "ConfigMap" => {
            is_inside && [OWNER_CONFIG_MAP, &names.configuration].contains(&target.name())
        }
        "ClusterTrustBundle" => name == names.trust_bundle.as_deref(),
        _ => false,
    }
}
