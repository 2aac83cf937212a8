//! What is said about a runtime after a pass: four conditions, each with a reason out of a closed list.
//!
//! Invariant: a pass that finds nothing new gives back the conditions that it was given, times and all, so that nothing
//! is written. Deliberately absent: the clock.
//! The Runtime's own state is never touched.

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, Condition, ConditionStatus, INSTALLED, REACHABLE, READY,
};

use super::observed::Rollout;
use super::plan::{Blocked, Held, Installed, Plan};
use super::target::Target;

mod reason;
mod unreached;

pub use reason::Reason;
pub use unreached::Unreached;

/// What came of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Why the runtime's API server could not be spoken to, if so.
    pub unreached: Option<&'a Unreached>,
    /// What was found out; `None` if the runtime was not reached.
    pub plan: Option<&'a Plan>,
    /// What the pass was for.
    pub purpose: Purpose,
    /// Why the plan was not carried out, if so.
    pub withheld: Option<Withheld>,
    /// The action that failed, if one did.
    pub failure: Option<&'a Failure>,
}

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The runtime is kept in step.
    Keep,
    /// The webhook is taken off it.
    Uninstall,
    /// It is handed back to today's installer.
    HandBack,
}

/// Why a plan is not carried out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// `spec.paused`.
    Paused,
    /// The runtime's wave has not come, or the rollout is stopped.
    Wave,
}

/// An action that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The object.
    pub target: Target,
    /// Why, without anything secret.
    pub message: String,
}

struct Verdict {
    status: ConditionStatus,
    reason: String,
    message: String,
}

/// The conditions after a pass. `now` (RFC 3339) is used where a status changed, and nowhere else.
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
        (INSTALLED, installed(outcome)),
        (CONFIGURATION_SYNCHRONIZED, Some(synchronized(outcome))),
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
    if let Some(unreached) = outcome.unreached {
        return no(unreached.into(), chain(unreached));
    }
    match outcome.plan.and_then(|plan| plan.blocked.as_ref()) {
        Some(Blocked::Identity(refusal)) => no(refusal.into(), chain(refusal)),
        Some(_) | None => yes(Reason::Connected),
    }
}

/// `None` if the pass did not look at all of the installation and saw nothing wrong: then what was said before holds.
fn installed(outcome: Outcome<'_>) -> Option<Verdict> {
    let plan = match before_all(outcome) {
        Ok(plan) => plan,
        Err(verdict) => return Some(verdict),
    };
    let Installed {
        rollout, complete, ..
    } = &plan.installation;
    if let Some(stuck) = &plan.installation.stuck {
        let text = format!(
            "{} `{}` cannot be changed in place",
            stuck.kind(),
            stuck.name()
        );
        return Some(no(Reason::NotReplaceable, text));
    }
    let done = *complete == Some(true) && *rollout == Rollout::Available;
    if let Some(failure) = outcome.failure.filter(|it| !is_content(&it.target)) {
        return Some(failed(failure));
    }
    match (rollout, outcome.withheld) {
        _ if done => Some(yes(Reason::Installed)),
        (Rollout::Available, _) if complete.is_none() => None,
        (_, Some(withheld)) => Some(no(withheld.into(), String::new())),
        (Rollout::Failed, _) => Some(no(
            Reason::RolloutFailed,
            "the Deployment's progress deadline passed".to_owned(),
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

fn synchronized(outcome: Outcome<'_>) -> Verdict {
    let plan = match before_all(outcome) {
        Ok(plan) => plan,
        Err(verdict) => return verdict,
    };
    if let Some(failure) = outcome.failure.filter(|it| is_content(&it.target)) {
        return failed(failure);
    }
    match (
        outcome.withheld,
        plan.held.iter().min_by_key(|it| it.rank()),
    ) {
        (Some(withheld), _) if plan.writes_content => no(withheld.into(), String::new()),
        (_, Some(held)) => no(held.into(), all(&plan.held)),
        // A step before the content's failed, and so nothing was written.
        (None, None) if plan.writes_content && outcome.failure.is_some() => outcome
            .failure
            .map_or_else(|| yes(Reason::Synchronized), failed),
        _ => yes(Reason::Synchronized),
    }
}

/// The reason is that of one of them; all are said.
fn all(held: &[Held]) -> String {
    let mut sorted: Vec<&Held> = held.iter().collect();
    sorted.sort_by_key(|it| it.rank());
    let texts: Vec<String> = sorted.into_iter().map(|it| chain(it)).collect();
    texts.join("; ")
}

/// What settles a condition before anything is looked at in detail.
fn before_all(outcome: Outcome<'_>) -> Result<&Plan, Verdict> {
    let unknown = || Verdict {
        status: ConditionStatus::Unknown,
        reason: Reason::Unreachable.name().to_owned(),
        message: String::new(),
    };
    let (None, Some(plan)) = (outcome.unreached, outcome.plan) else {
        return Err(unknown());
    };
    match &plan.blocked {
        Some(Blocked::Identity(_)) => return Err(unknown()),
        Some(blocked) => return Err(no(blocked.into(), chain(blocked))),
        None => {}
    }
    match outcome.purpose {
        Purpose::Keep => Ok(plan),
        _ if outcome.failure.is_some() => Err(outcome.failure.map_or_else(unknown, failed)),
        purpose => Err(departure(purpose, plan)
            .map_or_else(unknown, |(reason, text)| no(reason, text.to_owned()))),
    }
}

/// What is said of a runtime that is being left, and how far that is; `None` if it is not.
#[must_use]
pub fn departure(purpose: Purpose, plan: &Plan) -> Option<(Reason, &'static str)> {
    match purpose {
        Purpose::Keep => None,
        Purpose::Uninstall if plan.unfinished => Some((
            Reason::Uninstalling,
            "the webhook is being deleted; everything else waits until its Pods are gone",
        )),
        Purpose::Uninstall => Some((
            Reason::Uninstalling,
            "everything that belongs to the webhook is being deleted",
        )),
        Purpose::HandBack => Some((
            Reason::HandingBack,
            "everything is being left to KIM as it is",
        )),
    }
}

fn ready(conditions: &[Condition]) -> Verdict {
    let others = [REACHABLE, INSTALLED, CONFIGURATION_SYNCHRONIZED];
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
        Some(kind) => Verdict {
            status: find(kind).map_or(ConditionStatus::Unknown, |it| it.status),
            reason: find(kind).map_or_else(
                || Reason::NotExamined.name().to_owned(),
                |it| it.reason.clone(),
            ),
            message: format!("see `{kind}`"),
        },
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
        Reason::WriteFailed,
        format!("{} `{}`: {}", target.kind(), target.name(), failure.message),
    )
}

/// Failures of content and of the installation are told apart by the object.
fn is_content(target: &Target) -> bool {
    matches!(target.kind(), "Secret" | "ClusterTrustBundle" | "ConfigMap")
}

/// The API bounds messages; what another system said may be long.
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
