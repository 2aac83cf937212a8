//! Objects of the configuration that cannot be read or written.
//!
//! Invariant: such an object delays only what depends on it. The others are written, and the live document is kept with
//! updated requirements.

use std::collections::BTreeSet;

use api::kcp::REQUIRES_NONE;
use serde_json::Value;

use super::content::{Changes, decide, kind_of, live, live_hash};
use super::{
    Action, Context, Plan, Step, SyncDeferred, annotation, check_permissions, check_reads,
};
use crate::sync::SourceKind;
use crate::sync::desired::Desired;
use crate::sync::observed::{Inaccessible, Observed};

/// Some of the three objects.
pub(super) type ObjectKinds = BTreeSet<SourceKind>;

/// Returns the reason why one of the three objects is not synchronized, if it cannot be read or written.
pub(super) fn check_access(kind: SourceKind, observed: &Observed) -> Option<SyncDeferred> {
    let inaccessible = observed.inaccessible.get(&kind)?;
    let permissions = check_permissions(&missing(inaccessible).collect::<Vec<_>>());
    let access = permissions.and_then(|()| check_reads(inaccessible.failed_read.as_slice()));
    Some(SyncDeferred::Inaccessible {
        kind,
        is_unread: observed.is_unread(kind),
        cause: access.err()?,
    })
}

/// Returns the missing permissions for an object.
pub(super) fn missing(inaccessible: &Inaccessible) -> impl Iterator<Item = String> {
    let missing = inaccessible.missing_permissions.iter();
    missing.chain(&inaccessible.unread).cloned()
}

/// Returns the inaccessible objects of which the document requires content that the runtime may not have, unless the live
/// document requires the same content.
pub(super) fn unmet_requirements(
    document: &Value,
    observed: &Observed,
    inaccessible: &ObjectKinds,
) -> ObjectKinds {
    let is_unmet = |kind: &SourceKind| {
        let Some(key) = kind.requires_key() else {
            return false;
        };
        let live = live_hash(live(*kind, observed));
        let before = observed.configuration.as_ref();
        let before = before.and_then(|it| annotation(it, key));
        let required = annotation(document, key).filter(|it| *it != REQUIRES_NONE);
        required.is_some() && required != live.as_deref() && required != before
    };
    inaccessible.iter().copied().filter(is_unmet).collect()
}

/// Returns the steps in which the trust bundle is inaccessible. Empty if no other action waits for an action on it.
pub(super) fn fallback(
    context: Context<'_>,
    desired: &Desired,
    observed: &Observed,
    changes: &Changes,
) -> Vec<Step> {
    let before_document = [
        &changes.transfers,
        &changes.deletes_before_recreate,
        &changes.parts,
    ];
    if !before_document.into_iter().flatten().any(is_of_bundle) {
        return Vec::new();
    }
    let mut inaccessible: ObjectKinds = observed.inaccessible.keys().copied().collect();
    inaccessible.insert(SourceKind::TrustBundle);
    decide(
        context,
        desired,
        observed,
        &inaccessible,
        &mut Plan::default(),
    )
    .steps()
}

fn is_of_bundle(action: &Action) -> bool {
    kind_of(action.target()) == Some(SourceKind::TrustBundle)
}

impl Plan {
    /// Returns the steps to apply after the API server refused a write of the configuration. If only the trust bundle was refused,
    /// the other objects are written without it: otherwise the live document would still require the old pull Secret, and
    /// the webhook would keep it. `done` has the actions that succeeded.
    #[must_use]
    pub fn fallback_after(&self, done: &[Action]) -> Vec<Step> {
        let is_open = |it: &&Action| !done.contains(it);
        let steps = self.lanes.configuration.steps.iter();
        let mut open = steps.map(|step| step.iter().filter(is_open).collect::<Vec<_>>());
        let refused = open.find(|it| !it.is_empty()).unwrap_or_default();
        if refused.is_empty() || !refused.into_iter().all(is_of_bundle) {
            return Vec::new();
        }
        let steps = self.fallback.iter();
        let steps = steps.map(|step| step.iter().filter(is_open).cloned().collect());
        steps.filter(|step: &Step| !step.is_empty()).collect()
    }

    /// Returns whether an object of the configuration cannot be read or written.
    #[must_use]
    pub fn has_inaccessible(&self) -> bool {
        self.deferred.iter().any(SyncDeferred::is_inaccessible)
    }

    /// Returns the objects of the configuration that were not read, so that their hashes are unknown.
    pub fn unread(&self) -> impl Iterator<Item = SourceKind> {
        self.deferred.iter().filter_map(|it| match it {
            SyncDeferred::Inaccessible {
                kind,
                is_unread: true,
                ..
            } => Some(*kind),
            _ => None,
        })
    }
}
