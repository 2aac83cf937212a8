//! One runtime in the rollout of one lane, and its transitions.

use std::time::Duration;

use super::{Hash, WritePermit};

/// The phase of a member in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The member has not started.
    Waiting,
    /// The member has started, and is not complete.
    Progressing {
        /// Time of the start.
        since: Duration,
        /// Whether an object was written since.
        wrote: bool,
    },
    /// The member is complete, and observed until the soak duration has passed.
    Soaking {
        /// Time at which the member was complete.
        since: Duration,
    },
    /// The member is complete.
    Done,
    /// The member has started, and failed. It is retried, and may become complete.
    Failed {
        /// Time of the start.
        since: Duration,
        /// Whether an object was written since.
        wrote: bool,
    },
    /// The member was unreachable before anything was written to it.
    Unreachable,
}

/// The result of a reconcile in one lane of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneResult {
    /// The runtime has the revision.
    Done,
    /// All objects that can be written now are written; the other objects need time.
    Progressing,
    /// The reconcile ended early for a temporary reason, such as a conflict or a throttled request.
    Interrupted,
    /// A write was rejected, or the written objects do not become ready.
    Failed,
    /// The API server was not reached, or must not be used.
    Unreachable,
    /// The runtime was observed, and nothing was written because it was not permitted.
    Deferred,
}

/// The result of a reconcile for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The permission of the reconcile.
    pub permit: Option<WritePermit>,
    /// The result of the reconcile in the lane.
    pub result: LaneResult,
    /// Whether the reconcile tried to write.
    pub wrote: bool,
}

/// Time limits of the phases of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    pub(super) soak: Duration,
    pub(super) deadline: Duration,
}

/// The known state of a member when it joins or when a rollout starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Initial {
    /// The revision that was last written to the member.
    pub revision: Option<Hash>,
    /// Whether the member has that revision completely.
    pub is_complete: bool,
    /// Whether the last reconcile could not reach the member.
    pub is_unreachable: bool,
    /// Whether a write of that revision was rejected, or did not become ready.
    pub is_failed: bool,
}

/// Members by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`Phase::Waiting`].
    pub waiting: u32,
    /// See [`Phase::Progressing`].
    pub progressing: u32,
    /// See [`Phase::Soaking`].
    pub soaking: u32,
    /// See [`Phase::Done`].
    pub done: u32,
    /// See [`Phase::Failed`].
    pub failed: u32,
    /// See [`Phase::Unreachable`].
    pub unreachable: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) order: u32,
    pub(super) phase: Phase,
    pub(super) revision: Option<Hash>,
    pub(super) is_admitted: bool,
}

impl Member {
    pub(super) fn new(order: u32) -> Self {
        Self {
            order,
            phase: Phase::Waiting,
            revision: None,
            is_admitted: false,
        }
    }

    /// Returns whether the member counts in a step. An unreachable member with another revision shows nothing of the target.
    pub(super) fn takes_place(&self, target: Option<Hash>) -> bool {
        self.phase != Phase::Unreachable || self.revision == target
    }

    /// Resets the member for a target, with its known state. `resumed` is the time at which this leader resumed the rollout,
    /// if an earlier leader started it. Otherwise a member that has the target already was not changed by this rollout, so
    /// that its failure shows nothing.
    pub(super) fn reset(&mut self, initial: Initial, target: Hash, resumed: Option<Duration>) {
        self.is_admitted = false;
        self.revision = initial.revision;
        let has_target = initial.revision == Some(target);
        let started = resumed.filter(|_| has_target);
        // A revision that was not complete when the runtime became unreachable may be the cause.
        let is_lost = initial.is_unreachable && !initial.is_complete;
        let wrote = true;
        self.phase = match started {
            Some(since) if is_lost || initial.is_failed => Phase::Failed { since, wrote },
            _ if initial.is_unreachable => Phase::Unreachable,
            _ if has_target && initial.is_complete && !initial.is_failed => Phase::Done,
            Some(since) => Phase::Progressing { since, wrote },
            None => Phase::Waiting,
        };
    }
}

impl Phase {
    /// Returns whether a member in this phase has not started.
    #[must_use]
    pub fn is_startable(self) -> bool {
        matches!(self, Self::Waiting | Self::Unreachable)
    }

    /// Returns whether the phase is [`Self::Failed`].
    #[must_use]
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Returns the phase after a reconcile that was permitted to write the revision.
    pub(super) fn after(self, report: Observation, now: Duration, limits: TimeLimits) -> Self {
        let Observation { result, wrote, .. } = report;
        let TimeLimits { soak, deadline } = limits;
        let (since, wrote_before) = match self {
            Self::Progressing { since, wrote } | Self::Failed { since, wrote } => (since, wrote),
            Self::Soaking { .. } => (now, true),
            Self::Waiting | Self::Done | Self::Unreachable => (now, false),
        };
        let wrote = wrote || wrote_before;
        let failed = Self::Failed { since, wrote };
        let progressing = Self::Progressing { since, wrote };
        let is_late = now.saturating_sub(since) >= deadline;
        match (result, self) {
            (LaneResult::Done, Self::Soaking { since }) if now.saturating_sub(since) < soak => self,
            (LaneResult::Done, Self::Soaking { .. }) => Self::Done,
            (LaneResult::Done, _) if wrote && !soak.is_zero() => Self::Soaking { since: now },
            (LaneResult::Done, _) => Self::Done,
            // Readiness is lost during the soak. A failure counts until the member is complete.
            (LaneResult::Failed, _)
            | (LaneResult::Progressing, Self::Soaking { .. } | Self::Failed { .. }) => failed,
            // The written objects may be the cause.
            (LaneResult::Unreachable, _) if wrote => failed,
            (LaneResult::Unreachable, _) => Self::Unreachable,
            (LaneResult::Deferred, Self::Unreachable) => Self::Waiting,
            (LaneResult::Interrupted, Self::Soaking { since })
                if now.saturating_sub(since) >= soak + deadline =>
            {
                Self::Failed { since, wrote }
            }
            (LaneResult::Deferred, _)
            | (LaneResult::Interrupted, Self::Failed { .. } | Self::Soaking { .. }) => self,
            (LaneResult::Interrupted, Self::Waiting | Self::Unreachable | Self::Done) if !wrote => {
                self
            }
            (LaneResult::Progressing | LaneResult::Interrupted, _) if is_late => failed,
            (LaneResult::Progressing | LaneResult::Interrupted, _) => progressing,
        }
    }
}

impl Counts {
    /// Returns the number of all members.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.unsettled() + self.done + self.failed + self.unreachable
    }

    /// Returns the number of members that the step waits for.
    pub(super) fn unsettled(&self) -> u32 {
        self.waiting + self.progressing + self.soaking
    }

    pub(super) fn of(&mut self, phase: Phase) -> &mut u32 {
        match phase {
            Phase::Waiting => &mut self.waiting,
            Phase::Progressing { .. } => &mut self.progressing,
            Phase::Soaking { .. } => &mut self.soaking,
            Phase::Done => &mut self.done,
            Phase::Failed { .. } => &mut self.failed,
            Phase::Unreachable => &mut self.unreachable,
        }
    }
}
