//! The status of a Watcher.

use std::collections::BTreeMap;

use api::bootstrapper::{Condition, ConditionStatus};
use api::watcher::{RUNTIMES_CONFIGURED, VIRTUAL_SERVICE, Watcher, WatcherState, WatcherStatus};

use super::{RejectedWatcher, RouteError};

/// The result of a reconcile of a Watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The VirtualService is as desired.
    Configured,
    /// The VirtualService is as desired, but the route of this older Watcher, `namespace/name`, gets the events.
    Conflict(String),
    /// The VirtualService cannot be configured.
    Failed(RouteError),
    /// The Watcher is being deleted.
    Deleting,
}

impl Outcome {
    /// Returns the state of the Watcher, and the status, reason and message of the condition.
    fn report(&self) -> (WatcherState, ConditionStatus, &'static str, String) {
        use ConditionStatus::{False, True};
        match self {
            // Reason and message as in the public lifecycle-manager.
            Self::Configured => {
                let message = "VirtualService is configured".to_owned();
                (WatcherState::Ready, True, "Ready", message)
            }
            Self::Conflict(other) => {
                let message = format!(
                    "Watcher {other} has the same manager and another Service: its route is older and gets the events"
                );
                (WatcherState::Warning, True, "ManagerConflict", message)
            }
            Self::Failed(error) => {
                let message = format!("VirtualService is not configured: {error}");
                (WatcherState::Error, False, error.reason(), message)
            }
            Self::Deleting => {
                let message = "Watcher is being deleted".to_owned();
                (WatcherState::Deleting, False, "Deleting", message)
            }
        }
    }
}

/// Returns the status after a reconcile; `None` if the Watcher has this status already. `now` is RFC 3339. Conditions
/// of other types are kept.
#[must_use]
pub fn status(watcher: &Watcher, outcome: &Outcome, now: &str) -> Option<WatcherStatus> {
    let (state, status, reason, message) = outcome.report();
    let condition = (status, reason, message);
    let after = WatcherStatus {
        state,
        conditions: with_condition(watcher, VIRTUAL_SERVICE, condition, now),
        observed_generation: watcher.metadata.generation,
    };
    (watcher.status.as_ref() != Some(&after)).then_some(after)
}

/// The number of runtimes in each state, by the reason of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCounts {
    /// Runtimes with the webhooks of all Watchers.
    pub configured: usize,
    /// Other runtimes, by reason.
    pub others: BTreeMap<&'static str, usize>,
}

/// Returns the status with the number of runtimes that have the webhook of the Watcher. `None` if the Watcher has
/// this status already, or is being deleted. `rejected` is the reason why no runtime can have the webhook. `now` is
/// RFC 3339.
#[must_use]
pub fn runtimes_status(
    watcher: &Watcher,
    rejected: Option<&RejectedWatcher>,
    counts: &RuntimeCounts,
    now: &str,
) -> Option<WatcherStatus> {
    if watcher.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let before = watcher.status.as_ref()?;
    let after = WatcherStatus {
        conditions: with_condition(
            watcher,
            RUNTIMES_CONFIGURED,
            counts.condition(rejected),
            now,
        ),
        ..before.clone()
    };
    (*before != after).then_some(after)
}

impl RuntimeCounts {
    fn condition(
        &self,
        rejected: Option<&RejectedWatcher>,
    ) -> (ConditionStatus, &'static str, String) {
        if let Some(error) = rejected {
            let message = format!("no runtime gets a webhook: {error}");
            return (ConditionStatus::False, "InvalidWatcher", message);
        }
        let others: usize = self.others.values().sum();
        let all = self.configured + others;
        let mut message = format!("{} of {all} runtimes", self.configured);
        if others == 0 {
            return (ConditionStatus::True, "Configured", message);
        }
        let reasons = self.others.iter();
        let reasons = reasons.map(|(reason, count)| format!("{count} {reason}"));
        message.push_str("; ");
        message.push_str(&reasons.collect::<Vec<_>>().join(", "));
        (ConditionStatus::False, "RuntimesNotConfigured", message)
    }
}

/// Returns the conditions of a Watcher with a condition of this type.
fn with_condition(
    watcher: &Watcher,
    kind: &str,
    (status, reason, message): (ConditionStatus, &str, String),
    now: &str,
) -> Vec<Condition> {
    let before = watcher.status.as_ref();
    let mut conditions = before.map(|it| it.conditions.clone()).unwrap_or_default();
    let condition = Condition {
        kind: kind.to_owned(),
        status,
        observed_generation: watcher.metadata.generation,
        last_transition_time: now.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MAX_MESSAGE).collect(),
    };
    condition.set_in(&mut conditions);
    conditions
}

/// Maximum number of characters of a message, as in the schema.
const MAX_MESSAGE: usize = 2048;
