//! The conditions of a `RuntimeBootstrapper` after a reconcile, each with a reason from a closed list.
//!
//! Invariants: a reconcile that observes no change returns the conditions that it was given, with their times, so that the
//! status is not written. A condition that is not `True` has a message. Not in here: the clock.

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, Condition, ConditionStatus, IDENTITY_VERIFIED, INSTALLED,
    REACHABLE, READY,
};

use super::lane::{Lane, Lanes};
use super::observed::DeploymentStatus;
use super::plan::{Blocked, Held, Installed, Plan};
use super::target::Target;

mod reason;
mod unreached;

pub use reason::Reason;
pub use unreached::Unreached;

/// The result of a reconcile.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Why no connection to the runtime's API server was possible; `None` if there was one.
    pub unreached: Option<&'a Unreached>,
    /// The plan; `None` if the runtime was not reached.
    pub plan: Option<&'a Plan>,
    /// The goal of the reconcile.
    pub purpose: Goal,
    /// What was done in each lane.
    pub lanes: Lanes<LaneOutcome>,
    /// The failed write of each lane; `None` if none failed.
    pub failures: Lanes<Option<&'a Failure>>,
}

/// The goal of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The runtime is synchronized.
    Sync,
    /// The objects on the runtime are deleted.
    Delete,
    /// The objects on the runtime are left to KIM.
    Orphan,
}

/// What a reconcile did in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOutcome {
    /// The lane was not due: its condition remains.
    NotReconciled,
    /// The plan was not applied.
    Deferred(Deferral),
    /// The plan was applied, up to a failure.
    Applied,
}

/// Why a plan is not applied now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// `spec.paused` is true.
    Paused,
    /// The step of the runtime has not come, or the rollout is paused or over its failure limit.
    Rollout,
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

struct Verdict {
    status: ConditionStatus,
    reason: String,
    message: String,
}

/// The conditions after a reconcile. `now` (RFC 3339) becomes the transition time of a condition whose status changed.
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
            put(&mut conditions, kind, verdict, (generation, now));
        }
    }
    let ready = ready(&conditions);
    put(&mut conditions, READY, ready, (generation, now));
    conditions
}

/// An error and its causes in one line.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn put(
    conditions: &mut Vec<Condition>,
    kind: &str,
    verdict: Verdict,
    (generation, now): (Option<i64>, &str),
) {
    let mut condition = Condition {
        kind: kind.to_owned(),
        status: verdict.status,
        observed_generation: generation,
        last_transition_time: now.to_owned(),
        reason: verdict.reason,
        message: shortened(verdict.message),
    };
    match conditions.iter_mut().find(|it| it.kind == kind) {
        Some(previous) => {
            if previous.status == condition.status {
                condition
                    .last_transition_time
                    .clone_from(&previous.last_transition_time);
            }
            *previous = condition;
        }
        None => conditions.push(condition),
    }
}

fn reachable(outcome: Outcome<'_>) -> Verdict {
    outcome.unreached.map_or_else(
        || yes(Reason::Connected),
        |unreached| no(unreached.into(), chain(unreached)),
    )
}

fn identity_verified(outcome: Outcome<'_>) -> Verdict {
    let (None, Some(plan)) = (outcome.unreached, outcome.plan) else {
        return unreachable();
    };
    match &plan.blocked {
        Some(Blocked::Identity(refusal)) => no(refusal.into(), chain(refusal)),
        Some(_) | None => yes(Reason::Verified),
    }
}

fn unreachable() -> Verdict {
    unknown(Reason::Unreachable, "the runtime is not reachable")
}

/// `None` if the lane was not reconciled: the previous condition remains.
fn installed(outcome: Outcome<'_>) -> Option<Verdict> {
    let plan = match before_all(outcome, Lane::Webhook) {
        Ok(plan) => plan?,
        Err(verdict) => return Some(verdict),
    };
    let Installed {
        rollout, complete, ..
    } = &plan.installation;
    if let Some(stuck) = &plan.installation.stuck {
        let text = format!(
            "{} {}: an immutable field differs",
            stuck.kind(),
            stuck.name()
        );
        return Some(no(Reason::ImmutableField, text));
    }
    let done = *complete == Some(true) && *rollout == DeploymentStatus::Available;
    if let Some(failure) = outcome.failures.webhook {
        return Some(failed(failure));
    }
    match (rollout, outcome.deferral(Lane::Webhook)) {
        _ if done => Some(yes(Reason::Installed)),
        (DeploymentStatus::Available, _) if complete.is_none() => None,
        (_, Some(deferral)) => Some(deferred(deferral)),
        (DeploymentStatus::Failed, _) => Some(no(
            Reason::ProgressDeadlineExceeded,
            "the Deployment exceeded its progress deadline".to_owned(),
        )),
        _ => Some(no(
            Reason::Installing,
            format!(
                "{} of {} replicas are ready",
                plan.installation.ready_replicas, plan.installation.replicas
            ),
        )),
    }
}

/// `None` if the lane was not reconciled: the previous condition remains.
fn synchronized(outcome: Outcome<'_>) -> Option<Verdict> {
    let plan = match before_all(outcome, Lane::Configuration) {
        Ok(plan) => plan?,
        Err(verdict) => return Some(verdict),
    };
    if let Some(failure) = outcome.failures.configuration {
        return Some(failed(failure));
    }
    let verdict = match (
        outcome.deferral(Lane::Configuration),
        plan.held.iter().min_by_key(|it| it.rank()),
    ) {
        (Some(deferral), _) if plan.writes_content => deferred(deferral),
        (_, Some(held)) => no(held.into(), all(&plan.held)),
        _ => yes(Reason::Synchronized),
    };
    Some(verdict)
}

/// The messages of all causes; the reason of the condition is that of the first.
fn all(held: &[Held]) -> String {
    let mut sorted: Vec<&Held> = held.iter().collect();
    sorted.sort_by_key(|it| it.rank());
    let texts: Vec<String> = sorted.into_iter().map(|it| chain(it)).collect();
    texts.join("; ")
}

/// The plan, or the condition that follows without it: unreachable, blocked, or being deleted. `None` if the lane was not
/// reconciled.
fn before_all(outcome: Outcome<'_>, lane: Lane) -> Result<Option<&Plan>, Verdict> {
    let (None, Some(plan)) = (outcome.unreached, outcome.plan) else {
        return Err(unreachable());
    };
    let is_due = *outcome.lanes.get(lane) != LaneOutcome::NotReconciled;
    let of_lane = plan.lanes.get(lane).blocked.as_ref().filter(|_| is_due);
    match plan.blocked.as_ref().or(of_lane) {
        Some(Blocked::Identity(refusal)) => {
            let message = "the identity of the cluster is not verified";
            return Err(unknown(refusal.into(), message));
        }
        Some(blocked) => return Err(no(blocked.into(), chain(blocked))),
        None => {}
    }
    match outcome.purpose {
        Goal::Sync => Ok(is_due.then_some(plan)),
        _ if outcome.failures.get(lane).is_some() => {
            Err(outcome.failures.get(lane).map_or_else(unreachable, failed))
        }
        purpose => Err(departure(purpose, plan)
            .map_or_else(unreachable, |(reason, text)| no(reason, text.to_owned()))),
    }
}

/// The reason and message of a runtime whose resource is being deleted; `None` if it is not.
#[must_use]
pub fn departure(purpose: Goal, plan: &Plan) -> Option<(Reason, &'static str)> {
    match purpose {
        Goal::Sync => None,
        Goal::Delete if plan.unfinished => Some((
            Reason::Uninstalling,
            "waiting until the Pods of the webhook are deleted; all other objects are deleted after them",
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

fn ready(conditions: &[Condition]) -> Verdict {
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
        None => yes(Reason::Ready),
        Some(kind) => find(kind).map_or_else(
            || unknown(Reason::Pending, &format!("{kind}: not observed yet")),
            |it| Verdict {
                status: it.status,
                reason: it.reason.clone(),
                message: format!("{kind}: {}", it.message),
            },
        ),
    }
}

/// The condition of what is not written because of a pause or the order of a rollout.
fn deferred(deferral: Deferral) -> Verdict {
    let message = match deferral {
        Deferral::Paused => "spec.paused is true",
        Deferral::Rollout => {
            "an earlier step is not complete, or the rollout is paused or over its failure limit"
        }
    };
    no(deferral.into(), message.to_owned())
}

fn unknown(reason: Reason, message: &str) -> Verdict {
    Verdict {
        status: ConditionStatus::Unknown,
        reason: reason.name().to_owned(),
        message: message.to_owned(),
    }
}

fn yes(reason: Reason) -> Verdict {
    Verdict {
        status: ConditionStatus::True,
        reason: reason.name().to_owned(),
        message: String::new(),
    }
}

fn no(reason: Reason, message: String) -> Verdict {
    Verdict {
        status: ConditionStatus::False,
        reason: reason.name().to_owned(),
        message,
    }
}

fn failed(failure: &Failure) -> Verdict {
    let target = &failure.target;
    no(
        Reason::ApplyFailed,
        format!("{} {}: {}", target.kind(), target.name(), failure.message),
    )
}

/// The message within the API's bound; the text of another system may be longer.
fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE {
        let end = (0..=MESSAGE - ELLIPSIS.len())
            .rev()
            .find(|at| message.is_char_boundary(*at))
            .unwrap_or_default();
        message.truncate(end);
        message.push_str(ELLIPSIS);
    }
    message
}

const MESSAGE: usize = 1024;
const ELLIPSIS: &str = "…";
