//! The steps of an installation and of a removal, in their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kcp::{
    MANIFEST_HASH, OWNER_CONFIG_MAP, OWNER_CONTROL_PLANE, OWNER_INVENTORY, OWNER_RUNTIME_ID,
    OWNER_WATCHER_ENTRIES, OWNER_WATCHER_INVENTORY, OWNER_WATCHER_REVIEWS_MISSING,
    WATCHER_FIELD_MANAGER,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::trust::{is_in_force, serving, serving_bundle};
use super::{
    CERTIFICATE_SECRET, CONFIGURATION, DesiredWatcher, ObservedWatcher, Reviews, WatcherContext,
    WatcherState, manager_of,
};
use crate::sync::Hash;
use crate::sync::diff::is_applied;
use crate::sync::inventory;
use crate::sync::managed_fields;
use crate::sync::manifests::{Manifest, ManifestAction, Phase, manifest_action};
use crate::sync::observed::{
    DeploymentStatus, ObjectIdentity, annotation, data, is_terminating, number,
};
use crate::sync::plan::inventory::release_keys;
use crate::sync::plan::{Action, Step, delete, delete_by_uid, migrate_fields, remove_conditions};
use crate::sync::target::Target;

/// Desired and observed state of one runtime.
pub(super) struct Planner<'a> {
    pub(super) context: WatcherContext<'a>,
    pub(super) desired: &'a DesiredWatcher,
    pub(super) observed: &'a ObservedWatcher,
}

impl Planner<'_> {
    fn live(&self, target: &Target) -> Option<&Value> {
        self.observed.live.get(target)
    }

    /// The Secret with the certificate with which the watcher serves.
    fn secret(&self) -> Option<&Value> {
        let target = Target::secret(&self.desired.namespace, CERTIFICATE_SECRET);
        self.live(&target)
    }

    /// The webhook configuration. Without a certificate for the runtime, its Pods keep their current certificate, which
    /// the API server has to trust.
    pub(super) fn webhooks(&self, has_certificate: bool) -> Option<Manifest> {
        let live = self.live(&self.desired.configuration);
        let bundle = &self.desired.bundle;
        let secret = self.secret().filter(|_| !has_certificate);
        let bundle = secret.map_or(bundle.as_str(), |it| serving_bundle(it, live, bundle));
        self.desired.webhooks(live, bundle)
    }

    pub(super) fn install(
        &self,
        webhooks: &Manifest,
        certificate: Option<&Arc<Value>>,
    ) -> (Vec<Step>, WatcherState) {
        let secret = Target::secret(&self.desired.namespace, CERTIFICATE_SECRET);
        let live_secret = self.live(&secret);
        if certificate.is_none() && live_secret.is_none() {
            return (Vec::new(), WatcherState::Progressing);
        }
        let is_rolled_out = self.is_rolled_out();
        let mut steps = Steps::default();
        let (mut state, is_waiting) = self.manifests(&mut steps, is_rolled_out);
        if let Some(certificate) = certificate
            && (live_secret.is_none_or(|live| !is_applied(certificate, live))
                || self.is_shared(&secret))
        {
            let object = Arc::clone(certificate);
            steps.prerequisites.push(apply(&secret, object));
        }
        match self.live(&webhooks.target) {
            Some(live)
                if is_applied(&webhooks.object, live)
                    && is_ours(live)
                    && !self.is_shared(&webhooks.target) => {}
            live => {
                let written = apply(&webhooks.target, Arc::clone(&webhooks.object));
                if live.is_some() {
                    steps.trust.push(written);
                } else if is_rolled_out || self.is_served() {
                    steps.webhooks.push(written);
                }
            }
        }
        let obsolete = self.obsolete();
        if is_rolled_out {
            let deletions = obsolete.iter();
            let deletions = deletions.map(|(target, live)| delete(Target::clone(target), live));
            steps.obsolete.extend(deletions);
        }
        let written = [&steps.trust, &steps.prerequisites, &steps.pods];
        let transfers = written.into_iter().flatten();
        steps.transfers = transfers
            .filter_map(|it| self.transfer(it.target()))
            .collect();
        self.remove_conditions(webhooks, &mut steps.transfers);
        let writes = !(steps.trust.is_empty() && steps.webhooks.is_empty());
        let (missing, has_ended) = self.reviews_missing();
        let was_unreachable = has_ended || self.writes_service(&steps.prerequisites);
        let entries = self.entries(webhooks, writes, was_unreachable);
        let obsolete_targets = obsolete.keys().copied();
        let record = self.record(obsolete_targets, &entries, missing);
        steps.marker.extend(record);
        // What is written without an effect on Pods is in force when it is written.
        let is_settled = is_rolled_out
            && !is_waiting
            && obsolete.is_empty()
            && steps.pods.is_empty()
            && steps.recreated.is_empty();
        if state == WatcherState::Installed && !is_settled {
            state = self.deployment_state(steps.pods.is_empty());
        }
        (steps.in_order(), state)
    }

    /// Returns whether the lifecycle-manager has applied fields of an object.
    fn is_shared(&self, target: &Target) -> bool {
        let live = self.live(target);
        live.is_some_and(|live| managed_fields::has(live, managed_fields::is_lifecycle_manager))
    }

    /// Returns the migration of the fields that the lifecycle-manager has applied to an object, if there are any. The
    /// next apply removes the fields that the controller does not set. The manifest hash is removed, so that the
    /// apply follows even if the reconcile ends before it.
    fn transfer(&self, target: &Target) -> Option<Action> {
        let live = self.live(target)?;
        let annotations = &[MANIFEST_HASH];
        let from = managed_fields::is_lifecycle_manager;
        migrate_fields(target, live, from, WATCHER_FIELD_MANAGER, annotations)
    }

    /// Adds the removal of other clients' match conditions, unless the fields of the same object are migrated.
    fn remove_conditions(&self, webhooks: &Manifest, transfers: &mut Step) {
        let Manifest { target, object, .. } = webhooks;
        if transfers.iter().all(|it| it.target() != target) {
            let live = self.live(target);
            transfers.extend(live.and_then(|live| remove_conditions(target, object, live)));
        }
    }

    /// Adds the actions on all manifests. Returns the state, and whether a manifest that differs has to wait.
    fn manifests(&self, steps: &mut Steps, is_rolled_out: bool) -> (WatcherState, bool) {
        let mut state = WatcherState::Installed;
        let mut is_waiting = false;
        if self.observed.has_manifests {
            return (state, is_waiting);
        }
        for manifest in self.desired.installation.manifests() {
            let live = self.live(&manifest.target);
            let object = match manifest_action(manifest, live, is_rolled_out) {
                // Another client may have created the same object again.
                ManifestAction::Keep
                    if self.is_shared(&manifest.target) || !live.is_some_and(is_ours) =>
                {
                    Some(Arc::clone(&manifest.object))
                }
                ManifestAction::Keep => continue,
                ManifestAction::Wait => {
                    is_waiting = true;
                    None
                }
                ManifestAction::Recreate(object) if live.is_some_and(is_ours) => {
                    let deletion = live.map(|live| delete(manifest.target.clone(), live));
                    steps.recreated.extend(deletion);
                    Some(object)
                }
                // An object of another owner is not deleted.
                ManifestAction::ImmutableConflict | ManifestAction::Recreate(_) => {
                    state = WatcherState::ImmutableField(manifest.target.clone());
                    None
                }
                ManifestAction::Apply(object) => Some(object),
            };
            let applied = object.map(|object| apply(&manifest.target, object));
            match manifest.phase {
                Phase::Deployment => steps.pods.extend(applied),
                Phase::Prerequisites | Phase::Webhook => steps.prerequisites.extend(applied),
            }
        }
        (state, is_waiting)
    }

    fn deployment_state(&self, is_current: bool) -> WatcherState {
        match self.deployment() {
            Some(live)
                if is_current && DeploymentStatus::of(Some(live)) == DeploymentStatus::Failed =>
            {
                WatcherState::ProgressDeadlineExceeded
            }
            _ => WatcherState::Progressing,
        }
    }

    fn deployment(&self) -> Option<&Value> {
        self.live(self.desired.installation.deployment()?)
    }

    fn is_rolled_out(&self) -> bool {
        let manifests = self.desired.installation.manifests().iter();
        let mut deployments = manifests.filter(|it| it.phase == Phase::Deployment);
        self.observed.has_manifests
            || deployments.all(|it| {
                let live = self.live(&it.target);
                // A Deployment that is being deleted is available until its Pods end.
                let is_kept = |live: &Value| live["metadata"]["deletionTimestamp"].is_null();
                live.is_some_and(|live| is_applied(&it.object, live) && is_kept(live))
                    && DeploymentStatus::of(live) == DeploymentStatus::Available
            })
    }

    /// Whether a Pod of any version can answer reviews, and will.
    fn is_served(&self) -> bool {
        let live = self.deployment();
        live.is_some_and(|it| !is_terminating(it) && number(it, "/status/availableReplicas") > 0)
    }

    /// The value of [`OWNER_WATCHER_REVIEWS_MISSING`], and whether reviews arrive again since it was written. It is stored,
    /// because another leader may see the end.
    fn reviews_missing(&self) -> (Option<String>, bool) {
        let marker = self.observed.marker.as_ref();
        let recorded = marker.and_then(|it| data(it, OWNER_WATCHER_REVIEWS_MISSING));
        let since: Option<Timestamp> = recorded.and_then(|it| it.parse().ok());
        match (self.context.reviews, since) {
            // A time in the future is of a leader whose clock was ahead.
            (Reviews::Missing(at), since) if since.is_none_or(|it| it > at) => {
                (Some(at.to_string()), false)
            }
            (Reviews::Last(at), Some(since)) if at > since => (Some(String::new()), true),
            _ => (since.map(|it| it.to_string()), false),
        }
    }

    /// The lines of [`OWNER_WATCHER_ENTRIES`]. A manager whose entries are not in force, and that are written now, gets another
    /// hash: it is recorded before they are written, so a reconcile that ends in between repeats both. All managers get one
    /// after a time in which no reviews reached the watcher.
    fn entries(&self, webhooks: &Manifest, writes: bool, was_unreachable: bool) -> String {
        let marker = self.observed.marker.as_ref();
        let recorded = marker.and_then(|it| data(it, OWNER_WATCHER_ENTRIES));
        let recorded = recorded.unwrap_or_default().lines();
        let recorded: BTreeMap<&str, &str> = recorded.filter_map(|it| it.split_once(' ')).collect();
        let live = self.live(&webhooks.target);
        let version = marker.and_then(|it| it["metadata"]["resourceVersion"].as_str());
        let is_unreachable = was_unreachable && live.is_some();
        let is_known = live.is_some_and(|it| is_ours(it) || self.is_shared(&webhooks.target));
        let serving = serving(self.secret());
        let entry = |manager: &String| {
            let entries = webhooks.object["webhooks"].as_array().into_iter().flatten();
            let mut own = entries.filter(|it| manager_of(it) == Some(manager));
            let is_in_force = |it| is_known && is_in_force(it, live, serving.as_ref());
            let is_written = is_unreachable || writes && !own.all(is_in_force);
            let before = recorded.get(manager.as_str()).copied();
            let hash = match before {
                Some(hash) if !is_written => hash.to_owned(),
                None if !is_written && live.is_none() => return None,
                // Unique, also where the manager had no entry for a time.
                _ => {
                    let version = version.unwrap_or(self.context.nonce);
                    let parts = [Some(manager.as_str()), before, Some(version)];
                    Hash::of_parts(parts.map(Option::unwrap_or_default)).to_string()
                }
            };
            Some(format!("{manager} {hash}\n"))
        };
        self.desired.managers.iter().filter_map(entry).collect()
    }

    /// Whether reviews did not reach the watcher until this plan is carried out, because another client deleted or changed the
    /// Service that the API server calls.
    fn writes_service(&self, written: &Step) -> bool {
        written.iter().any(|it| {
            let Action::Apply { target, object } = it else {
                return false;
            };
            let live = self.live(target);
            let is_called = target.kind() == "Service" && target.name() == CONFIGURATION;
            is_called && live.is_none_or(|live| !is_applied(&object["spec"], &live["spec"]))
        })
    }

    /// Objects of earlier versions that the controller wrote.
    fn obsolete(&self) -> BTreeMap<&Target, &Value> {
        let targets = self.desired.targets();
        let others = self.observed.live.iter();
        let others = others.filter(|(target, _)| !targets.contains(target));
        others.filter(|(_, live)| is_ours(live)).collect()
    }

    /// Records owner, inventory, entries and the start of missing reviews, if they differ.
    fn record<'t>(
        &self,
        others: impl Iterator<Item = &'t Target>,
        entries: &str,
        reviews_missing: Option<String>,
    ) -> Option<Action> {
        let mut targets = self.desired.targets();
        targets.extend(others.cloned());
        let owner = self.context.owner;
        let mut wanted = self.marker_with(&json!({
            OWNER_RUNTIME_ID: owner.runtime_id,
            OWNER_CONTROL_PLANE: owner.control_plane,
            OWNER_WATCHER_INVENTORY: inventory::format(&targets),
            OWNER_WATCHER_ENTRIES: entries,
        }));
        if let Some(since) = reviews_missing {
            wanted["data"][OWNER_WATCHER_REVIEWS_MISSING] = since.into();
        }
        let target = self.desired.marker();
        match &self.observed.marker {
            Some(live) if is_applied(&wanted, live) => None,
            Some(_) => Some(apply(&target, Arc::new(wanted))),
            // If two KCPs claim the same cluster, one of them fails.
            None => Some(Action::Create {
                target,
                object: Arc::new(wanted),
            }),
        }
    }

    fn marker_with(&self, data: &Value) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": OWNER_CONFIG_MAP, "namespace": self.desired.namespace },
            "data": data,
        })
    }

    /// Returns the steps of a removal, and the state. The webhook configuration is deleted first, then the Deployment
    /// with its Pods, which deliver the remaining events, then the other objects. The keys of the ownership ConfigMap
    /// are removed when no other object is left.
    pub(super) fn remove(&self) -> (Vec<Step>, WatcherState) {
        let ours = self.observed.live.iter().filter(|(_, live)| is_ours(live));
        let present: Vec<(&Target, &Value)> = ours.collect();
        let of = |phase| {
            present
                .iter()
                .filter(move |(target, _)| Phase::of(target) == phase)
        };
        let deleted = |phase| -> Step {
            of(phase)
                .map(|(target, live)| delete(Target::clone(target), live))
                .collect()
        };
        let mut steps = vec![deleted(Phase::Webhook)];
        if of(Phase::Deployment).next().is_some() {
            let remaining = of(Phase::Deployment).filter(|(_, live)| !is_terminating(live));
            let identities =
                remaining.map(|(target, live)| ObjectIdentity::of(Target::clone(target), live));
            steps.push(identities.map(|it| delete_by_uid(it, true)).collect());
            return (steps, WatcherState::Progressing);
        }
        steps.push(deleted(Phase::Prerequisites));
        // A finalizer of another client may keep an object.
        if present.is_empty() {
            steps.push(self.release_marker().into_iter().collect());
        }
        let is_removed = steps.iter().all(Vec::is_empty);
        let state = if is_removed {
            WatcherState::Removed
        } else {
            WatcherState::Progressing
        };
        (steps, state)
    }

    /// Deletes the ownership ConfigMap, or only the keys of the watcher if the webhook's inventory is in it.
    fn release_marker(&self) -> Option<Action> {
        let live = self.observed.marker.as_ref()?;
        let other = data(live, OWNER_INVENTORY).is_some();
        let keys = [
            OWNER_WATCHER_INVENTORY,
            OWNER_WATCHER_ENTRIES,
            OWNER_WATCHER_REVIEWS_MISSING,
        ];
        release_keys(self.desired.marker(), live, &keys, other)
    }
}

/// The steps of an installation, in their order.
#[derive(Default)]
struct Steps {
    marker: Step,
    transfers: Step,
    /// The webhook configuration, if it exists.
    trust: Step,
    recreated: Step,
    prerequisites: Step,
    pods: Step,
    /// The webhook configuration, if it does not exist.
    webhooks: Step,
    obsolete: Step,
}

impl Steps {
    fn in_order(self) -> Vec<Step> {
        vec![
            self.marker,
            self.transfers,
            self.trust,
            self.recreated,
            self.prerequisites,
            self.pods,
            self.webhooks,
            self.obsolete,
        ]
    }
}

fn apply(target: &Target, object: Arc<Value>) -> Action {
    Action::Apply {
        target: target.clone(),
        object,
    }
}

/// Whether the controller applied an object as a part of the watcher.
#[must_use]
pub fn is_ours(live: &Value) -> bool {
    annotation(live, MANIFEST_HASH).is_some()
        && managed_fields::managed_by(live, WATCHER_FIELD_MANAGER)
}
