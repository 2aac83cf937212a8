//! Who may start with a new version: wave after wave, and no further once too many failed.
//!
//! A rollout knows every member's wave from its beginning. Each question and each change costs a look-up, so ten thousand
//! members are no burden.
//! Invariants: no wave is larger than the settings say; nobody starts before the waves before are settled, nor after the
//! budget is spent or while paused. A member that may not start becomes neither [`State::Running`] nor [`State::Failed`],
//! whoever asks for it: members in these states may be written to. Members that were unreachable before they were written to
//! are not failures and delay no wave; afterwards they are, until they arrive, also under the next leader. No member runs
//! permanently. Deliberately absent: the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

mod progress;
mod recall;

pub use progress::{Counts, Progress, Stopped};

/// How a version is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Members of a wave at most; `None`: as many as have the same order.
    pub size: Option<NonZeroU32>,
    /// Failures that a wave may have.
    pub failure_budget: Budget,
    /// Nobody starts.
    pub paused: bool,
    /// How long a member may be [`State::Running`] before it counts as failed: something that is not its own fault may
    /// keep it there for ever, and every later wave with it.
    pub deadline: Duration,
}

/// The usual [`Settings::deadline`]: the ten minutes after which Kubernetes says by default that a Deployment makes no
/// progress, and five more, because that is how far apart attempts may be.
pub const RUNNING_DEADLINE: Duration = Duration::from_mins(15);

/// Failures that a wave may have before the rollout stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// So many.
    Count(u32),
    /// So many of a hundred members of the wave, rounded down.
    Percent(u8),
}

/// Where a member is on its way to the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not begun.
    Waiting,
    /// Begun.
    Running,
    /// Arrived.
    Done,
    /// Tried, and failed; it may try again whatever the others do, since it has begun.
    Failed,
    /// Not reached, and nothing was written to it. Once it is, it is to be [`State::Waiting`].
    Unreachable,
}

/// What one reconcile says about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileResult {
    /// It holds the version.
    Done,
    /// Everything was written that can be written now; the rest needs time.
    Progressing,
    /// The reconcile ended early for a reason that passes by itself, such as a conflict or a request to slow down.
    Interrupted,
    /// Something was refused, or did not come up.
    Failed,
    /// Its API server was not reached, or may not be used.
    Unreachable,
    /// It was reached, and nothing was written because the gate is closed.
    Withheld,
}

/// One rollout of one version.
#[derive(Clone, Debug)]
pub struct Rollout {
    settings: Settings,
    members: BTreeMap<String, Member>,
    failed: BTreeSet<String>,
    /// Those to which something was written and that have not arrived since.
    written: BTreeSet<String>,
    waves: Vec<Wave>,
    current: usize,
    /// How many waves have more failures than their budget.
    spent: usize,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    wave: usize,
    state: State,
    /// Since when it is Running, also where it failed meanwhile.
    since: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wave {
    order: u32,
    counts: Counts,
    spent: bool,
}

impl Rollout {
    /// Begins a rollout: members with their order (smaller first); within an order they go by name. All are waiting.
    #[must_use]
    pub fn begin(settings: Settings, members: impl IntoIterator<Item = (String, u32)>) -> Self {
        let mut sorted: Vec<(u32, String)> = members
            .into_iter()
            .map(|(name, order)| (order, name))
            .collect();
        sorted.sort_unstable();
        let mut rollout = Self {
            settings,
            members: BTreeMap::new(),
            failed: BTreeSet::new(),
            written: BTreeSet::new(),
            waves: Vec::new(),
            current: 0,
            spent: 0,
        };
        for (order, name) in sorted {
            if rollout.members.contains_key(&name) {
                continue;
            }
            let last = rollout.waves.len().checked_sub(1);
            let wave = last
                .filter(|wave| rollout.waves[*wave].order == order && rollout.has_capacity(*wave))
                .unwrap_or_else(|| rollout.open(order));
            rollout.add(name, wave);
        }
        rollout
    }

    /// Takes a member in that came later: into the first open wave of its order that has capacity, else into a new last one.
    /// A known member stays where it is.
    pub fn join(&mut self, name: &str, order: u32) {
        if self.members.contains_key(name) {
            return;
        }
        let wave = (self.current..self.waves.len())
            .find(|wave| self.waves[*wave].order == order && self.has_capacity(*wave))
            .unwrap_or_else(|| self.open(order));
        self.add(name.to_owned(), wave);
        self.proceed();
    }

    /// Forgets a member that is gone.
    pub fn leave(&mut self, name: &str) {
        if let Some(member) = self.members.remove(name) {
            self.failed.remove(name);
            self.written.remove(name);
            *self.waves[member.wave].counts.of(member.state) -= 1;
            self.recount(member.wave);
            self.proceed();
        }
    }

    /// Lets a member that waits begin, and says whether it may work on the version now. An unreachable one stays
    /// unreachable until something is known about it, and so holds up no wave. `now` counts from any fixed moment.
    pub fn start(&mut self, name: &str, now: Duration) -> bool {
        let may_start = self.may_start(name);
        if may_start && self.state(name) == Some(State::Waiting) {
            self.put(name, State::Running);
            self.mark(name, false, now);
        }
        may_start
    }

    /// Notes what a reconcile says about a member, and whether it tried to write something; an unknown member is passed
    /// over. `now` counts from the same moment as in [`Self::start`].
    pub fn note(&mut self, name: &str, result: ReconcileResult, wrote: bool, now: Duration) {
        let Some(&member) = self.members.get(name) else {
            return;
        };
        let is_late = member
            .since
            .is_some_and(|since| now.saturating_sub(since) >= self.settings.deadline);
        let state = match (result, member.state) {
            (ReconcileResult::Done, _) => State::Done,
            (ReconcileResult::Failed, _) => State::Failed,
            // What was written may be why.
            (ReconcileResult::Unreachable, _) if self.written.contains(name) => State::Failed,
            (ReconcileResult::Unreachable, _) => State::Unreachable,
            (ReconcileResult::Withheld, State::Unreachable) => State::Waiting,
            // Nothing new is known.
            (ReconcileResult::Withheld, _) | (ReconcileResult::Interrupted, State::Failed) => {
                return;
            }
            (ReconcileResult::Interrupted, State::Unreachable | State::Done) if !wrote => return,
            (ReconcileResult::Interrupted | ReconcileResult::Progressing, _) if is_late => {
                State::Failed
            }
            (ReconcileResult::Interrupted | ReconcileResult::Progressing, _) => State::Running,
        };
        let is_refused = matches!(state, State::Running | State::Failed) && !self.may_start(name);
        if is_refused && member.state == State::Unreachable {
            self.put(name, State::Waiting);
        } else {
            self.set(name, state);
        }
        self.mark(name, wrote, now);
    }

    fn mark(&mut self, name: &str, wrote: bool, now: Duration) {
        if let Some(member) = self.members.get_mut(name)
            && matches!(member.state, State::Running | State::Failed)
        {
            member.since.get_or_insert(now);
            if wrote {
                self.written.insert(name.to_owned());
            }
        }
    }

    /// Notes where a member is; an unknown one is passed over. A member that may not start stays where it is instead of
    /// becoming [`State::Running`] or [`State::Failed`].
    pub fn set(&mut self, name: &str, state: State) {
        if matches!(state, State::Running | State::Failed) && !self.may_start(name) {
            return;
        }
        self.put(name, state);
    }

    fn put(&mut self, name: &str, state: State) {
        if let Some(member) = self.members.get_mut(name) {
            let counts = &mut self.waves[member.wave].counts;
            *counts.of(member.state) -= 1;
            *counts.of(state) += 1;
            member.state = state;
            if !matches!(state, State::Running | State::Failed) {
                member.since = None;
                self.written.remove(name);
            }
            let wave = member.wave;
            if state == State::Failed {
                self.failed.insert(name.to_owned());
            } else {
                self.failed.remove(name);
            }
            self.recount(wave);
            self.proceed();
        }
    }

    /// Other settings from now on. The waves that there are stay as they are; a new size holds for who joins.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
        (0..self.waves.len()).for_each(|wave| self.recount(wave));
        self.proceed();
    }

    /// Where a member is.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<State> {
        self.members.get(name).map(|member| member.state)
    }

    /// Whether a member may work on the version now. Who has begun may go on and try again.
    #[must_use]
    pub fn may_start(&self, name: &str) -> bool {
        self.members
            .get(name)
            .is_some_and(|member| match member.state {
                State::Running | State::Done | State::Failed => true,
                State::Waiting | State::Unreachable => {
                    member.wave <= self.current && self.stopped().is_none()
                }
            })
    }

    /// How far the rollout is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut counts = Counts::default();
        for wave in &self.waves {
            counts.waiting += wave.counts.waiting;
            counts.running += wave.counts.running;
            counts.done += wave.counts.done;
            counts.failed += wave.counts.failed;
            counts.unreachable += wave.counts.unreachable;
        }
        Progress {
            wave: count(self.current + 1).min(count(self.waves.len())),
            waves: count(self.waves.len()),
            stopped: self.stopped(),
            counts,
            finished: counts.waiting + counts.running == 0,
        }
    }

    fn stopped(&self) -> Option<Stopped> {
        if self.settings.paused {
            return Some(Stopped::Paused);
        }
        (self.spent > 0).then_some(Stopped::BudgetSpent)
    }

    fn recount(&mut self, wave: usize) {
        let spent = self.is_over_budget(&self.waves[wave]);
        let before = std::mem::replace(&mut self.waves[wave].spent, spent);
        self.spent += usize::from(spent);
        self.spent -= usize::from(before);
    }

    fn is_over_budget(&self, wave: &Wave) -> bool {
        let allowed = match self.settings.failure_budget {
            Budget::Count(count) => u64::from(count),
            Budget::Percent(percent) => u64::from(wave.counts.all()) * u64::from(percent) / 100,
        };
        u64::from(wave.counts.failed) > allowed
    }

    /// The next wave's turn comes when everybody of this one has settled within the budget.
    fn proceed(&mut self) {
        while self.current + 1 < self.waves.len() {
            let wave = &self.waves[self.current];
            if wave.counts.waiting + wave.counts.running > 0 || wave.spent {
                return;
            }
            self.current += 1;
        }
    }

    fn has_capacity(&self, wave: usize) -> bool {
        self.settings
            .size
            .is_none_or(|size| self.waves[wave].counts.all() < size.get())
    }

    fn open(&mut self, order: u32) -> usize {
        self.waves.push(Wave {
            order,
            ..Wave::default()
        });
        self.waves.len() - 1
    }

    fn add(&mut self, name: String, wave: usize) {
        let member = Member {
            wave,
            state: State::Waiting,
            since: None,
        };
        self.members.insert(name, member);
        self.waves[wave].counts.waiting += 1;
        self.recount(wave);
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The order that a Runtime's label gives; without one, or with one that is no number, it goes last.
#[must_use]
pub fn order(label: Option<&str>) -> u32 {
    label
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u32::MAX)
}
