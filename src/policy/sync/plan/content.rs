//! The part of a plan that is about the three objects.

use api::kcp::{
    CONTENT_HASH, OWNER_CONFIG_MAP, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE,
};
use serde_json::{Map, Value, json};

use super::renewal::renewed;
use super::{
    Action, Arc, Content, Context, Held, Plan, Step, annotation, delete, is_ours, running,
    take_over,
};
use crate::sync::SourceKind;
use crate::sync::compatibility::judge;
use crate::sync::desired::{Desired, DesiredObject, TRUST_BUNDLE_VERSION, Why};
use crate::sync::differs::contained;
use crate::sync::fields::is_kim;
use crate::sync::observed::{Names, Observed, text};
use crate::sync::target::Target;

/// Actions on the three objects, by the step in which they may happen.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) transfers: Vec<Action>,
    pub(super) clears: Vec<Action>,
    pub(super) parts: Vec<Action>,
    pub(super) document: Vec<Action>,
    pub(super) removals: Vec<Action>,
}

impl Changes {
    /// What a document requires is there before it, and what no document requires any more goes after it.
    pub(super) fn steps(self) -> Vec<Step> {
        vec![
            self.transfers,
            self.clears,
            self.parts,
            self.document,
            self.removals,
        ]
    }

    /// Whether the content of no object changes; ownership alone is none.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.document.is_empty() && self.removals.is_empty()
    }
}

/// Decides about the three objects.
pub(super) fn decide(
    context: Context<'_>,
    desired: &Desired,
    observed: &Observed,
    plan: &mut Plan,
) -> Changes {
    let mut changes = Changes::default();
    for kind in SourceKind::ALL {
        let live = live(kind, observed);
        let verdict = verdict(kind, desired, observed);
        let stays = matches!(verdict, Ok(Verdict::Leave) | Err(_));
        let remains = match verdict {
            Ok(Verdict::Write(object)) => {
                if let Some(target) = target(kind, context.names, observed) {
                    write(kind, &target, &object, live, &mut changes);
                }
                annotation(&object, CONTENT_HASH).map(str::to_owned)
            }
            Ok(Verdict::Remove) => {
                let ours = live.filter(|live| is_ours(live));
                let gone = ours
                    .zip(target(kind, context.names, observed))
                    .map(|(live, target)| delete(target, live));
                changes.removals.extend(gone);
                None
            }
            Ok(Verdict::Leave) => live_hash(live),
            Err(held) => {
                plan.held.push(held);
                live_hash(live)
            }
        };
        *slot(&mut plan.content, kind) = remains;
        *slot(&mut plan.found, kind) = live_hash(live);
        // The document comes last: by now it is known what will be there of the parts.
        if stays && kind == SourceKind::Configuration {
            let renewed = renewed(context, desired, observed, &plan.content);
            changes.document.extend(renewed);
        }
    }
    let lacks = |kind: &SourceKind| {
        pending(*kind, desired).is_some_and(|hash| *slot(&mut plan.content, *kind) != Some(hash))
    };
    if plan.held.iter().all(Held::is_satisfied) && !SourceKind::ALL.iter().any(lacks) {
        plan.content.version = desired.version.map(|it| it.to_string());
    }
    changes
}

impl Plan {
    /// Takes note that only these actions succeeded: from then on the plan says what is on the runtime of the three objects,
    /// and whether something of them is still to be done.
    pub fn stop(&mut self, done: &[Action]) {
        let is_open = |action: &Action| {
            let changes = !matches!(action, Action::Transfer { .. });
            changes && kind_of(action.target()).is_some() && !done.contains(action)
        };
        self.writes_content = self.lanes.configuration.steps.iter().flatten().any(is_open);
        if !self.writes_content {
            return;
        }
        self.content = self.found.clone();
        for action in done {
            let Some(kind) = kind_of(action.target()) else {
                continue;
            };
            let hash = match action {
                Action::Create { object, .. } | Action::Apply { object, .. } => {
                    live_hash(Some(object))
                }
                Action::Delete { .. } => None,
                Action::Transfer { .. } | Action::RemoveKeys { .. } => continue,
            };
            *slot(&mut self.content, kind) = hash;
        }
    }
}

/// Which of the three is at a place; the manifests hold no object of these kinds.
fn kind_of(target: &Target) -> Option<SourceKind> {
    match (target.kind(), target.name()) {
        ("ConfigMap", OWNER_CONFIG_MAP) => None,
        ("ConfigMap", _) => Some(SourceKind::Configuration),
        ("Secret", _) => Some(SourceKind::PullSecret),
        ("ClusterTrustBundle", _) => Some(SourceKind::TrustBundle),
        _ => None,
    }
}

/// What to do about one of the three on this runtime.
enum Verdict {
    Write(Arc<Value>),
    Remove,
    Leave,
}

fn verdict(kind: SourceKind, desired: &Desired, observed: &Observed) -> Result<Verdict, Held> {
    let object = match desired.get(kind) {
        DesiredObject::Present { object, .. } => object,
        DesiredObject::Removed => return Ok(Verdict::Remove),
        DesiredObject::Untouched(Why::Invalid(reason)) => {
            let reason = reason.clone();
            return Err(Held::Source { kind, reason });
        }
        DesiredObject::Untouched(Why::DeletionPending { object, at, .. }) => {
            let (object, at) = (object.clone(), *at);
            return Err(Held::DeletionPending { object, at });
        }
        DesiredObject::Untouched(Why::NotFound { object }) => {
            let object = object.clone();
            return Err(Held::NotFound { kind, object });
        }
        // The part that holds the document back is reported itself.
        DesiredObject::Untouched(Why::Off | Why::Unmanaged | Why::Held(_)) => {
            return Ok(Verdict::Leave);
        }
    };
    match (kind, observed.trust_bundles.as_deref()) {
        (SourceKind::PullSecret, _) | (SourceKind::TrustBundle, Some(TRUST_BUNDLE_VERSION)) => {
            Ok(Verdict::Write(Arc::clone(object)))
        }
        (SourceKind::TrustBundle, None) => Err(Held::NotServed),
        (SourceKind::TrustBundle, Some(version)) => {
            let mut served = Value::clone(object);
            served["apiVersion"] = format!("certificates.k8s.io/{version}").into();
            Ok(Verdict::Write(Arc::new(served)))
        }
        (SourceKind::Configuration, _) => {
            // Where there is no document yet, there is none to keep.
            if observed.configuration.is_some() {
                judge(desired.requirement, running(observed)).map_err(Held::TooOld)?;
            }
            Ok(Verdict::Write(requirable(object, desired, observed)))
        }
    }
}

/// A runtime that cannot have the bundle must not wait for it, nor one for a part that it lacks and whose source is
/// missing.
fn requirable(document: &Arc<Value>, desired: &Desired, observed: &Observed) -> Arc<Value> {
    let instead = |kind, key| {
        let required = annotation(document, key)?;
        let lacks = || live_hash(live(kind, observed)).as_deref() != Some(required);
        if kind == SourceKind::TrustBundle && observed.trust_bundles.is_none() {
            Some(Some(REQUIRES_NONE))
        } else {
            (pending(kind, desired).is_some() && lacks()).then_some(None)
        }
    };
    let changes: Vec<_> = [
        (SourceKind::PullSecret, REQUIRES_PULL_SECRET),
        (SourceKind::TrustBundle, REQUIRES_TRUST_BUNDLE),
    ]
    .into_iter()
    .filter_map(|(kind, key)| Some((key, instead(kind, key)?)))
    .collect();
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

/// What was rolled out of a source that is missing.
fn pending(kind: SourceKind, desired: &Desired) -> Option<String> {
    match desired.get(kind) {
        DesiredObject::Untouched(Why::DeletionPending { hash, .. }) => Some(hash.to_string()),
        _ => None,
    }
}

fn write(
    kind: SourceKind,
    target: &Target,
    object: &Arc<Value>,
    live: Option<&Value>,
    changes: &mut Changes,
) {
    let same = live.is_some_and(|live| contained(object, live));
    let replaced = live.filter(|live| !same && must_be_replaced(object, live));
    let transfer = live.and_then(|live| take_over(target, live, is_kim, &[]));
    match (replaced, transfer) {
        (Some(live), _) => changes.clears.push(delete(target.clone(), live)),
        // What KIM owns and the object does not name is removed by the apply, other keys by the next reconcile.
        (None, Some(transfer)) => changes.transfers.push(transfer),
        (None, None) => {
            let live = live.filter(|_| kind == SourceKind::Configuration);
            let patch = live.and_then(|live| removal_of_keys(object, live));
            changes.parts.extend(patch.map(|patch| Action::RemoveKeys {
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

/// The JSON patch that removes the keys of a ConfigMap that our document does not have: a webhook may obey them. One operation
/// for each map, because the API server accepts no patch of more than 10,000.
fn removal_of_keys(object: &Value, live: &Value) -> Option<Value> {
    let version = text(live, "/metadata/resourceVersion")?;
    let mut patch =
        vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
    for map in ["data", "binaryData"] {
        let Some(entries) = live.get(map).and_then(Value::as_object) else {
            continue;
        };
        let is_ours = |key: &str| object.get(map).is_some_and(|it| it.get(key).is_some());
        if entries.keys().all(|key| is_ours(key)) {
            continue;
        }
        let ours = entries.iter().filter(|(key, _)| is_ours(key));
        let ours: Map<String, Value> = ours.map(|(key, it)| (key.clone(), it.clone())).collect();
        patch.push(json!({ "op": "replace", "path": format!("/{map}"), "value": ours }));
    }
    (patch.len() > 1).then_some(Value::Array(patch))
}

/// Whether the difference lies in what cannot be changed in place: a Secret's type, a bundle's signer, or the content of
/// an object that somebody made immutable.
fn must_be_replaced(object: &Value, live: &Value) -> bool {
    let differs = |key: &str| match (object.get(key), live.get(key)) {
        (Some(wanted), Some(live)) => !contained(wanted, live),
        (wanted, live) => wanted.is_some() && live.is_none(),
    };
    let signer = |object: &Value| object.pointer("/spec/signerName").cloned();
    let frozen = live.get("immutable") == Some(&Value::Bool(true));
    differs("type") || signer(object) != signer(live) || (frozen && differs("data"))
}

/// Where one of the three goes; `None` if it is switched off or the runtime does not serve its API.
pub(super) fn target(kind: SourceKind, names: &Names, observed: &Observed) -> Option<Target> {
    let namespace = &names.namespace;
    match kind {
        SourceKind::PullSecret => names
            .pull_secret
            .as_deref()
            .map(|name| Target::secret(namespace, name)),
        SourceKind::TrustBundle => {
            let version = observed.trust_bundles.as_deref()?;
            names
                .trust_bundle
                .as_deref()
                .map(|name| Target::trust_bundle(version, name))
        }
        SourceKind::Configuration => Some(Target::config_map(namespace, &names.configuration)),
    }
}

/// One of the three as it is on the runtime.
pub(super) fn live(kind: SourceKind, observed: &Observed) -> Option<&Value> {
    match kind {
        SourceKind::PullSecret => observed.pull_secret.as_ref(),
        SourceKind::TrustBundle => observed.trust_bundle.as_ref(),
        SourceKind::Configuration => observed.configuration.as_ref(),
    }
}

/// The hash that an object on the runtime says it has. Anybody there may write it, and a status holds no longer one.
fn live_hash(live: Option<&Value>) -> Option<String> {
    live.and_then(|live| annotation(live, CONTENT_HASH))
        .filter(|hash| hash.len() <= MAX_HASH)
        .map(str::to_owned)
}

/// Characters of a hash.
const MAX_HASH: usize = 64;

fn slot(content: &mut Content, kind: SourceKind) -> &mut Option<String> {
    match kind {
        SourceKind::PullSecret => &mut content.pull_secret,
        SourceKind::TrustBundle => &mut content.trust_bundle,
        SourceKind::Configuration => &mut content.configuration,
    }
}
