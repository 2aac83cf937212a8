//! How far a rollout is: what anyone may read.

use serde::{Deserialize, Serialize};

use super::State;

/// Members by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Not begun.
    pub waiting: u32,
    /// Begun.
    pub running: u32,
    /// Arrived.
    pub done: u32,
    /// Failed.
    pub failed: u32,
    /// Not reached.
    pub unreachable: u32,
}

/// How far a rollout is: what anyone may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The wave that may start now, counted from 1; equal to `waves` at the end.
    pub wave: u32,
    /// How many waves there are.
    pub waves: u32,
    /// Why nobody new may start, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// All members.
    pub counts: Counts,
    /// Whether nobody waits or runs any more.
    pub finished: bool,
}

/// Why nobody new may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stopped {
    /// The operator asked for it.
    Paused,
    /// A wave has more failures than its budget.
    BudgetSpent,
}

impl Counts {
    /// Everybody.
    #[must_use]
    pub fn all(&self) -> u32 {
        self.waiting + self.running + self.done + self.failed + self.unreachable
    }

    pub(super) fn of(&mut self, state: State) -> &mut u32 {
        match state {
            State::Waiting => &mut self.waiting,
            State::Running => &mut self.running,
            State::Done => &mut self.done,
            State::Failed => &mut self.failed,
            State::Unreachable => &mut self.unreachable,
        }
    }
}
