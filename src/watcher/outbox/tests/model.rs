//! Compares random runs of a watcher, with random ends, with a model of the events that must reach KCP.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::disk::FakeDisk;
use super::fixture::{Fixture, Settings, manager, settings};
use crate::outbox::{FsyncPolicy, Item, Limits, Stored};

const MANAGERS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    Put {
        manager: usize,
        object: u32,
    },
    Take {
        limit: usize,
    },
    Deliver {
        index: usize,
    },
    Fail {
        index: usize,
        seconds: u64,
    },
    Pass {
        seconds: u64,
    },
    KeepUp,
    Compact,
    Heartbeat {
        manager: usize,
    },
    /// The disk has this much additional space, or no limit.
    Limit {
        more: Option<usize>,
    },
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Between two steps.
    Killed,
    /// After this number of written bytes, including the bytes of its start.
    Dies { life: u64 },
    /// By a power failure. `kept` bytes of each file survive although they were not synced.
    PowerLost { kept: usize },
}

#[derive(Clone, Debug)]
struct Life {
    steps: Vec<Step>,
    end: End,
}

fn steps(with_limits: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..MANAGERS.len(), 0_u32..5).prop_map(|(manager, object)| Step::Put { manager, object }),
        3 => (1_usize..5).prop_map(|limit| Step::Take { limit }),
        5 => any::<usize>().prop_map(|index| Step::Deliver { index }),
        1 => (any::<usize>(), 0_u64..9).prop_map(|(index, seconds)| Step::Fail { index, seconds }),
        2 => (0_u64..6).prop_map(|seconds| Step::Pass { seconds }),
        1 => Just(Step::KeepUp),
        1 => Just(Step::Compact),
        1 => (0..MANAGERS.len()).prop_map(|manager| Step::Heartbeat { manager }),
        1 => prop::option::of(0_usize..200).prop_map(move |more| match more {
            more if with_limits => Step::Limit { more },
            _ => Step::KeepUp,
        }),
    ];
    prop::collection::vec(step, 0..40)
}

fn lives(end: impl Strategy<Value = End>, with_limits: bool) -> impl Strategy<Value = Vec<Life>> {
    let life = (steps(with_limits), end).prop_map(|(steps, end)| Life { steps, end });
    prop::collection::vec(life, 1..6)
}

/// The events that must reach KCP: the object, and the time of its change.
#[derive(Default)]
struct Model {
    owed: HashMap<(usize, u32), Instant>,
    /// Managers that were marked to need a resync.
    marked: HashSet<usize>,
    numbers: HashMap<usize, u64>,
}

struct Run {
    fixture: Fixture,
    model: Model,
    under_way: Vec<(Item, Instant)>,
    /// Whether events may be lost if their manager is marked.
    lossy: bool,
}

impl Run {
    fn new(settings: Settings, lossy: bool) -> Self {
        Self {
            fixture: Fixture::with(FakeDisk::default(), settings),
            model: Model::default(),
            under_way: Vec::new(),
            lossy,
        }
    }

    fn live(&mut self, life: &Life) {
        for step in &life.steps {
            self.step(step);
            self.fixture.outbox.assert_pending_is_complete();
            if self.fixture.disk.content().is_dead() {
                break;
            }
        }
        if let End::PowerLost { kept } = life.end {
            self.fixture.keep_up();
            self.fixture.disk.content().lose_power(kept);
        }
    }

    /// Starts the next process. It may die during its start, and so may the processes after it, until the disk works.
    fn begin(&mut self, end: Option<End>) {
        let life = match end {
            Some(End::Dies { life }) => Some(life),
            _ => None,
        };
        self.fixture.restart(life);
        self.under_way.clear();
        self.model.numbers.clear();
        for (index, name) in MANAGERS.iter().enumerate() {
            let report = self
                .fixture
                .outbox
                .manager_report(&manager(name), self.fixture.now);
            if report.resync.is_some() {
                self.model.marked.insert(index);
                if self.lossy {
                    self.model.owed.retain(|(manager, _), _| *manager != index);
                }
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.fixture.now;
        match *step {
            Step::Put { manager, object } => self.put(manager, object),
            Step::Take { limit } => self.take(limit),
            Step::Deliver { index } => self.deliver(index),
            Step::Fail { index, seconds } => {
                if let Some((item, _)) = self.pick(index) {
                    self.fixture
                        .outbox
                        .failed(&item, now + Duration::from_secs(seconds));
                }
            }
            Step::Pass { seconds } => self.fixture.pass(seconds),
            Step::KeepUp => self.fixture.keep_up(),
            Step::Compact => self.fixture.compact(),
            Step::Heartbeat { manager: index } => {
                let manager = manager(MANAGERS[index]);
                let report = self.fixture.outbox.manager_report(&manager, now);
                if let Some(mark) = report.resync {
                    self.fixture.outbox.resync_reported(&manager, mark, now);
                }
            }
            Step::Limit { more } => {
                let mut content = self.fixture.disk.content();
                let used = content.used();
                content.limit = more.map(|more| used + more);
            }
        }
    }

    fn put(&mut self, index: usize, object: u32) {
        let stored = self.fixture.put(MANAGERS[index], object);
        if self.fixture.disk.content().is_dead() {
            // The put had no result. Earlier events must still reach KCP.
            return;
        }
        if stored == Stored::Full {
            let report = self
                .fixture
                .outbox
                .manager_report(&manager(MANAGERS[index]), self.fixture.now);
            assert!(report.resync.is_some());
        } else {
            self.model.owed.insert((index, object), self.fixture.now);
        }
    }

    fn take(&mut self, limit: usize) {
        for item in self.fixture.outbox.take(self.fixture.now, limit) {
            let index = index_of(&item);
            let same = |(other, _): &(Item, Instant)| {
                other.event == item.event && other.manager == item.manager
            };
            assert!(!self.under_way.iter().any(same), "twice under way");
            let last = self.model.numbers.entry(index).or_default();
            if item.sequence > *last {
                assert_eq!(item.sequence, *last + 1, "a gap");
                *last = item.sequence;
            } else {
                assert!(item.attempt > 0, "a number that was given already");
            }
            self.under_way.push((item, self.fixture.now));
        }
    }

    fn deliver(&mut self, index: usize) {
        let Some((item, taken)) = self.pick(index) else {
            return;
        };
        self.fixture.outbox.delivered(&item, self.fixture.now);
        let owed = (index_of(&item), item.event.watched.name.parse().unwrap());
        if self
            .model
            .owed
            .get(&owed)
            .is_some_and(|changed| taken >= *changed + self.fixture.follow_up_delay())
        {
            self.model.owed.remove(&owed);
        }
    }

    fn pick(&mut self, index: usize) -> Option<(Item, Instant)> {
        let index = index.checked_rem(self.under_way.len())?;
        Some(self.under_way.swap_remove(index))
    }

    /// Checks that a last process on a working disk delivers all pending events.
    fn settle(mut self) {
        self.begin(None);
        let delivered = self.fixture.drain();
        for (index, object) in self.model.owed.keys() {
            let name = format!("{}/{object}", MANAGERS[*index]);
            assert!(delivered.contains_key(&name), "{name} is lost");
        }
        let report = self.fixture.outbox.report(self.fixture.now);
        assert_eq!(report.depth, 0);
        self.fixture.kill();
        assert_eq!(self.fixture.recovered.items, 0);
    }
}

fn index_of(item: &Item) -> usize {
    MANAGERS
        .iter()
        .position(|name| *name == item.manager.as_str())
        .unwrap()
}

fn run(lives: &[Life], settings: Settings, lossy: bool) -> HashSet<usize> {
    let mut run = Run::new(settings, lossy);
    for life in lives {
        run.begin(Some(life.end));
        run.live(life);
    }
    let marked = run.model.marked.clone();
    run.settle();
    marked
}

fn tight(configured: bool) -> Settings {
    let managers = MANAGERS.iter().filter(|_| configured);
    Settings {
        managers: managers.map(|name| manager(name)).collect(),
        limits: Limits {
            keys: 4,
            ..Limits::WATCHER
        },
        ..settings()
    }
}

proptest! {
    #[test]
    fn a_kill_between_two_writes_loses_nothing_and_marks_no_manager(lives in lives(Just(End::Killed), false)) {
        prop_assert_eq!(run(&lives, settings(), false), HashSet::new());
    }

    #[test]
    fn a_death_at_any_byte_loses_nothing_that_was_answered(
        lives in lives((0_u64..3_000).prop_map(|life| End::Dies { life }), false),
    ) {
        run(&lives, settings(), false);
    }

    #[test]
    fn a_power_cut_loses_nothing_that_was_forced(
        lives in lives((0_usize..100).prop_map(|kept| End::PowerLost { kept }), false),
    ) {
        run(&lives, Settings { fsync: FsyncPolicy::Always, ..settings() }, false);
    }

    #[test]
    fn want_of_space_loses_nothing_without_a_mark(
        lives in lives(prop_oneof![Just(End::Killed), (500_u64..3_000).prop_map(|life| End::Dies { life })], true),
        configured in any::<bool>(),
    ) {
        run(&lives, tight(configured), true);
    }
}
