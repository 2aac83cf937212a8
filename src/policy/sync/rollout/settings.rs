//! Steps and limits of a rollout.

use std::time::Duration;

/// The steps, their soak duration and the limits of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The steps. Unless the last step is for all members, another step for all members follows.
    pub steps: Vec<Step>,
    /// Time for which a member is observed after it has the revision. The step of the member waits for this time.
    pub soak: Duration,
    /// Failures after which no other member starts; `None` for no limit.
    pub max_failures: Option<MaxFailures>,
    /// Time after which a member that started and is not complete has failed, for any cause.
    pub deadline: Duration,
    /// Whether an older revision can be written again.
    pub keeps_revisions: bool,
}

/// Usual value of [`Settings::deadline`]: the ten minutes after which a Deployment exceeds its progress deadline by
/// default, and five more minutes, which may be the interval between two reconciles.
pub const RUNNING_DEADLINE: Duration = Duration::from_mins(15);

/// Members that have started when a step is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A number of members.
    Count(u32),
    /// A percentage of all members, rounded up.
    Percent(u8),
}

/// The number of failures that a rollout may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxFailures {
    /// A number of members.
    Count(u32),
    /// A percentage of the members that the current step admits, rounded down.
    Percent(u8),
}

impl Settings {
    /// Creates settings with these steps, and without limits.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Self {
            steps,
            soak: Duration::ZERO,
            max_failures: None,
            deadline: RUNNING_DEADLINE,
            keeps_revisions: false,
        }
    }

    /// Returns the number of steps, of which the last one is for all members.
    pub(super) fn count(&self) -> usize {
        self.steps.len() + usize::from(self.steps.last() != Some(&Step::Percent(100)))
    }

    /// Returns the number of members that a step admits.
    pub(super) fn size(&self, step: usize, all: u32) -> u32 {
        match self.steps.get(step) {
            Some(Step::Count(count)) => (*count).min(all),
            Some(Step::Percent(percent)) => share(all, *percent, 99),
            None => all,
        }
    }
}

impl MaxFailures {
    /// Returns the limit for a number of members.
    pub(in crate::sync) fn of(self, members: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => share(members, percent, 0),
        }
    }
}

fn share(all: u32, percent: u8, round: u64) -> u32 {
    let share = (u64::from(all) * u64::from(percent) + round) / 100;
    u32::try_from(share).unwrap_or(u32::MAX).min(all)
}

/// Returns the order of a Runtime by its wave label. Without a label, or with a label that is not a number, the
/// Runtime is last.
#[must_use]
pub fn order(label: Option<&str>) -> u32 {
    label
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u32::MAX)
}
