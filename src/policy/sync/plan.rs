//! The actions for one runtime: the difference between desired and observed objects, in an order that is safe to stop
//! after any step.
//!
//! Invariants: a failed preflight check yields no actions; no difference yields no actions; a source that never
//! existed, is missing, unmanaged or invalid yields no change of its object's content; objects that a document requires
//! are written before it; no document is left that requires an object that the plan replaces, unless it cannot be read or written.

use std::fmt;
use std::sync::Arc;

use api::bootstrapper::ConfigurationStatus;
use api::kcp::{CONTENT_HASH, CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER, MANIFEST_HASH};
use serde_json::Value;

use super::ObjectNames;
use super::compatibility::{RunningWebhook, parse_version};
use super::desired::Desired;
use super::diff::remove_conditions_patch;
use super::identity::{IdentityError, IdentityRecord, Owner, verify_identity};
use super::managed_fields::Manager;
use super::manifests::{Installation, version_label};
use super::observed::{
    DeploymentStatus, NamespaceState, ObjectIdentity, Observed, annotation, number,
};
use super::status::Failure;
use super::target::Target;
use super::{Lane, Lanes, managed_fields};

mod access;
mod content;
mod deferred;
mod deletion;
mod install;
mod inventory;
mod requirements;
pub mod watcher;

pub use deferred::SyncDeferred;
pub use deletion::{plan_deletion, plan_orphan};
pub use inventory::revoked_targets;

/// An action on one object.
#[derive(Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Action {
    /// Create an object that must not exist: if two KCPs claim the same cluster, one of them fails.
    Create {
        /// The object's kind, namespace and name.
        target: Target,
        /// The object.
        object: Arc<Value>,
    },
    /// Server-side apply as [`CONTROLLER_FIELD_MANAGER`] with force: other managers lose these fields.
    Apply {
        /// The object's kind, namespace and name.
        target: Target,
        /// All fields that the controller owns.
        object: Arc<Value>,
    },
    /// Delete the object, if its UID is unchanged.
    Delete {
        /// The object's kind, namespace and name.
        target: Target,
        /// The UID, as a precondition.
        uid: Option<String>,
        /// Whether the object is kept until its dependents are deleted.
        foreground: bool,
    },
    /// A JSON patch that migrates field ownership and removes annotations of the controller. It contains the resource
    /// version that was read; after a conflict (409) the next reconcile reads the object again.
    Transfer {
        /// The object's kind, namespace and name.
        target: Target,
        /// The operations.
        patch: Value,
    },
    /// A JSON patch that removes what another client added and an apply would keep: keys of the ConfigMap, or match
    /// conditions of a webhook. It contains the resource version that was read.
    RemoveFields {
        /// The object's kind, namespace and name.
        target: Target,
        /// The operations.
        patch: Value,
    },
}

/// Actions that may be applied concurrently.
pub type Step = Vec<Action>;

/// The actions for a runtime, and the data for its status.
///
/// A step is applied only if all actions of the previous step succeeded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps before all others: the ownership ConfigMap.
    pub common: Vec<Step>,
    /// Deletions of credentials, in the lane of the configuration. They wait for no action of a lane, and no other action
    /// waits for them.
    pub revocations: Step,
    /// Actions in additional namespaces, after the steps of the webhook lane. No other action waits for them, and their failure
    /// is no failure of the lane. An action is applied only if those of the same object in previous steps succeeded.
    pub additional: Vec<Step>,
    /// Actions after all others, if those succeeded: the deletion of the ownership ConfigMap.
    pub last: Step,
    /// The plan of each lane. A failure in one lane does not stop the other.
    pub lanes: Lanes<LanePlan>,
    /// The steps of the configuration that do not depend on the trust bundle, see [`Plan::fallback_after`].
    pub fallback: Vec<Step>,
    /// Whether the ownership ConfigMap names this runtime and lists the objects of the configuration that are applied, so that
    /// the lane does not depend on the common steps.
    pub is_owner_recorded: bool,
    /// Reason why nothing may be written in any lane; if set, there are no steps.
    pub blocked: Option<Blocked>,
    /// Reasons why objects of the configuration cannot be synchronized.
    pub deferred: Vec<SyncDeferred>,
    /// Hashes on the runtime before the first step, without a revision and a time.
    pub hashes_before: ConfigurationStatus,
    /// Hashes on the runtime after all steps succeeded, without a time.
    pub hashes: ConfigurationStatus,
    /// Whether a step changes one of the three objects or the requirements of the document.
    pub writes_configuration: bool,
    /// The status of the installation.
    pub installation: InstallationStatus,
    /// Whether another plan has to follow although this one may be empty, since remaining steps wait for a deletion.
    pub unfinished: bool,
}

/// The plan of one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LanePlan {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Reason why nothing may be written in this lane; if set, there are no steps.
    pub blocked: Option<Blocked>,
}

/// Reason why nothing may be written to a runtime, or in one lane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The cluster is not verified.
    #[error("cluster not verified")]
    Identity(#[source] IdentityError),
    /// The namespace of the webhook does not exist.
    #[error("Namespace {0} not found")]
    NamespaceNotFound(String),
    /// The namespace of the webhook is being deleted.
    #[error("Namespace {0} is being deleted")]
    NamespaceTerminating(String),
    /// The user of the kubeconfig lacks permissions.
    #[error("missing permissions: {}", .0.join(", "))]
    MissingPermissions(Vec<String>),
    /// The API server returns errors for single objects.
    #[error("failed to read {}", .0.join(", "))]
    FailedReads(Vec<String>),
}

/// The status of an installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstallationStatus {
    /// The status of the Deployment of the desired version; for another version it is
    /// [`DeploymentStatus::Progressing`].
    pub deployment: DeploymentStatus,
    /// Whether all manifests are applied and the API server can call the webhook; `None` if the reconcile did not read
    /// the manifests.
    pub complete: Option<bool>,
    /// The version in the label of the live Deployment.
    pub version: Option<String>,
    /// Ready replicas of the live Deployment.
    pub ready_replicas: u64,
    /// Desired replicas of the live Deployment.
    pub replicas: u64,
    /// An object with a different immutable field, which cannot be deleted without an outage of the webhook.
    pub immutable_conflict: Option<Target>,
    /// A webhook configuration without a `caBundle`, which the webhook writes; until then no Pod is sent.
    pub without_ca_bundle: Option<Target>,
    /// Objects in additional namespaces that could not be written.
    pub not_written: Vec<Failure>,
}

/// The input that is the same for every plan of one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Names of the three objects.
    pub names: &'a ObjectNames,
    /// The manifests to install.
    pub installation: &'a Installation,
    /// The owner to record on the runtime.
    pub owner: &'a Owner,
    /// The recorded identity of the cluster on KCP.
    pub record: IdentityRecord<'a>,
}

/// Computes the plan of a runtime that is synchronized.
///
/// Unless it is blocked, [`Observed::cluster`] is the UID to record.
#[must_use]
pub fn plan(context: Context<'_>, desired: &Desired, observed: &Observed) -> Plan {
    if let Err(blocked) = preflight(context, observed) {
        return Plan {
            blocked: Some(blocked),
            ..Plan::default()
        };
    }
    let mut plan = Plan::default();
    inventory::record_owner(context, observed, &mut plan);
    let inaccessible = observed.inaccessible.keys().copied().collect();
    let mut changes = content::decide(context, desired, observed, &inaccessible, &mut plan);
    plan.fallback = access::fallback(context, desired, observed, &changes);
    let install = install::decide(context, observed, &mut plan);
    plan.revocations = inventory::revoke(context, desired, observed);
    plan.revocations.append(&mut changes.revocations);
    plan.writes_configuration = !changes.is_empty() || !plan.revocations.is_empty();
    plan.lanes = Lanes {
        configuration: LanePlan::new(changes.steps(), check_lane(observed, Lane::Configuration)),
        webhook: LanePlan::new(install.steps(), check_lane(observed, Lane::Webhook)),
    };
    if plan.lanes.configuration.blocked.is_some() {
        plan.writes_configuration = false;
        plan.hashes = plan.hashes_before.clone();
        plan.revocations.clear();
        plan.fallback.clear();
    }
    let steps = &plan.lanes.configuration.steps;
    plan.is_owner_recorded = inventory::is_recorded(context, observed, steps);
    if plan.lanes.webhook.blocked.is_some() {
        plan.installation.immutable_conflict = None;
        plan.additional.clear();
    }
    plan
}

impl LanePlan {
    fn new(mut steps: Vec<Step>, blocked: Result<(), Blocked>) -> Self {
        steps.retain(|step| !step.is_empty() && blocked.is_ok());
        Self {
            steps,
            blocked: blocked.err(),
        }
    }
}

impl Plan {
    /// Returns whether there are no actions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    /// Returns all steps: the common steps, the revocations, the steps of each lane in the order of [`Lane::ALL`], those in
    /// additional namespaces, and the last actions.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let [revocations, last] =
            [&self.revocations, &self.last].map(|it| Some(it).filter(|it| !it.is_empty()));
        let lanes = self.lanes.iter().flat_map(|it| &it.steps);
        self.common
            .iter()
            .chain(revocations)
            .chain(lanes)
            .chain(&self.additional)
            .chain(last)
    }

    /// Returns whether only the ownership ConfigMap remains.
    pub(super) fn is_last(&self) -> bool {
        !self.last.is_empty() && self.steps().count() == 1
    }

    /// Returns whether a deletion is complete: there are no actions except those in additional namespaces, which the plans before
    /// contained, too, and no further plan has to follow.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let is_complete = self.steps().count() == self.additional.len();
        is_complete && !self.unfinished && self.blocked.is_none()
    }

    /// Returns whether a reconcile should follow soon even if this one succeeds, since the Deployment is not available yet.
    #[must_use]
    pub fn is_deployment_pending(&self) -> bool {
        let is_blocked = self.blocked.is_some() || self.lanes.webhook.blocked.is_some();
        !is_blocked && self.installation.deployment != DeploymentStatus::Available
    }
}

impl Action {
    /// Returns the object's kind, namespace and name.
    #[must_use]
    pub fn target(&self) -> &Target {
        match self {
            Self::Create { target, .. }
            | Self::Apply { target, .. }
            | Self::Delete { target, .. }
            | Self::Transfer { target, .. }
            | Self::RemoveFields { target, .. } => target,
        }
    }

    /// Returns the name of the action in metrics and messages.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        self.into()
    }
}

/// `Debug` output with verb and path only, since an object may contain credentials.
impl fmt::Debug for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb(), self.target().path())
    }
}

/// Runs the checks before any write.
fn preflight(context: Context<'_>, observed: &Observed) -> Result<(), Blocked> {
    verify_identity(
        context.owner,
        context.record,
        observed.cluster.as_deref(),
        observed.marker.as_ref(),
    )
    .map_err(Blocked::Identity)?;
    match observed.namespace {
        NamespaceState::Active => {}
        NamespaceState::Missing => {
            return Err(Blocked::NamespaceNotFound(context.names.namespace.clone()));
        }
        NamespaceState::Terminating => {
            return Err(Blocked::NamespaceTerminating(
                context.names.namespace.clone(),
            ));
        }
    }
    let lacks = |lane| !observed.missing_permissions_in(lane).is_empty();
    if Lane::ALL.into_iter().all(lacks) {
        let of_lanes = Lane::ALL.map(|lane| observed.missing_permissions_in(lane));
        let of_objects = observed.inaccessible.values().flat_map(access::missing);
        let missing = of_objects.chain(of_lanes.into_iter().flatten());
        return check_permissions(&missing.collect::<Vec<_>>());
    }
    Ok(())
}

/// Returns the reason why a lane cannot be written.
fn check_lane(observed: &Observed, lane: Lane) -> Result<(), Blocked> {
    check_permissions(&observed.missing_permissions_in(lane))?;
    check_reads(observed.failed_reads.get(lane))
}

/// Returns an error with the failed reads.
fn check_reads(failed: &[String]) -> Result<(), Blocked> {
    if failed.is_empty() {
        return Ok(());
    }
    Err(Blocked::FailedReads(failed.to_vec()))
}

/// Returns an error with the missing permissions, without duplicates. A condition may truncate the last ones, so
/// those of the configuration come first.
fn check_permissions(permissions: &[String]) -> Result<(), Blocked> {
    let mut missing: Vec<String> = Vec::new();
    for permission in permissions {
        if !missing.contains(permission) {
            missing.push(permission.clone());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Blocked::MissingPermissions(missing))
}

/// Returns whether an object belongs to the controller or to KIM. Other objects are never deleted.
fn is_owned(live: &Value) -> bool {
    [CONTENT_HASH, MANIFEST_HASH]
        .iter()
        .any(|key| annotation(live, key).is_some())
        || [CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER]
            .iter()
            .any(|manager| managed_fields::managed_by(live, manager))
}

fn delete(target: Target, live: &Value) -> Action {
    delete_by_uid(ObjectIdentity::of(target, live), false)
}

fn delete_by_uid(ObjectIdentity { target, uid }: ObjectIdentity, foreground: bool) -> Action {
    Action::Delete {
        target,
        uid,
        foreground,
    }
}

/// Migrates the fields of matching managers to another manager, if there are any, and removes annotations.
fn migrate_fields(
    target: &Target,
    live: &Value,
    matches: fn(Manager<'_>) -> bool,
    to: &str,
    annotations: &[&str],
) -> Option<Action> {
    if !managed_fields::has(live, matches) {
        return None;
    }
    let patch = managed_fields::migrate(live, matches, to, annotations)?;
    let target = target.clone();
    Some(Action::Transfer { target, patch })
}

/// Removes the match conditions that other clients added to a webhook, if there are any.
fn remove_conditions(target: &Target, desired: &Value, live: &Value) -> Option<Action> {
    let patch = remove_conditions_patch(desired, live)?;
    let target = target.clone();
    Some(Action::RemoveFields { target, patch })
}

/// Returns the webhook on the runtime, for checking the compatibility of a document.
fn running_webhook(observed: &Observed) -> RunningWebhook {
    // A Deployment that cannot be read may exist.
    if observed.is_partly_unread(Lane::Webhook) && observed.deployment.is_none() {
        return RunningWebhook::Unmanaged;
    }
    let Some(live) = &observed.deployment else {
        return RunningWebhook::Absent;
    };
    let is_managed = annotation(live, MANIFEST_HASH).is_some();
    let count = |pointer| number(live, pointer);
    // Until all Pods are updated, an older one may still read the document.
    let is_updated = count("/status/observedGeneration") >= count("/metadata/generation")
        && count("/status/updatedReplicas") == count("/status/replicas");
    let version = version_label(live).and_then(parse_version);
    match version {
        Some(version) if is_managed && is_updated => RunningWebhook::Managed(version),
        _ => RunningWebhook::Unmanaged,
    }
}
