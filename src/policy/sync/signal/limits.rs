//! Gates and limits of signals.

use super::{KeyState, KimActivity, ObservedRuntime, RuntimeState, Signaled, Target};
// The failure limit has the same type as the failure limit of rollouts.
use crate::sync::rollout::MaxFailures;

use super::Eligibility;

/// Number of selected Runtimes by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All selected Runtimes.
    pub total: u32,
    /// Runtimes that must be signaled with the current revision.
    pub waiting: u32,
    /// Runtimes whose signal with the current revision is not acknowledged, including suspended Runtimes, or was
    /// acknowledged so recently that KIM may not have copied the sources yet.
    pub progressing: u32,
    /// Of these, the Runtimes for which KIM acknowledged the signal.
    pub copying: u32,
    /// Runtimes for which KIM acknowledged the current revision, and Runtimes that need no signal for it.
    pub done: u32,
    /// Runtimes for which KIM acknowledged the current revision, and that are not Ready since.
    pub failed: u32,
    /// Unacknowledged signals of any revision. Signals of suspended Runtimes are not counted. Signals of an earlier
    /// revision on Runtimes that are not Ready are not counted either: KIM may have stopped its retries, and a later
    /// change must reach the other Runtimes.
    pub unacknowledged: u32,
    /// Runtimes in mode `direct`, which are not part of the other counts.
    pub direct: u32,
}

impl Counts {
    /// Counts a Runtime; returns whether it counts as failed.
    pub fn add(&mut self, target: &Target, runtime: &ObservedRuntime) -> bool {
        self.direct += u32::from(runtime.eligibility == Eligibility::Direct);
        if runtime.eligibility != Eligibility::Selected {
            return false;
        }
        self.total += 1;
        let is_signaled = runtime.signaled != Signaled::Never;
        let is_complete = target.keys.state(runtime.keys) == KeyState::Complete;
        let is_failed = runtime.state == RuntimeState::NotReady;
        let has_revision = target.has_revision(runtime);
        let is_unacknowledged = target.is_unacknowledged(runtime) && (has_revision || !is_failed);
        self.unacknowledged += u32::from(is_unacknowledged);
        let (state, failed) = match (has_revision, is_signaled) {
            (false, _) => (&mut self.waiting, false),
            (true, true) if is_complete => (&mut self.progressing, false),
            (true, true) if is_failed => (&mut self.failed, true),
            (true, true) if runtime.activity == KimActivity::Copying && !runtime.foreign => {
                self.copying += 1;
                (&mut self.progressing, false)
            }
            (true, _) => (&mut self.done, false),
        };
        *state += 1;
        failed
    }
}

/// Limits of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of unacknowledged signals.
    pub max_unacknowledged: u32,
    /// Maximum number of signaled Runtimes that are not Ready; a percentage refers to all selected Runtimes.
    pub max_failures: MaxFailures,
}

impl Default for Limits {
    /// Returns a limit of 50 unacknowledged signals, twice the number of KIM's workers, and of failures of 2 % of the Runtimes.
    fn default() -> Self {
        Self {
            max_unacknowledged: 50,
            max_failures: MaxFailures::Percent(2),
        }
    }
}

impl Limits {
    /// Returns the number of signaled Runtimes that may be not Ready.
    #[must_use]
    pub fn failures(&self, total: u32) -> u32 {
        self.max_failures.of(total)
    }
}

/// Gates that stop all signals, independently of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// An operator paused the signals.
    pub paused: bool,
    /// A source is invalid.
    pub invalid_source: bool,
    /// A source is missing, and its grace period has not ended.
    pub deletion_pending: bool,
}

/// Reason why no further Runtime is signaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum StopReason {
    /// An operator paused the signals.
    Paused,
    /// A source is invalid.
    InvalidSource,
    /// A source is missing, and its grace period has not ended.
    DeletionPending,
    /// Too many signaled Runtimes are not Ready.
    FailureLimitExceeded,
    /// Too many signals are unacknowledged.
    UnacknowledgedLimitReached,
}

impl StopReason {
    /// Returns the reason, if there is one. A limit is not a reason if no Runtime waits.
    #[must_use]
    pub fn of(gates: Gates, counts: &Counts, limits: &Limits) -> Option<Self> {
        let waits = counts.waiting > 0;
        let reasons = [
            (gates.paused, Self::Paused),
            (gates.invalid_source, Self::InvalidSource),
            (gates.deletion_pending, Self::DeletionPending),
            (
                waits && counts.failed > limits.failures(counts.total),
                Self::FailureLimitExceeded,
            ),
            (
                waits && counts.unacknowledged >= limits.max_unacknowledged,
                Self::UnacknowledgedLimitReached,
            ),
        ];
        let stopped = reasons.into_iter().find(|(holds, _)| *holds);
        stopped.map(|(_, reason)| reason)
    }

    /// Returns whether the counts of Runtimes are the reason.
    #[must_use]
    pub fn is_limit(self) -> bool {
        matches!(
            self,
            Self::FailureLimitExceeded | Self::UnacknowledgedLimitReached
        )
    }

    /// Returns the reason in conditions.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
