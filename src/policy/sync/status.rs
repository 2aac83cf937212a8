//! The conditions of a `RuntimeBootstrapper` after a reconcile, each with a reason from a closed list.
//!
//! Invariants: a reconcile that observes no change returns the given conditions with their times, so that the status is
//! not written. A condition that is not `True` has a message. The current time is an argument.

use std::collections::BTreeMap;

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, Condition, ConditionStatus, IDENTITY_VERIFIED, INSTALLED,
    REACHABLE, READY,
};

use super::lane::{Lane, Lanes};
use super::observed::DeploymentStatus;
use super::plan::{Blocked, InstallationStatus, Plan, SyncDeferred};
use super::target::Target;

mod connection;
mod reason;

pub use connection::ConnectionError;
pub use reason::Reason;
pub use strum::VariantArray;

/// The result of a reconcile.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Reason why the runtime is not reachable; `None` if it is reachable.
    pub connection_error: Option<&'a ConnectionError>,
    /// The plan; `None` if the runtime is not reachable.
    pub plan: Option<&'a Plan>,
    /// The goal of the reconcile.
    pub goal: Goal,
    /// The result in each lane.
    pub lanes: Lanes<LaneOutcome>,
    /// The failed write of each lane; `None` if none failed.
    pub failures: Lanes<Option<&'a Failure>>,
}

/// The goal of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Goal {
    /// The runtime is synchronized.
    Sync,
    /// The objects on the runtime are deleted.
    Delete,
    /// The objects on the runtime are orphaned for KIM.
    Orphan,
}

/// The result of a reconcile in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOutcome {
    /// The lane was not reconciled: its condition remains.
    NotReconciled,
    /// The plan was not applied.
    Deferred(Deferral),
    /// The plan was applied, completely or up to a failure.
    Applied,
}

/// Reason why a plan is not applied now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// `spec.paused` is true.
    Paused,
    /// The rollout has not reached the runtime, is paused, or is over its failure limit.
    Rollout,
}

impl Deferral {
    fn message(self) -> &'static str {
        match self {
            Self::Paused => "spec.paused is true",
            Self::Rollout => {
                "an earlier step is not complete, or the rollout is paused or over its failure limit"
            }
        }
    }
}

impl Outcome<'_> {
    fn deferral(&self, lane: Lane) -> Option<Deferral> {
        match self.lanes.get(lane) {
            LaneOutcome::Deferred(deferral) => Some(*deferral),
            LaneOutcome::NotReconciled | LaneOutcome::Applied => None,
        }
    }
}

/// A failed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The object.
    pub target: Target,
    /// The cause, without secret content.
    pub message: String,
}

struct ConditionVerdict {
    status: ConditionStatus,
    reason: String,
    message: String,
}

impl ConditionVerdict {
    fn new(status: ConditionStatus, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.name().to_owned(),
            message: message.into(),
        }
    }
}

/// Returns the conditions after a reconcile. `now` (RFC 3339) becomes the transition time of a condition whose status changed.
#[must_use]
pub fn conditions(
    previous: &[Condition],
    outcome: Outcome<'_>,
    generation: Option<i64>,
    now: &str,
) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = previous.to_vec();
    let verdicts = [
        (REACHABLE, Some(reachable(outcome))),
        (IDENTITY_VERIFIED, Some(identity_verified(outcome))),
        (INSTALLED, installed(outcome)),
        (CONFIGURATION_SYNCHRONIZED, synchronized(outcome)),
    ];
    for (kind, verdict) in verdicts {
        if let Some(verdict) = verdict {
            set_condition(&mut conditions, kind, verdict, (generation, now));
        }
    }
    let ready = ready(&conditions);
    set_condition(&mut conditions, READY, ready, (generation, now));
    conditions
}

/// An error and its causes in one line.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |it| it.source());
    let texts: Vec<String> = chain.map(ToString::to_string).collect();
    texts.join(": ")
}

fn set_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    verdict: ConditionVerdict,
    (generation, now): (Option<i64>, &str),
) {
    let condition = Condition {
        kind: kind.to_owned(),
        status: verdict.status,
        observed_generation: generation,
        last_transition_time: now.to_owned(),
        reason: verdict.reason,
        message: truncated(verdict.message),
    };
    condition.set_in(conditions);
}

fn reachable(outcome: Outcome<'_>) -> ConditionVerdict {
    outcome.connection_error.map_or_else(
        || condition_true(Reason::Connected),
        |connection_error| condition_false(connection_error.into(), error_chain(connection_error)),
    )
}

fn identity_verified(outcome: Outcome<'_>) -> ConditionVerdict {
    let (None, Some(plan)) = (outcome.connection_error, outcome.plan) else {
        return unreachable();
    };
    match &plan.blocked {
        Some(Blocked::Identity(error)) => condition_false(error.into(), error_chain(error)),
        Some(_) | None => condition_true(Reason::Verified),
    }
}

fn unreachable() -> ConditionVerdict {
    condition_unknown(Reason::Unreachable, "the runtime is not reachable")
}

/// Returns the condition `Installed`. `None` if the lane was not reconciled: the previous condition remains.
fn installed(outcome: Outcome<'_>) -> Option<ConditionVerdict> {
    let plan = match common_verdict(outcome, Lane::Webhook) {
        Ok(plan) => plan?,
        Err(verdict) => return Some(verdict),
    };
    let InstallationStatus {
        deployment,
        complete,
        ..
    } = &plan.installation;
    if let Some(target) = &plan.installation.immutable_conflict {
        let text = format!(
            "{} {}: an immutable field differs",
            target.kind(),
            target.name()
        );
        return Some(condition_false(Reason::ImmutableField, text));
    }
    let done = *complete == Some(true) && *deployment == DeploymentStatus::Available;
    if let Some(failure) = outcome.failures.webhook {
        return Some(condition_failed(failure));
    }
    match (deployment, outcome.deferral(Lane::Webhook)) {
        _ if done => Some(ConditionVerdict::new(
            ConditionStatus::True,
            Reason::Installed,
            not_written(plan, outcome.deferral(Lane::Webhook)),
        )),
        (DeploymentStatus::Available, _) if complete.is_none() => None,
        (_, Some(deferral)) => Some(condition_deferred(deferral)),
        (DeploymentStatus::Failed, _) => Some(condition_false(
            Reason::ProgressDeadlineExceeded,
            "the Deployment exceeded its progress deadline",
        )),
        _ => Some(condition_false(
            Reason::Installing,
            progress(&plan.installation),
        )),
    }
}

/// Returns the message about objects in additional namespaces, which are not part of the condition.
fn not_written(plan: &Plan, deferral: Option<Deferral>) -> String {
    let failures = plan.installation.not_written.iter();
    let mut causes: BTreeMap<&Target, &str> =
        failures.map(|it| (&it.target, &*it.message)).collect();
    if let Some(deferral) = deferral {
        let planned = plan.additional.iter().flatten();
        causes.extend(planned.map(|it| (it.target(), deferral.message())));
    }
    let texts = causes.into_iter().map(|(target, message)| {
        let namespace = target.namespace().unwrap_or_default();
        let (kind, name) = (target.kind(), target.name());
        format!("{kind} {namespace}/{name} not written: {message}")
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn progress(installation: &InstallationStatus) -> String {
    let target = installation.without_ca_bundle.as_ref();
    match target.filter(|_| installation.deployment == DeploymentStatus::Available) {
        Some(target) => format!(
            "{} {} has no caBundle, which the webhook writes: no Pod is sent to it",
            target.kind(),
            target.name()
        ),
        None => format!(
            "{} of {} replicas are ready",
            installation.ready_replicas, installation.replicas
        ),
    }
}

/// Returns the condition `ConfigurationSynchronized`. `None` if the lane was not reconciled: the previous condition remains.
fn synchronized(outcome: Outcome<'_>) -> Option<ConditionVerdict> {
    let plan = match common_verdict(outcome, Lane::Configuration) {
        Ok(plan) => plan?,
        Err(verdict) => return Some(verdict),
    };
    if let Some(failure) = outcome.failures.configuration {
        return Some(condition_failed(failure));
    }
    let verdict = match (
        outcome.deferral(Lane::Configuration),
        plan.deferred.iter().min_by_key(|it| it.rank()),
    ) {
        (Some(deferral), _) if plan.writes_configuration && !plan.has_inaccessible() => {
            condition_deferred(deferral)
        }
        (_, Some(deferred)) => condition_false(deferred.into(), messages(&plan.deferred)),
        _ => condition_true(Reason::Synchronized),
    };
    Some(verdict)
}

/// Returns the messages of all causes, in the order of their rank; the first determines the reason.
fn messages(deferred: &[SyncDeferred]) -> String {
    let mut sorted: Vec<&SyncDeferred> = deferred.iter().collect();
    sorted.sort_by_key(|it| it.rank());
    let texts: Vec<String> = sorted.into_iter().map(|it| error_chain(it)).collect();
    texts.join("; ")
}

/// Returns the plan of a lane that can be reported, or the condition of a runtime that is unreachable, blocked or
/// being deleted. `None` if the lane was not reconciled.
fn common_verdict(outcome: Outcome<'_>, lane: Lane) -> Result<Option<&Plan>, ConditionVerdict> {
    let (None, Some(plan)) = (outcome.connection_error, outcome.plan) else {
        return Err(unreachable());
    };
    let is_due = *outcome.lanes.get(lane) != LaneOutcome::NotReconciled;
    let of_lane = plan.lanes.get(lane).blocked.as_ref().filter(|_| is_due);
    match plan.blocked.as_ref().or(of_lane) {
        Some(Blocked::Identity(error)) => {
            let message = "the identity of the cluster is not verified";
            return Err(condition_unknown(error.into(), message));
        }
        Some(blocked) => return Err(condition_false(blocked.into(), error_chain(blocked))),
        None => {}
    }
    match (
        deletion_reason(outcome.goal, plan),
        outcome.failures.get(lane),
    ) {
        (None, _) => Ok(is_due.then_some(plan)),
        (Some(_), Some(failure)) => Err(condition_failed(failure)),
        (Some((reason, text)), None) => Err(condition_false(reason, text)),
    }
}

/// Returns the reason and message for a runtime whose resource is being deleted; `None` for [`Goal::Sync`].
#[must_use]
pub fn deletion_reason(goal: Goal, plan: &Plan) -> Option<(Reason, &'static str)> {
    match goal {
        Goal::Sync => None,
        Goal::Delete if plan.unfinished => Some((
            Reason::Uninstalling,
            "waiting until the Pods of the webhook are deleted; all other objects are deleted after them",
        )),
        Goal::Delete if plan.is_last() => Some((
            Reason::Uninstalling,
            "the objects of the webhook are deleted; the ConfigMap of their owner is being deleted",
        )),
        Goal::Delete => Some((
            Reason::Uninstalling,
            "the objects of the webhook are being deleted",
        )),
        Goal::Orphan => Some((
            Reason::Orphaning,
            "the objects on the runtime are being left to KIM",
        )),
    }
}

fn ready(conditions: &[Condition]) -> ConditionVerdict {
    let others = [
        REACHABLE,
        IDENTITY_VERIFIED,
        INSTALLED,
        CONFIGURATION_SYNCHRONIZED,
    ];
    let find = |kind: &str| conditions.iter().find(|it| it.kind == kind);
    let worst = others
        .iter()
        .find(|kind| find(kind).is_some_and(|it| it.status == ConditionStatus::False))
        .or_else(|| {
            others
                .iter()
                .find(|kind| find(kind).is_none_or(|it| it.status != ConditionStatus::True))
        });
    match worst {
        None => condition_true(Reason::Ready),
        Some(kind) => find(kind).map_or_else(
            || condition_unknown(Reason::Pending, &format!("{kind}: not observed yet")),
            |it| ConditionVerdict {
                status: it.status,
                reason: it.reason.clone(),
                message: format!("{kind}: {}", it.message),
            },
        ),
    }
}

/// Returns the condition of a lane that is paused or waits for the rollout.
fn condition_deferred(deferral: Deferral) -> ConditionVerdict {
    condition_false(deferral.into(), deferral.message())
}

fn condition_unknown(reason: Reason, message: &str) -> ConditionVerdict {
    ConditionVerdict::new(ConditionStatus::Unknown, reason, message)
}

fn condition_true(reason: Reason) -> ConditionVerdict {
    ConditionVerdict::new(ConditionStatus::True, reason, "")
}

fn condition_false(reason: Reason, message: impl Into<String>) -> ConditionVerdict {
    ConditionVerdict::new(ConditionStatus::False, reason, message)
}

fn condition_failed(failure: &Failure) -> ConditionVerdict {
    let target = &failure.target;
    condition_false(
        Reason::ApplyFailed,
        format!("{} {}: {}", target.kind(), target.name(), failure.message),
    )
}

/// Truncates a message to the maximum length in the API, since texts of other systems may be longer.
#[must_use]
pub fn truncated(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE - ELLIPSIS.len()));
        message.push_str(ELLIPSIS);
    }
    message
}

const MAX_MESSAGE: usize = 1024;
const ELLIPSIS: &str = "…";
