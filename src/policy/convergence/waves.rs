//! Who may start with a new version: wave after wave, and no further once too many failed.
//!
//! A rollout knows every member's wave from its beginning. Each question and each change costs a look-up, so ten thousand
//! members are no burden.
//! Invariants: no wave is larger than the settings say; nobody starts before the waves before are settled, nor after the
//! budget is spent or while paused. A member that may not start becomes neither [`State::Running`] nor [`State::Failed`],
//! whoever asks for it: members in these states may be written to. Unreachable members are no failures and hold up nobody.
//! Source: product.md §2 "Safe rollout".

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

mod progress;

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
}

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
    /// Not reached. Once it is, it is to be [`State::Waiting`].
    Unreachable,
}

/// One rollout of one version.
#[derive(Clone, Debug)]
pub struct Rollout {
    settings: Settings,
    members: BTreeMap<String, Member>,
    failed: BTreeSet<String>,
    waves: Vec<Wave>,
    current: usize,
    /// How many waves have more failures than their budget.
    spent: usize,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    wave: usize,
    state: State,
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
                .filter(|wave| rollout.waves[*wave].order == order && rollout.has_room(*wave))
                .unwrap_or_else(|| rollout.open(order));
            rollout.add(name, wave);
        }
        rollout
    }

    /// Takes a member in that came later: into the first open wave of its order that has room, else into a new last one.
    /// A known member stays where it is.
    pub fn join(&mut self, name: &str, order: u32) {
        if self.members.contains_key(name) {
            return;
        }
        let wave = (self.current..self.waves.len())
            .find(|wave| self.waves[*wave].order == order && self.has_room(*wave))
            .unwrap_or_else(|| self.open(order));
        self.add(name.to_owned(), wave);
        self.proceed();
    }

    /// Forgets a member that is gone.
    pub fn leave(&mut self, name: &str) {
        if let Some(member) = self.members.remove(name) {
            self.failed.remove(name);
            *self.waves[member.wave].counts.of(member.state) -= 1;
            self.recount(member.wave);
            self.proceed();
        }
    }

    /// Lets a member that waits begin, and says whether it may work on the version now. An unreachable one stays
    /// unreachable until something is known about it, and so holds up no wave.
    pub fn start(&mut self, name: &str) -> bool {
        let may_start = self.may_start(name);
        if may_start && self.state(name) == Some(State::Waiting) {
            self.put(name, State::Running);
        }
        may_start
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

    /// Members that an earlier leader of the same rollout saw fail: those that wait here have begun there, and count
    /// against the budget until they arrive. Of the others something newer is known.
    pub fn recall<'a>(&mut self, failed: impl IntoIterator<Item = &'a str>) {
        for name in failed {
            if self.state(name) == Some(State::Waiting) {
                self.put(name, State::Failed);
            }
        }
    }

    /// Members that failed, by name.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(String::as_str)
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

    fn has_room(&self, wave: usize) -> bool {
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
