//! The actions on the manifests of the webhook.

use api::kcp::{CONTROLLER_FIELD_MANAGER, MANIFEST_HASH};
use serde_json::Value;

use super::{
    Action, Arc, Context, InstallationStatus, Plan, Step, delete, inventory, migrate_fields,
    remove_conditions,
};
use crate::sync::managed_fields::{self, Manager, is_installer, is_kim_or_unknown};
use crate::sync::manifests::{
    Manifest, ManifestAction, Phase, is_rolled_out, live, manifest_action, version_label,
};
use crate::sync::observed::{DeploymentStatus, Observed, annotation, number, replicas};
use crate::sync::status::Failure;
use crate::sync::target::Target;

/// Actions on the manifests, by step.
#[derive(Default)]
pub(super) struct Install {
    pub(super) transfers: Vec<Action>,
    pub(super) deletes_before_recreate: Vec<Action>,
    pub(super) prerequisites: Vec<Action>,
    pub(super) pods: Vec<Action>,
    pub(super) webhooks: Vec<Action>,
    pub(super) removals: Vec<Step>,
}

impl Install {
    /// Returns the steps: prerequisites are applied before Pods, webhook configurations after the Pods are available, and
    /// obsolete objects are deleted last.
    pub(super) fn steps(self) -> Vec<Step> {
        let mut steps = vec![
            self.transfers,
            self.deletes_before_recreate,
            self.prerequisites,
            self.pods,
            self.webhooks,
        ];
        steps.extend(self.removals);
        steps
    }
}

/// Plans the actions on all manifests that the reconcile read.
pub(super) fn decide(context: Context<'_>, observed: &Observed, plan: &mut Plan) -> Install {
    let installation = context.installation;
    let is_rolled_out = is_rolled_out(installation, observed);
    let mut install = Install::default();
    let mut complete = true;
    let mut immutable_conflict = None;
    let was_read = |phase| phase == Phase::Deployment || observed.installed.is_some();
    let manifests = installation.manifests().iter();
    let manifests = manifests.filter(|it| !context.names.is_additional(&it.target));
    for manifest in manifests.filter(|it| was_read(it.phase)) {
        let target = &manifest.target;
        let live = live(manifest, observed);
        let action = manifest_action(manifest, live, is_rolled_out);
        let (transfer, action) = prepared(manifest, live, action);
        install.transfers.extend(transfer);
        complete &= action == ManifestAction::Keep;
        let object = match action {
            ManifestAction::Keep | ManifestAction::Wait => continue,
            ManifestAction::ImmutableConflict => {
                immutable_conflict = Some(target.clone());
                continue;
            }
            ManifestAction::Recreate(object) => {
                install
                    .deletes_before_recreate
                    .extend(live.map(|live| delete(target.clone(), live)));
                object
            }
            ManifestAction::Apply(object) => object,
        };
        let actions = match manifest.phase {
            Phase::Prerequisites => &mut install.prerequisites,
            Phase::Deployment => &mut install.pods,
            Phase::Webhook => &mut install.webhooks,
        };
        actions.push(Action::Apply {
            target: target.clone(),
            object,
        });
    }
    let prunes = is_rolled_out && immutable_conflict.is_none();
    install.removals = inventory::prune(context, observed, prunes);
    let without_ca_bundle = without_ca_bundle(context, observed);
    complete &= install.removals.iter().all(Vec::is_empty);
    complete &= without_ca_bundle.is_none();
    plan.installation = InstallationStatus {
        complete: observed.installed.is_some().then_some(complete),
        immutable_conflict,
        without_ca_bundle,
        ..installation_status(observed, install.pods.is_empty())
    };
    if observed.installed.is_some() {
        decide_additional(context, observed, prunes, plan);
    }
    install
}

/// Plans the actions in additional namespaces: those on manifests, and the deletions of obsolete objects.
fn decide_additional(context: Context<'_>, observed: &Observed, prunes: bool, plan: &mut Plan) {
    plan.installation.not_written = unread_additional(context, observed);
    let [mut transfers, mut applies] = [const { Step::new() }; 2];
    let mut deletions = inventory::prune_additional(context, observed, prunes);
    let manifests = context.installation.manifests().iter();
    for manifest in manifests.filter(|it| context.names.is_additional(&it.target)) {
        let target = &manifest.target;
        if observed.unread_inventory.contains_key(target) {
            continue;
        }
        let live = live(manifest, observed);
        let action = manifest_action(manifest, live, true);
        let (transfer, action) = prepared(manifest, live, action);
        transfers.extend(transfer);
        let object = match action {
            ManifestAction::Recreate(object) => {
                deletions.extend(live.map(|live| delete(target.clone(), live)));
                object
            }
            ManifestAction::Apply(object) => object,
            ManifestAction::Keep | ManifestAction::Wait | ManifestAction::ImmutableConflict => {
                continue;
            }
        };
        applies.push(Action::Apply {
            target: target.clone(),
            object,
        });
    }
    let steps = [transfers, deletions, applies].into_iter();
    plan.additional = steps.filter(|step| !step.is_empty()).collect();
}

/// Returns the objects in additional namespaces that cannot be read.
pub(super) fn unread_additional(context: Context<'_>, observed: &Observed) -> Vec<Failure> {
    let unread = observed.unread_inventory.iter();
    let additional = unread.filter(|(target, _)| context.names.is_additional(target));
    let failures = additional.map(|(target, cause)| Failure {
        target: target.clone(),
        message: cause.to_string(),
    });
    failures.collect()
}

/// Returns what precedes an apply: the migration of fields or the removal of match conditions. An apply follows a
/// migration. A webhook configuration that has to wait loses the match conditions that other clients added, too. One of the
/// controller that another client edited has its own expression again with the apply.
fn prepared(
    manifest: &Manifest,
    live: Option<&Value>,
    action: ManifestAction,
) -> (Option<Action>, ManifestAction) {
    let target = &manifest.target;
    // An object that is recreated needs no migration.
    let transfer = match action {
        ManifestAction::Recreate(_) => None,
        _ => live.and_then(|live| adopt(target, live)),
    };
    match (transfer, action, live) {
        // The apply removes migrated fields that are not in the manifest.
        (transfer @ Some(_), ManifestAction::Keep, _) => (
            transfer,
            ManifestAction::Apply(Arc::clone(&manifest.object)),
        ),
        (None, ManifestAction::Apply(object), Some(live)) => {
            let removal = remove_conditions(target, &object, live);
            (removal, ManifestAction::Apply(object))
        }
        // The rollout may never end, and until then the API server would send fewer Pods.
        (None, action @ ManifestAction::Wait, Some(live))
            if manifest.phase == Phase::Webhook && has_known_owners(live) =>
        {
            let desired = with_own_conditions(&manifest.object, live);
            (remove_conditions(target, &desired, live), action)
        }
        (transfer, action, _) => (transfer, action),
    }
}

/// Returns whether another client owns fields of the object, so that the owners of its match conditions differ, or has
/// removed the managed fields. Otherwise the object was read without the owned fields, and no condition is known to be of
/// the controller.
fn has_known_owners(live: &Value) -> bool {
    managed_fields::has(live, is_installer) || !managed_fields::applied_by_controller(live)
}

/// Returns a webhook configuration with the live match conditions that the controller applied, which an earlier version
/// may need.
fn with_own_conditions(desired: &Value, live: &Value) -> Value {
    let mut desired = desired.clone();
    for entry in desired["webhooks"].as_array_mut().into_iter().flatten() {
        let mut entries = live["webhooks"].as_array().into_iter().flatten();
        let found = entries.find(|it| it["name"] == entry["name"]);
        let conditions = found.and_then(|it| it["matchConditions"].as_array());
        let is_own = |condition: &&Value| {
            let path = [
                ("webhooks", &entry["name"]),
                ("matchConditions", &condition["name"]),
            ];
            managed_fields::owns_item(live, CONTROLLER_FIELD_MANAGER, &path)
        };
        let own = conditions.into_iter().flatten().filter(is_own);
        let wanted = entry["matchConditions"].as_array().into_iter().flatten();
        let all: Vec<Value> = wanted.chain(own).cloned().collect();
        entry["matchConditions"] = all.into();
    }
    desired
}

/// Migrates the fields of other managers to the controller: at adoption all of them, so that the apply removes each
/// field that is not in the manifest. The manifest hash is removed, too, so that the apply follows even if the
/// reconcile ends after the migration.
fn adopt(target: &Target, live: &Value) -> Option<Action> {
    let matches: fn(Manager<'_>) -> bool = match annotation(live, MANIFEST_HASH) {
        Some(_) => is_kim_or_unknown,
        None => is_installer,
    };
    let annotations = &[MANIFEST_HASH];
    migrate_fields(target, live, matches, CONTROLLER_FIELD_MANAGER, annotations)
}

fn installation_status(observed: &Observed, is_current: bool) -> InstallationStatus {
    let live: Option<&Value> = observed.deployment.as_ref();
    let status = match DeploymentStatus::of(live) {
        // The live version is not the desired one.
        DeploymentStatus::Available | DeploymentStatus::Failed if !is_current => {
            DeploymentStatus::Progressing
        }
        status => status,
    };
    InstallationStatus {
        deployment: status,
        complete: None,
        version: live
            .and_then(version_label)
            .filter(|version| version.len() <= MAX_VERSION)
            .map(str::to_owned),
        ready_replicas: live.map_or(0, |it| number(it, "/status/readyReplicas")),
        replicas: live.map_or(0, replicas),
        immutable_conflict: None,
        without_ca_bundle: None,
        not_written: Vec::new(),
    }
}

/// Returns the first live webhook configuration with an entry whose Service is called without a `caBundle`.
fn without_ca_bundle(context: Context<'_>, observed: &Observed) -> Option<Target> {
    let manifests = context.installation.manifests().iter();
    let mut configurations = manifests.filter(|it| it.phase == Phase::Webhook);
    let lacks = |entry: &Value| {
        let client = &entry["clientConfig"];
        client["service"].is_object() && client["caBundle"].as_str().is_none_or(str::is_empty)
    };
    let found = configurations.find(|manifest| {
        let entries = live(manifest, observed).and_then(|live| live["webhooks"].as_array());
        entries.into_iter().flatten().any(lacks)
    });
    found.map(|it| it.target.clone())
}

/// Maximum length of a label value, in characters; it bounds the version in the status.
const MAX_VERSION: usize = 63;
