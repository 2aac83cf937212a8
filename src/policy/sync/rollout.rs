//! The rollout of one revision in one lane: its progress, and the runtimes that may start with the revision.
//!
//! Members are ordered by wave label, then by name. A step admits a prefix of that order. The next step follows when
//! every admitted member has settled and the number of failures is within the limit of the settings. A rollout gates
//! a *change*: a member without any revision gets the last completed revision at once.
//!
//! Invariants: only [`Rollout::access`] creates a [`WritePermit`], and never for a member whose step has not started.
//! It also creates none for a member that has not started while the rollout is paused or over its failure limit. A
//! step admits no more members than its size. The failure of a member counts also after its deletion. Each query and each
//! change costs a lookup; only the start of a step visits all members. Not in here: the clock, and the times at which a
//! runtime is reconciled ([`super::scheduler`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::content::Hash;

mod member;
mod membership;
mod settings;
mod steps;

pub use member::{Counts, Initial, LaneResult, Observation, Phase};
pub use settings::{MaxFailures, RUNNING_DEADLINE, Settings, Step, order};

use member::{Member, TimeLimits};

/// The name of a `Runtime` and of its `RuntimeBootstrapper`.
pub type Name = Arc<str>;

/// Permission to write one revision to a runtime in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePermit {
    revision: Hash,
}

impl WritePermit {
    /// Returns the revision that may be written.
    #[must_use]
    pub fn revision(self) -> Hash {
        self.revision
    }
}

/// Reason why no other member may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Stopped {
    /// An operator paused the rollout.
    Paused,
    /// More members failed than the settings allow.
    FailureLimitExceeded,
}

impl Stopped {
    /// Returns the reason in conditions and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The start of the rollout of another revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The revision.
    pub target: Hash,
    /// The last revision whose rollout was completed. It may be that of a rollback that is not complete.
    pub completed: Option<Hash>,
    /// The progress of an earlier leader, if it rolled out the same revision. Members that have the revision soak again in
    /// this case, because the earlier leader may not have observed them for long enough.
    pub resumed: Option<Resumed>,
    /// The time, counted from any fixed moment.
    pub now: Duration,
}

/// The progress of an earlier leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The step, 0 for the first one.
    pub step: usize,
    /// Whether the rollout was complete.
    pub is_complete: bool,
}

/// The progress of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current step, counted from 1.
    pub step: usize,
    /// Number of steps.
    pub steps: usize,
    /// Reason why no other member may start; `None` if members may start.
    pub stopped: Option<Stopped>,
    /// All members by phase.
    pub counts: Counts,
    /// Number of failed members that were deleted since, which count for the failure limit.
    pub deleted: u32,
    /// Whether the last step has settled.
    pub is_complete: bool,
}

/// The rollout of one lane.
#[derive(Clone, Debug)]
pub struct Rollout {
    settings: Settings,
    target: Option<Hash>,
    completed: Option<Hash>,
    is_complete: bool,
    is_paused: bool,
    /// Whether an earlier leader started the rollout.
    is_resumed: bool,
    step: usize,
    members: HashMap<Name, Member>,
    order: BTreeSet<(u32, Name)>,
    /// Members that the current step admits, by phase.
    admitted: Counts,
    /// All members, by phase.
    all: Counts,
    failed: BTreeSet<Name>,
    /// Members that failed with the target and were deleted since, also those that were created again and have not started.
    /// Otherwise the deletion of a failed member would start others.
    deleted: BTreeSet<Name>,
    admissions: u64,
}

impl Rollout {
    /// Creates a rollout without members and without a revision, which permits nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            target: None,
            completed: None,
            is_complete: false,
            is_paused: false,
            is_resumed: false,
            step: 0,
            members: HashMap::new(),
            order: BTreeSet::new(),
            admitted: Counts::default(),
            admissions: 0,
            all: Counts::default(),
            failed: BTreeSet::new(),
            deleted: BTreeSet::new(),
        }
    }

    /// Starts or resumes the rollout of a revision. `initial` returns the known state of each member.
    pub fn begin(&mut self, begin: Begin, initial: impl Fn(&Name) -> Initial) {
        let Begin {
            target,
            completed,
            resumed,
            now,
        } = begin;
        self.target = Some(target);
        self.completed = completed;
        self.is_resumed = resumed.is_some();
        self.is_complete = resumed.is_some_and(|it| it.is_complete);
        let soaks = self.is_resumed && !self.is_complete && !self.settings.soak.is_zero();
        self.admitted = Counts::default();
        self.all = Counts::default();
        self.failed.clear();
        if resumed.is_none() {
            self.deleted.clear();
        }
        for (name, member) in &mut self.members {
            member.reset(initial(name), target, resumed.map(|_| now));
            if soaks && member.phase == Phase::Done {
                member.phase = Phase::Soaking { since: now };
            }
            *self.all.of(member.phase) += 1;
            if member.phase.is_failed() {
                self.failed.insert(Arc::clone(name));
            }
            if !member.phase.is_startable() {
                self.deleted.remove(name);
            }
        }
        let step = resumed.map_or(0, |it| it.step);
        self.step = step.min(self.settings.count() - 1);
        self.admit();
        self.proceed();
    }

    /// Pauses or continues the rollout. Members that have started are finished in any case. A rollout that continues does not count
    /// the failures of deleted members: the operator has seen them.
    pub fn pause(&mut self, is_paused: bool) {
        if self.is_paused && !is_paused {
            self.deleted.clear();
        }
        self.is_paused = is_paused;
        self.proceed();
    }

    /// Returns the current permission of a member; `None` if nothing may be written.
    #[must_use]
    pub fn access(&self, name: &str) -> Option<WritePermit> {
        let (member, target) = (self.members.get(name)?, self.target?);
        let revision = if !member.phase.is_startable() || self.may_start(member) {
            target
        } else {
            self.fallback(member)?
        };
        Some(WritePermit { revision })
    }

    fn may_start(&self, member: &Member) -> bool {
        self.is_complete || (member.is_admitted && self.stopped().is_none())
    }

    /// Returns the revision of a member whose step has not started. A new member gets the last completed revision,
    /// and a member that has this revision keeps it. If older revisions cannot be written again, a new member gets
    /// the current revision.
    fn fallback(&self, member: &Member) -> Option<Hash> {
        match member.revision {
            None if self.settings.keeps_revisions => self.completed,
            None => self.target,
            Some(revision) => self.completed.filter(|it| {
                self.settings.keeps_revisions && *it == revision && Some(*it) != self.target
            }),
        }
    }

    /// Starts a member that may start, and returns its permission. An unreachable member remains unreachable until a
    /// reconcile reports on it, so that it does not delay a step. `now` counts from any fixed moment.
    pub fn start(&mut self, name: &str, now: Duration) -> Option<WritePermit> {
        let permit = self.access(name)?;
        let member = self.members.get(name)?;
        if member.phase == Phase::Waiting && self.may_start(member) {
            let (since, wrote) = (now, false);
            self.put(name, Phase::Progressing { since, wrote });
        }
        Some(permit)
    }

    /// Records the observation of a member by a reconcile. `now` counts from the same moment as in [`Self::start`].
    pub fn note(&mut self, name: &str, report: Observation, now: Duration) {
        let Observation {
            permit,
            result,
            wrote,
        } = report;
        let (Some(member), Some(target)) = (self.members.get(name), self.target) else {
            return;
        };
        let (phase, may_start) = (member.phase, self.may_start(member));
        let was_tried = wrote || matches!(result, LaneResult::Done | LaneResult::Failed);
        let is_target = permit.is_some_and(|it| it.revision == target);
        let next = if phase.is_startable() && !(is_target && (may_start || was_tried)) {
            if result == LaneResult::Unreachable {
                Phase::Unreachable
            } else {
                Phase::Waiting
            }
        } else if is_target || result == LaneResult::Unreachable {
            let soak = (!self.is_complete).then_some(self.settings.soak);
            let limits = TimeLimits {
                soak: soak.unwrap_or_default(),
                deadline: self.settings.deadline,
            };
            phase.after(report, now, limits)
        } else if wrote && permit.is_some() {
            // The reconcile started before the rollout, so the objects that it wrote must be replaced.
            Phase::Progressing { since: now, wrote }
        } else {
            return;
        };
        if let (Some(permit), Some(member)) = (permit, self.members.get_mut(name))
            && was_tried
        {
            member.revision = Some(permit.revision);
        }
        self.put(name, next);
    }

    fn put(&mut self, name: &str, phase: Phase) {
        let Some((name, _)) = self.members.get_key_value(name) else {
            return;
        };
        let name = Arc::clone(name);
        let Some(member) = self.members.get_mut(&name) else {
            return;
        };
        let (before, was_admitted) = (member.phase, member.is_admitted);
        member.phase = phase;
        member.is_admitted = was_admitted && member.takes_place(self.target);
        let is_admitted = member.is_admitted;
        self.change_counts(was_admitted, |it| *it.of(before) -= 1);
        self.change_counts(is_admitted, |it| *it.of(phase) += 1);
        self.note_failure(&name, phase);
        if was_admitted != is_admitted || before == Phase::Unreachable {
            self.admit();
        }
        if std::mem::discriminant(&before) != std::mem::discriminant(&phase) {
            self.proceed();
        }
    }

    /// Records whether a member in this phase has failed.
    fn note_failure(&mut self, name: &Name, phase: Phase) {
        if !phase.is_startable() {
            self.deleted.remove(name);
        }
        if phase.is_failed() {
            self.failed.insert(Arc::clone(name));
        } else {
            self.failed.remove(name);
        }
    }

    /// Returns the phase of a member.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<Phase> {
        self.members.get(name).map(|it| it.phase)
    }

    /// Returns the revision that was last written to a member, or that the member had when it joined.
    #[must_use]
    pub fn revision(&self, name: &str) -> Option<Hash> {
        self.members.get(name).and_then(|it| it.revision)
    }

    /// Returns the revision that is rolled out.
    #[must_use]
    pub fn target(&self) -> Option<Hash> {
        self.target
    }

    /// Returns the last revision whose rollout was completed.
    #[must_use]
    pub fn completed(&self) -> Option<Hash> {
        self.completed
    }

    /// Returns the time for which a member is observed after it has the revision.
    #[must_use]
    pub fn soak(&self) -> Duration {
        self.settings.soak
    }

    /// Returns the number of admissions of members to steps so far. When the number increases, other members may start.
    #[must_use]
    pub fn admissions(&self) -> u64 {
        self.admissions
    }

    /// Returns whether no step follows.
    #[must_use]
    pub fn is_last_step(&self) -> bool {
        self.is_complete || self.step + 1 >= self.settings.count()
    }

    /// Returns the progress of the rollout.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            step: self.step + 1,
            steps: self.settings.count(),
            stopped: self.stopped(),
            counts: self.all,
            deleted: count(self.deleted.len()),
            is_complete: self.is_complete,
        }
    }

    /// Returns the names of failed members: first those that were deleted since, each part in alphabetical order.
    pub fn failed(&self) -> impl Iterator<Item = &Name> {
        self.deleted.iter().chain(&self.failed)
    }

    /// Returns whether a member may start with the revision and has not started.
    #[must_use]
    pub fn is_startable(&self, name: &str) -> bool {
        let member = self.members.get(name);
        member.is_some_and(|it| it.phase == Phase::Waiting && self.may_start(it))
    }

    /// Returns the members that may start with the revision and have not started.
    pub fn startable(&self) -> impl Iterator<Item = &Name> {
        let names = self.order.iter().map(|(_, name)| name);
        names.filter(|it| self.is_startable(it))
    }

    /// Changes the counts that contain a member.
    fn change_counts(&mut self, is_admitted: bool, change: impl Fn(&mut Counts)) {
        change(&mut self.all);
        if is_admitted {
            change(&mut self.admitted);
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
