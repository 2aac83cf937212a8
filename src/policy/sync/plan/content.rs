//! The actions on the three synchronized objects.

use api::bootstrapper::ConfigurationStatus;
use api::kcp::{CONTENT_HASH, CONTROLLER_FIELD_MANAGER, OWNER_CONFIG_MAP, REQUIRES_NONE};
use serde_json::{Map, Value, json};

use super::access::{ObjectKinds, check_access, unmet_requirements};
use super::requirements::refresh_requirements;
use super::{
    Action, Arc, Context, Plan, Step, SyncDeferred, annotation, delete, is_owned, migrate_fields,
    running_webhook,
};
use crate::sync::SourceKind;
use crate::sync::compatibility::check_compatibility;
use crate::sync::desired::{Desired, DesiredObject, UntouchedReason};
use crate::sync::diff::is_applied;
use crate::sync::managed_fields::is_kim;
use crate::sync::observed::{Observed, text};
use crate::sync::target::Target;

/// Actions on the three objects, by step.
#[derive(Default)]
pub(super) struct Changes {
    /// Deletions that belong to no step.
    pub(super) revocations: Vec<Action>,
    /// Actions that precede all others, so that the Secret is deleted although others are rejected: the document stops to
    /// require it.
    pub(super) releases: Vec<Step>,
    pub(super) transfers: Vec<Action>,
    pub(super) deletes_before_recreate: Vec<Action>,
    pub(super) parts: Vec<Action>,
    /// Removals of keys from the document. They follow the other objects, since a document that is kept keeps its keys.
    pub(super) patches: Vec<Action>,
    pub(super) document: Vec<Action>,
    pub(super) removals: Vec<Action>,
}

impl Changes {
    /// Returns the steps. Objects that the document requires are written before it; objects that it requires until then
    /// are deleted after it.
    pub(super) fn steps(self) -> Vec<Step> {
        let mut steps = self.releases;
        steps.extend([
            self.transfers,
            self.deletes_before_recreate,
            self.parts,
            self.patches,
            self.document,
            self.removals,
        ]);
        steps
    }

    /// Deletes a pull Secret that the live document requires before all other writes, unless these only end the requirement.
    fn release(
        &mut self,
        context: Context<'_>,
        desired: &Desired,
        observed: &Observed,
        inaccessible: &ObjectKinds,
    ) {
        let is_secret = |it: &Action| kind_of(it.target()) == Some(SourceKind::PullSecret);
        if !self.removals.iter().any(is_secret) {
            return;
        }
        let mut hashes = ConfigurationStatus::default();
        for kind in SourceKind::ALL {
            let live =
                live(kind, observed).filter(|_| *desired.get(kind) != DesiredObject::Removed);
            kind.set_hash(&mut hashes, live_hash(live));
        }
        let release = refresh_requirements(context, desired, observed, &hashes, inaccessible);
        let Some(release) = release else {
            return;
        };
        let others = [
            &self.transfers,
            &self.deletes_before_recreate,
            &self.parts,
            &self.patches,
        ];
        if others.iter().all(|it| it.is_empty()) && self.document.iter().all(|it| *it == release) {
            return;
        }
        // Patches of the document contain the version that was read.
        let is_patch = |it: &mut Action| {
            it.target() == release.target() && !matches!(it, Action::Apply { .. })
        };
        let patches = [&mut self.transfers, &mut self.patches];
        let patches: Step = patches
            .into_iter()
            .flat_map(|it| it.extract_if(.., is_patch))
            .collect();
        let secret = self.removals.extract_if(.., |it| is_secret(it)).collect();
        self.releases = vec![patches, vec![release], secret];
    }

    /// Returns whether the steps change no content. A change of ownership only is not counted.
    pub(super) fn is_empty(&self) -> bool {
        let changes = [&self.parts, &self.patches, &self.document, &self.removals];
        self.releases.is_empty() && changes.iter().all(|it| it.is_empty())
    }
}

/// Plans the actions on the three objects. Inaccessible objects are not changed.
pub(super) fn decide(
    context: Context<'_>,
    desired: &Desired,
    observed: &Observed,
    inaccessible: &ObjectKinds,
    plan: &mut Plan,
) -> Changes {
    let mut changes = Changes::default();
    for kind in SourceKind::ALL {
        let live = live(kind, observed);
        plan.deferred.extend(check_access(kind, observed));
        let change = object_change(kind, desired, observed, inaccessible);
        let is_kept = matches!(change, Ok(ObjectChange::Keep) | Err(_));
        let hash = match change {
            Ok(ObjectChange::Apply(object)) => {
                if let Some(target) = target(kind, context, observed) {
                    write(kind, &target, &object, live, &mut changes);
                }
                annotation(&object, CONTENT_HASH).map(str::to_owned)
            }
            Ok(ObjectChange::Delete) => {
                let owned = live.filter(|live| is_owned(live));
                let deletion = owned
                    .zip(target(kind, context, observed))
                    .map(|(live, target)| delete(target, live));
                let is_kept = inaccessible.contains(&SourceKind::Configuration);
                if kind == SourceKind::PullSecret && (is_kept || !is_required(kind, observed)) {
                    changes.revocations.extend(deletion);
                } else {
                    changes.removals.extend(deletion);
                }
                None
            }
            Ok(ObjectChange::Keep) => live_hash(live),
            Err(deferred) => {
                plan.deferred.push(deferred);
                live_hash(live)
            }
        };
        kind.set_hash(&mut plan.hashes, hash);
        kind.set_hash(&mut plan.hashes_before, live_hash(live));
        // The document is processed last, so that the hashes of the other objects are known.
        if is_kept && kind == SourceKind::Configuration {
            let hashes = &plan.hashes;
            let refreshed = refresh_requirements(context, desired, observed, hashes, inaccessible);
            changes.document.extend(refreshed);
        }
    }
    changes.release(context, desired, observed, inaccessible);
    let lacks = |kind: SourceKind| {
        let pending = pending_hash(kind, desired);
        pending.is_some() && kind.hash(&plan.hashes) != pending.as_deref()
    };
    let is_satisfied = plan.deferred.iter().all(SyncDeferred::is_satisfied);
    if is_satisfied && !SourceKind::ALL.into_iter().any(lacks) {
        plan.hashes.revision = desired.complete_revision.map(|it| it.to_string());
    }
    changes
}

impl Plan {
    /// Records that only these actions succeeded, and updates the reported hashes accordingly.
    pub fn record_applied(&mut self, done: &[Action]) {
        let is_open = |action: &Action| {
            let changes = !matches!(action, Action::Transfer { .. });
            changes && kind_of(action.target()).is_some() && !done.contains(action)
        };
        let steps = self.lanes.configuration.steps.iter().flatten();
        self.writes_configuration = self.revocations.iter().chain(steps).any(is_open);
        if !self.writes_configuration {
            return;
        }
        self.hashes = self.hashes_before.clone();
        for action in done {
            let Some(kind) = kind_of(action.target()) else {
                continue;
            };
            let hash = match action {
                Action::Create { object, .. } | Action::Apply { object, .. } => {
                    live_hash(Some(object))
                }
                Action::Delete { .. } => None,
                Action::Transfer { .. } | Action::RemoveFields { .. } => continue,
            };
            kind.set_hash(&mut self.hashes, hash);
        }
    }
}

/// Returns the kind of the synchronized object with this target; the manifests contain no object of these kinds.
pub(super) fn kind_of(target: &Target) -> Option<SourceKind> {
    match (target.kind(), target.name()) {
        ("ConfigMap", OWNER_CONFIG_MAP) => None,
        ("ConfigMap", _) => Some(SourceKind::Configuration),
        ("Secret", _) => Some(SourceKind::PullSecret),
        ("ClusterTrustBundle", _) => Some(SourceKind::TrustBundle),
        _ => None,
    }
}

/// Returns whether the live document requires the object, so that the webhook uses its last content until the document
/// is written.
fn is_required(kind: SourceKind, observed: &Observed) -> bool {
    let document = observed.configuration.as_ref().filter(|it| is_owned(it));
    let required = kind
        .requires_key()
        .and_then(|key| annotation(document?, key));
    required.is_some_and(|it| it != REQUIRES_NONE)
}

/// The change of one object on this runtime.
enum ObjectChange {
    Apply(Arc<Value>),
    Delete,
    Keep,
}

fn object_change(
    kind: SourceKind,
    desired: &Desired,
    observed: &Observed,
    inaccessible: &ObjectKinds,
) -> Result<ObjectChange, SyncDeferred> {
    let object = match desired.get(kind) {
        DesiredObject::Untouched(UntouchedReason::Deferred(deferred)) => {
            return Err(deferred.clone());
        }
        _ if inaccessible.contains(&kind) => return Ok(ObjectChange::Keep),
        DesiredObject::Present { object, .. } => object,
        DesiredObject::Removed => return Ok(ObjectChange::Delete),
        // The invalid source is reported separately.
        DesiredObject::Untouched(
            UntouchedReason::Disabled
            | UntouchedReason::Unmanaged
            | UntouchedReason::InvalidReference(_),
        ) => {
            return Ok(ObjectChange::Keep);
        }
    };
    match (kind, observed.trust_bundles.as_deref()) {
        (SourceKind::PullSecret, _) => Ok(ObjectChange::Apply(Arc::clone(object))),
        (SourceKind::TrustBundle, None) => Err(SyncDeferred::TrustBundleAPINotServed),
        (SourceKind::TrustBundle, Some(version)) => {
            let served = desired.served_bundle(version);
            Ok(ObjectChange::Apply(
                served.unwrap_or_else(|| Arc::clone(object)),
            ))
        }
        (SourceKind::Configuration, _) => {
            // A check is only needed if there is an older document that the webhook could keep.
            if observed.configuration.is_some() {
                check_compatibility(&desired.requirement, running_webhook(observed))
                    .map_err(SyncDeferred::IncompatibleWebhookVersion)?;
            }
            let unmet = unmet_requirements(object, observed, inaccessible);
            // The live document is of the revision of the objects that are not changed. The first document does not wait for the
            // trust bundle, since the webhook is not ready without a document.
            let is_bundle = |kind: &SourceKind| *kind == SourceKind::TrustBundle;
            if !unmet.is_empty()
                && (observed.configuration.is_some() || !unmet.iter().all(is_bundle))
            {
                return Ok(ObjectChange::Keep);
            }
            Ok(ObjectChange::Apply(with_met_requirements(
                object, desired, observed, &unmet,
            )))
        }
    }
}

/// Returns the document without requirements that this runtime cannot fulfill: a ClusterTrustBundle that is not
/// served, an object that is absent and whose source is missing, or an inaccessible object. The webhook uses an inaccessible trust
/// bundle as it is, if it exists: [`REQUIRES_NONE`] would take it away from Pods.
fn with_met_requirements(
    document: &Arc<Value>,
    desired: &Desired,
    observed: &Observed,
    unmet: &ObjectKinds,
) -> Arc<Value> {
    let instead = |kind: SourceKind| {
        let key = kind.requires_key()?;
        let required = annotation(document, key)?;
        let lacks = || live_hash(live(kind, observed)).as_deref() != Some(required);
        if kind == SourceKind::TrustBundle && observed.serves_no_trust_bundles() {
            Some((key, Some(REQUIRES_NONE)))
        } else {
            let is_lost = pending_hash(kind, desired).is_some() && lacks();
            (is_lost || unmet.contains(&kind)).then_some((key, None))
        }
    };
    let changes: Vec<_> = SourceKind::ALL.into_iter().filter_map(instead).collect();
    if changes.is_empty() {
        return Arc::clone(document);
    }
    let mut adapted = Value::clone(document);
    if let Some(annotations) = adapted["metadata"]["annotations"].as_object_mut() {
        for (key, value) in changes {
            match value {
                Some(value) => drop(annotations.insert(key.to_owned(), value.into())),
                None => drop(annotations.remove(key)),
            }
        }
    }
    Arc::new(adapted)
}

/// Returns the synchronized hash of a source that is missing.
fn pending_hash(kind: SourceKind, desired: &Desired) -> Option<String> {
    let hash = desired.get(kind).pending_hash();
    hash.map(|it| it.to_string())
}

fn write(
    kind: SourceKind,
    target: &Target,
    object: &Arc<Value>,
    live: Option<&Value>,
    changes: &mut Changes,
) {
    let contains = live.is_some_and(|live| is_applied(object, live));
    let replaced = live.filter(|live| {
        has_immutable_keys(object, live) || !contains && immutable_differs(object, live)
    });
    let same = contains && replaced.is_none();
    let transfer =
        live.and_then(|live| migrate_fields(target, live, is_kim, CONTROLLER_FIELD_MANAGER, &[]));
    match (replaced, transfer) {
        (Some(live), _) => changes
            .deletes_before_recreate
            .push(delete(target.clone(), live)),
        // The next apply removes the fields of KIM that the object does not contain, the next reconcile removes other
        // keys.
        (None, Some(transfer)) => changes.transfers.push(transfer),
        (None, None) => {
            let live = live.filter(|_| kind == SourceKind::Configuration);
            let patch = live.and_then(|live| remove_keys_patch(object, live));
            changes
                .patches
                .extend(patch.map(|patch| Action::RemoveFields {
                    target: target.clone(),
                    patch,
                }));
        }
    }
    if same {
        return;
    }
    let actions = match kind {
        SourceKind::PullSecret | SourceKind::TrustBundle => &mut changes.parts,
        SourceKind::Configuration => &mut changes.document,
    };
    actions.push(Action::Apply {
        target: target.clone(),
        object: Arc::clone(object),
    });
}

/// Returns the JSON patch that removes keys that are not in the desired ConfigMap, since a webhook could use them.
/// The patch has one operation per map, since the API server accepts at most 10,000 operations.
fn remove_keys_patch(object: &Value, live: &Value) -> Option<Value> {
    let version = text(live, "/metadata/resourceVersion")?;
    let mut patch =
        vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
    for map in ["data", "binaryData"] {
        let Some(entries) = live.get(map).and_then(Value::as_object) else {
            continue;
        };
        let is_desired = |key: &str| object.get(map).is_some_and(|it| it.get(key).is_some());
        if entries.keys().all(|key| is_desired(key)) {
            continue;
        }
        let kept = entries.iter().filter(|(key, _)| is_desired(key));
        let kept: Map<String, Value> = kept.map(|(key, it)| (key.clone(), it.clone())).collect();
        patch.push(json!({ "op": "replace", "path": format!("/{map}"), "value": kept }));
    }
    (patch.len() > 1).then_some(Value::Array(patch))
}

/// Returns whether an immutable ConfigMap has other keys than the desired one, which cannot be removed.
fn has_immutable_keys(object: &Value, live: &Value) -> bool {
    let is_immutable = live.get("immutable") == Some(&Value::Bool(true));
    is_immutable && object["kind"] == "ConfigMap" && remove_keys_patch(object, live).is_some()
}

/// Returns whether an immutable field differs: the type of a Secret, the signer of a ClusterTrustBundle, or the data
/// of an object that is marked as immutable.
fn immutable_differs(object: &Value, live: &Value) -> bool {
    let differs = |key: &str| match (object.get(key), live.get(key)) {
        (Some(desired), Some(live)) => !is_applied(desired, live),
        (desired, live) => desired.is_some() && live.is_none(),
    };
    let signer = |object: &Value| object.pointer("/spec/signerName").cloned();
    let is_immutable = live.get("immutable") == Some(&Value::Bool(true));
    differs("type") || signer(object) != signer(live) || (is_immutable && differs("data"))
}

/// Returns kind, namespace and name of the object; `None` if it is disabled or the runtime does not serve its API.
pub(super) fn target(
    kind: SourceKind,
    context: Context<'_>,
    observed: &Observed,
) -> Option<Target> {
    context
        .names
        .target(kind, observed.trust_bundles.as_deref())
}

/// Returns the live object.
pub(super) fn live(kind: SourceKind, observed: &Observed) -> Option<&Value> {
    match kind {
        SourceKind::PullSecret => observed.pull_secret.as_ref(),
        SourceKind::TrustBundle => observed.trust_bundle.as_ref(),
        SourceKind::Configuration => observed.configuration.as_ref(),
    }
}

/// Returns the hash in the annotation of a live object. Clients of the runtime can change it, so its length is
/// checked for the status.
pub(super) fn live_hash(live: Option<&Value>) -> Option<String> {
    live.and_then(|live| annotation(live, CONTENT_HASH))
        .filter(|hash| hash.len() <= MAX_HASH)
        .map(str::to_owned)
}

/// Length of a hash, in characters.
const MAX_HASH: usize = 64;
