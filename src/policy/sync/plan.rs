//! What to do about one runtime: the difference between what should be there and what is, in an order that is safe to
//! stop after any step.
//!
//! Invariants: a refusal or a failed preflight yields no action at all; nothing differs, nothing is done; a source that was
//! never there, is missing, not looked for or invalid yields no change of its object's content; what a version requires is written
//! before the document that requires it; no document is left to require a part that the plan replaces.

use std::fmt;
use std::sync::Arc;

use api::kcp::{CONTENT_HASH, CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER, MANIFEST_HASH};
use jiff::Timestamp;
use serde_json::Value;

use super::compatibility::{Running, TooOld};
use super::desired::Desired;
use super::fields::Manager;
use super::identity::{Claim, Owner, Refusal, guard};
use super::manifests::Installation;
use super::observed::{DeploymentStatus, Names, NamespaceState, Observed, annotation};
use super::target::Target;
use super::{Lane, Lanes, SourceKind, fields};

mod content;
mod install;
mod inventory;
mod leave;
mod renewal;

pub use leave::{hand_back, uninstall};

/// What to do with one object.
#[derive(Clone, PartialEq)]
pub enum Action {
    /// Create an object that must not exist: of two control planes that mark one cluster as theirs, one fails.
    Create {
        /// Where.
        target: Target,
        /// The object.
        object: Arc<Value>,
    },
    /// Server-side apply as [`CONTROLLER_FIELD_MANAGER`], forced: whoever else wrote the field loses it.
    Apply {
        /// Where.
        target: Target,
        /// The whole of what we say about the object.
        object: Arc<Value>,
    },
    /// Delete, if it is still the object that was seen.
    Delete {
        /// Where.
        target: Target,
        /// The UID that the deletion is bound to.
        uid: Option<String>,
        /// Whether the object stays until all that it owns is gone.
        foreground: bool,
    },
    /// A JSON patch that hands over the ownership of fields, and removes annotations of the controller. It has the resource
    /// version that was read: after a conflict (409) the next reconcile reads the object again.
    Transfer {
        /// Where.
        target: Target,
        /// The operations.
        patch: Value,
    },
    /// A JSON patch that removes keys of our ConfigMap that another client added. It has the resource version that was read.
    RemoveKeys {
        /// Where.
        target: Target,
        /// The operations.
        patch: Value,
    },
}

/// Actions that may be applied at once.
pub type Step = Vec<Action>;

/// What to do about a runtime, and what is to be said about it.
///
/// Within a list of steps a step begins only if the one before succeeded as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps before those of any lane: the marker of ownership, or everything that is done about a runtime that is left.
    pub common: Vec<Step>,
    /// What to do in each lane. Neither lane waits for the other, whatever fails there.
    pub lanes: Lanes<LanePlan>,
    /// Why nothing may be written in any lane; then there are no steps.
    pub blocked: Option<Blocked>,
    /// What keeps a part of the content from this runtime.
    pub held: Vec<Held>,
    /// What the runtime holds of the three objects before the first step; without a version.
    pub found: Content,
    /// What the runtime holds once all steps succeeded.
    pub content: Content,
    /// Whether a step writes or removes one of the three objects, or renews what the document requires.
    pub writes_content: bool,
    /// How the installation is.
    pub installation: Installed,
    /// Whether another plan has to follow although this one may be empty: something is on its way out, and the rest waits
    /// for it.
    pub unfinished: bool,
}

/// What to do in one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LanePlan {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Why nothing may be written in this lane; then there are no steps.
    pub blocked: Option<Blocked>,
}

/// Why nothing may be written to a runtime, or in one lane of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// It may be the wrong cluster.
    #[error("cluster not verified")]
    Identity(#[source] Refusal),
    /// The product's namespace is not there yet.
    #[error("Namespace {0} not found")]
    NamespaceNotFound(String),
    /// The product's namespace is being deleted.
    #[error("Namespace {0} is being deleted")]
    NamespaceTerminating(String),
    /// The kubeconfig lacks rights.
    #[error("missing permissions: {}", .0.join(", "))]
    Rights(Vec<String>),
}

/// Why a part of the content does not go to this runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// Its source cannot be read or is invalid.
    #[error("invalid source {}: {reason}", .kind.name())]
    Source {
        /// The source.
        kind: SourceKind,
        /// Why, without anything secret.
        reason: String,
    },
    /// The webhook would understand the document only in part.
    #[error("configuration document not written")]
    TooOld(#[source] TooOld),
    /// The runtime does not serve ClusterTrustBundles.
    #[error("the runtime does not serve the API of ClusterTrustBundles")]
    NotServed,
    /// Its source is missing, and what was rolled out stays until then.
    #[error("{object} was deleted on KCP: its copy on the runtime is deleted at {}, unless the source is created again before", .at.strftime("%FT%TZ"))]
    DeletionPending {
        /// The source.
        object: String,
        /// The end of the grace period.
        at: Timestamp,
    },
    /// There is no source of its name, and there never was one.
    #[error("{object} not found on KCP: {}", without(*.kind))]
    NotFound {
        /// The source.
        kind: SourceKind,
        /// What it is called.
        object: String,
    },
}

/// What it means that there is no such source.
fn without(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::PullSecret | SourceKind::TrustBundle => {
            "an existing copy on the runtime is not changed"
        }
        SourceKind::Configuration => {
            "an existing copy on the runtime is not changed, and the webhook does not become ready without one"
        }
    }
}

impl Held {
    /// Whether the runtime holds what is wanted of this part all the same.
    fn is_satisfied(&self) -> bool {
        matches!(self, Self::DeletionPending { .. } | Self::NotFound { .. })
    }

    /// The place among the reasons that one condition has; the least comes first.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::DeletionPending { .. } => 0,
            Self::Source { .. } => 1,
            Self::TooOld(_) => 2,
            Self::NotServed => 3,
            Self::NotFound { .. } => 4,
        }
    }
}

/// What the runtime holds, source by source: the hash of the content, `None` if it is absent or not ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Of the pull Secret.
    pub pull_secret: Option<String>,
    /// Of the trust bundle.
    pub trust_bundle: Option<String>,
    /// Of the document.
    pub configuration: Option<String>,
    /// Of the whole, if the runtime holds all that is wanted.
    pub version: Option<String>,
}

/// How the installation is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// How far the Deployment is, in the wanted version; another version is [`DeploymentStatus::Progressing`].
    pub rollout: DeploymentStatus,
    /// Whether all manifests are as wanted, the webhook configuration included; `None` if the pass did not look.
    pub complete: Option<bool>,
    /// The version that the live Deployment says it has.
    pub version: Option<String>,
    /// Replicas of the live Deployment that are ready.
    pub ready_replicas: u64,
    /// Replicas that the live Deployment is to have.
    pub replicas: u64,
    /// An object that would have to be replaced, which would leave the runtime without a webhook.
    pub stuck: Option<Target>,
}

/// What is the same in every pass over one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Names of the three objects.
    pub names: &'a Names,
    /// What has to be installed.
    pub installation: &'a Installation,
    /// Who we are, and who the runtime is.
    pub owner: &'a Owner,
    /// What is known about the runtime's identity.
    pub claim: Claim<'a>,
}

/// Works out what to do about a runtime that is synchronized.
///
/// Once it is not blocked, [`Observed::cluster`] is the UID to remember.
#[must_use]
pub fn plan(context: Context<'_>, desired: &Desired, observed: &Observed) -> Plan {
    if let Err(blocked) = preflight(context, observed) {
        return Plan {
            blocked: Some(blocked),
            ..Plan::default()
        };
    }
    let mut plan = Plan::default();
    inventory::mark(context, observed, &mut plan);
    let changes = content::decide(context, desired, observed, &mut plan);
    let install = install::decide(context, observed, &mut plan);
    plan.writes_content = !changes.is_empty();
    plan.lanes = Lanes {
        configuration: LanePlan::new(
            changes.steps(),
            lacking(&observed.lacking_in(Lane::Configuration)),
        ),
        webhook: LanePlan::new(
            install.steps(),
            lacking(&observed.lacking_in(Lane::Webhook)),
        ),
    };
    if plan.lanes.configuration.blocked.is_some() {
        plan.writes_content = false;
        plan.content = plan.found.clone();
    }
    if plan.lanes.webhook.blocked.is_some() {
        plan.installation.stuck = None;
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
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    /// All steps: the common ones, then those of each lane in the order of [`Lane::ALL`].
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let lanes = self.lanes.iter().flat_map(|it| &it.steps);
        self.common.iter().chain(lanes)
    }

    /// Leaves the steps of the webhook lane to another reconcile.
    #[must_use]
    pub fn without_webhook(mut self) -> Self {
        self.lanes.webhook.steps.clear();
        self
    }

    /// Whether a runtime that is left is left: there is nothing to do, and nothing to wait for.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.is_empty() && !self.unfinished && self.blocked.is_none()
    }

    /// Whether the pass should be repeated soon although all of it succeeded: the Deployment is on its way.
    #[must_use]
    pub fn waits(&self) -> bool {
        let is_blocked = self.blocked.is_some() || self.lanes.webhook.blocked.is_some();
        !is_blocked && self.installation.rollout != DeploymentStatus::Available
    }
}

impl Action {
    /// Where it happens.
    #[must_use]
    pub fn target(&self) -> &Target {
        match self {
            Self::Create { target, .. }
            | Self::Apply { target, .. }
            | Self::Delete { target, .. }
            | Self::Transfer { target, .. }
            | Self::RemoveKeys { target, .. } => target,
        }
    }

    /// The word for it in metrics and in what is printed.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
            Self::Transfer { .. } => "transfer",
            Self::RemoveKeys { .. } => "remove-keys",
        }
    }
}

/// An object may hold credentials, so an action is told by what it does to which path.
impl fmt::Debug for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb(), self.target().path())
    }
}

/// Everything that has to hold before a single write.
fn preflight(context: Context<'_>, observed: &Observed) -> Result<(), Blocked> {
    guard(
        context.owner,
        context.claim,
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
    let lacks = |lane| !observed.lacking_in(lane).is_empty();
    if Lane::ALL.into_iter().all(lacks) {
        return lacking(&Lane::ALL.map(|lane| observed.lacking_in(lane)).concat());
    }
    Ok(())
}

/// Each right once, in the order of asking: a condition may cut off the last ones.
fn lacking(rights: &[String]) -> Result<(), Blocked> {
    let mut lacking: Vec<String> = Vec::new();
    for right in rights {
        if !lacking.contains(right) {
            lacking.push(right.clone());
        }
    }
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Blocked::Rights(lacking))
}

/// Whether an object is ours, or today's installer's: nobody else's is ever deleted.
fn is_ours(live: &Value) -> bool {
    [CONTENT_HASH, MANIFEST_HASH]
        .iter()
        .any(|key| annotation(live, key).is_some())
        || [CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER]
            .iter()
            .any(|manager| fields::managed_by(live, manager))
}

fn delete(target: Target, live: &Value) -> Action {
    Action::Delete {
        target,
        uid: super::observed::text(live, "/metadata/uid").map(str::to_owned),
        foreground: false,
    }
}

/// Takes fields over from their managers, if there are any, and annotations away with them.
fn take_over(
    target: &Target,
    live: &Value,
    is_given: fn(Manager<'_>) -> bool,
    annotations: &[&str],
) -> Option<Action> {
    if !fields::has(live, is_given) {
        return None;
    }
    let patch = fields::transfer(live, is_given, CONTROLLER_FIELD_MANAGER, annotations)?;
    let target = target.clone();
    Some(Action::Transfer { target, patch })
}

/// What runs on the runtime, as far as documents are concerned.
fn running(observed: &Observed) -> Running {
    // A Deployment that may not be read may be there.
    if !observed.unread.webhook.is_empty() && observed.deployment.is_none() {
        return Running::Foreign;
    }
    let Some(live) = &observed.deployment else {
        return Running::Nothing;
    };
    let ours = annotation(live, MANIFEST_HASH).is_some();
    let count = |pointer| super::observed::number(live, pointer);
    // An older Pod that still serves decides by the document too.
    let alone = count("/status/observedGeneration") >= count("/metadata/generation")
        && count("/status/updatedReplicas") == count("/status/replicas");
    let version = super::manifests::version_label(live).and_then(|text| text.parse().ok());
    match version {
        Some(version) if ours && alone => Running::Ours(version),
        _ => Running::Foreign,
    }
}
