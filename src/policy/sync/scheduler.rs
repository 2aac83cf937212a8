//! When a runtime is reconciled, in which lanes, and what may be written: a state machine without clock and effects.
//!
//! Each runtime has, for each lane, a time at which the lane is due, a backoff, and a phase in the rollout of the lane. A
//! reconcile covers every lane that is due. A reconcile of the webhook lane reads all manifests, which takes many times the
//! requests and the memory of one of the configuration, so fewer of them run at once.
//!
//! Invariants: never two reconciles of one runtime at once; what becomes due during a reconcile leads to another one; a failure
//! in one lane delays the other lane only if the runtime cannot be reached; a slow reconcile does not count against the limit
//! for long; nothing is written without a [`WritePermit`] of the rollout. Not in here: the clock (`now` counts from any fixed
//! moment), random numbers, and everything that a reconcile does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::rollout::{
    self, Begin, Initial, LaneResult, Name, Observation, Phase, Rollout, WritePermit,
};
use super::status::Deferral;
use super::{Lane, Lanes};

mod completion;
mod queue;

pub use completion::{LaneReport, Report};

use queue::DueQueue;

/// The delay before an attempt, of the number of earlier attempts and a random number.
pub type Delay = Arc<dyn Fn(u32, u64) -> Duration + Send + Sync>;

/// How a scheduler works.
#[derive(Clone)]
pub struct Settings {
    /// Steps and limits of the rollouts.
    pub rollouts: Lanes<rollout::Settings>,
    /// Number of reconciles at once; twice as many while some of them are slow.
    pub concurrency: usize,
    /// Number of reconciles of the webhook lane at once; twice as many while some of them are slow.
    pub webhook_concurrency: usize,
    /// Interval in which every runtime is reconciled in all lanes, shortened by a random share.
    pub resync: Duration,
    /// Delay after a failure.
    pub failure_delay: Delay,
    /// Delay before a Deployment that is progressing is observed again.
    pub progress_delay: Delay,
}

/// A reconcile that takes longer than this is slow.
const SLOW: Duration = Duration::from_secs(2);

/// How a runtime takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Participation {
    /// It is synchronized, and takes part in rollouts at this place.
    Active {
        /// The order of its wave.
        order: u32,
    },
    /// It is observed, and nothing is written.
    Paused,
    /// It is adopted or deleted: not a matter of lanes.
    Other,
}

/// What a reconcile may do in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It writes this revision.
    Write(WritePermit),
    /// It observes, and nothing is written for this reason.
    Observe(Deferral),
}

/// A reconcile to start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The runtime.
    pub name: Name,
    /// What may be done in each lane; `None` for a lane that is not due.
    pub lanes: Lanes<Option<Access>>,
}

/// All runtimes.
pub struct Scheduler {
    settings: Settings,
    rollouts: Lanes<Rollout>,
    runtimes: HashMap<Name, Runtime>,
    queues: Lanes<DueQueue>,
    running: HashMap<Name, Running>,
}

#[derive(Default)]
struct Runtime {
    participation: Option<Participation>,
    lanes: Lanes<Schedule>,
    /// Reconciles in a row that could not reach it.
    unreachable: u32,
    /// It asked for no request before.
    not_before: Duration,
    /// Time at which all lanes are due although nothing changed.
    resync: Option<Duration>,
}

/// The attempts of one lane of one runtime.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    /// Attempts in a row that failed, or that found a Deployment progressing.
    attempts: u32,
    /// Whether the last attempt found a Deployment progressing.
    is_progressing: bool,
    /// Reconciles since the lane was complete that wrote something and have to be followed by another one.
    writes: u32,
}

struct Running {
    since: Duration,
    lanes: Lanes<Option<Access>>,
    /// Lanes that became due meanwhile.
    again: Lanes<bool>,
    is_heavy: bool,
}

impl Scheduler {
    /// A scheduler without runtimes.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            rollouts: settings.rollouts.clone().map(Rollout::new),
            settings,
            runtimes: HashMap::new(),
            queues: Lanes::default(),
            running: HashMap::new(),
        }
    }

    /// The rollout of a lane.
    #[must_use]
    pub fn rollout(&self, lane: Lane) -> &Rollout {
        self.rollouts.get(lane)
    }

    /// Adds a runtime, or notes how it takes part from now on. Whether it is due is not changed.
    pub fn put(
        &mut self,
        name: &Name,
        participation: Participation,
        now: Duration,
        initial: impl Fn(Lane) -> Initial,
    ) {
        let runtime = self.runtimes.entry(Arc::clone(name)).or_default();
        runtime.participation = Some(participation);
        self.change_gates(now, |rollouts| {
            for lane in Lane::ALL {
                let rollout = rollouts.get_mut(lane);
                match participation {
                    Participation::Active { order } => rollout.join(name, order, initial(lane)),
                    Participation::Paused | Participation::Other => rollout.leave(name),
                }
            }
        });
        self.reorder(name, now);
    }

    /// Gives a runtime the place of its wave, unless a reconcile runs: that one keeps its permission.
    fn reorder(&mut self, name: &Name, now: Duration) {
        let participation = self.runtimes.get(name).and_then(|it| it.participation);
        if let Some(Participation::Active { order }) = participation
            && !self.running.contains_key(name)
        {
            self.change_gates(now, |rollouts| {
                for lane in Lane::ALL {
                    rollouts.get_mut(lane).reorder(name, order);
                }
            });
        }
    }

    /// Forgets a runtime.
    pub fn remove(&mut self, name: &str, now: Duration) {
        self.runtimes.remove(name);
        for lane in Lane::ALL {
            self.queues.get_mut(lane).remove(name);
        }
        self.change_gates(now, |rollouts| {
            for lane in Lane::ALL {
                rollouts.get_mut(lane).leave(name);
            }
        });
    }

    /// Begins the rollout of a revision; see [`Rollout::begin`]. Members that may start, and those whose status changes because
    /// they may not, become due.
    pub fn begin(&mut self, lane: Lane, begin: Begin, initial: impl Fn(&Name) -> Initial) {
        let (target, now) = (begin.target, begin.now);
        self.rollouts.get_mut(lane).begin(begin, initial);
        let rollout = self.rollouts.get(lane);
        let mut due: Vec<Name> = self
            .runtimes
            .iter()
            .filter(|(name, it)| it.unreachable == 0 || self.running.contains_key(*name))
            .filter(|(name, it)| match rollout.phase(name) {
                None => it.participation == Some(Participation::Paused),
                Some(Phase::Done) => false,
                Some(Phase::Waiting) => match rollout.access(name) {
                    Some(permit) => permit.revision() == target || rollout.revision(name).is_none(),
                    None => true,
                },
                Some(_) => true,
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        due.sort_unstable();
        for name in due {
            self.wake_lane(&name, lane, now);
        }
        // A reconcile that runs was permitted another revision.
        for running in self.running.values_mut() {
            *running.again.get_mut(lane) = true;
        }
    }

    /// Pauses or continues the rollout of a lane.
    pub fn pause(&mut self, lane: Lane, is_paused: bool, now: Duration) {
        self.change_gates(now, |rollouts| rollouts.get_mut(lane).pause(is_paused));
    }

    /// Makes all lanes of a runtime due now, or as soon as it may be called.
    pub fn wake(&mut self, name: &Name, now: Duration) {
        for lane in Lane::ALL {
            self.wake_lane(name, lane, now);
        }
    }

    /// Makes one lane of a runtime due now, or as soon as it may be called.
    pub fn wake_lane(&mut self, name: &Name, lane: Lane, now: Duration) {
        if let Some(running) = self.running.get_mut(name) {
            *running.again.get_mut(lane) = true;
            return;
        }
        let runtime = self.runtimes.entry(Arc::clone(name)).or_default();
        let at = now.max(runtime.not_before);
        let lane = match runtime.participation {
            Some(Participation::Other) => Lane::Webhook,
            // Without a resource, it is not known yet whether it takes part.
            Some(Participation::Active { .. } | Participation::Paused) | None => lane,
        };
        self.queues.get_mut(lane).hasten(name, at);
    }

    /// Forgets the failures of a runtime: their cause may be gone.
    pub fn reset(&mut self, name: &str) {
        if let Some(runtime) = self.runtimes.get_mut(name) {
            runtime.unreachable = 0;
            runtime.lanes = Lanes::default();
        }
    }

    /// Number of runtimes that are due and not started.
    #[must_use]
    pub fn due(&self, now: Duration) -> usize {
        let names = self.queues.configuration.due(now);
        let others = self.queues.webhook.due(now);
        others
            .filter(|it| self.queues.configuration.at(it).is_none_or(|at| at > now))
            .count()
            + names.count()
    }

    /// Number of reconciles that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The time of the next [`Self::start`] that may return something, unless a reconcile ends before.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        // A running reconcile becomes slow.
        let soon = now + SLOW / 8;
        let not_full =
            |has_capacity: bool, at: Duration| if has_capacity { at } else { at.max(soon) };
        let webhook = self.queues.webhook.next();
        let webhook = webhook.map(|at| not_full(self.has_capacity_for_webhook(now), at));
        let at = [self.queues.configuration.next(), webhook]
            .into_iter()
            .flatten()
            .min()?;
        Some(not_full(self.has_capacity(now), at))
    }

    /// Starts the next reconcile that is due, if there is capacity for it.
    pub fn start(&mut self, now: Duration) -> Option<Work> {
        if !self.has_capacity(now) {
            return None;
        }
        let has_webhook_capacity = self.has_capacity_for_webhook(now);
        let (name, from) = self.pop(now, has_webhook_capacity)?;
        let is_due = |lane| self.queues.get(lane).at(&name).is_some_and(|at| at <= now);
        let takes_part = self.takes_part(&name);
        // What the configuration needs is read anyway, unless it has failed and waits for its next attempt.
        let with_configuration = takes_part && self.attempts(&name, Lane::Configuration) == 0;
        let is_due = Lanes {
            configuration: from == Lane::Configuration
                || is_due(Lane::Configuration)
                || with_configuration,
            webhook: from == Lane::Webhook || (has_webhook_capacity && is_due(Lane::Webhook)),
        };
        for lane in Lane::ALL {
            if *is_due.get(lane) {
                self.queues.get_mut(lane).remove(&name);
            }
        }
        let participation = self.runtimes.get(&name)?.participation;
        let lanes = Lanes::from_fn(|lane| match participation {
            _ if !*is_due.get(lane) => None,
            Some(Participation::Active { .. }) => {
                let permit = self.rollouts.get_mut(lane).start(&name, now);
                Some(permit.map_or(Access::Observe(Deferral::Rollout), Access::Write))
            }
            Some(Participation::Paused) => Some(Access::Observe(Deferral::Paused)),
            Some(Participation::Other) | None => None,
        });
        let running = Running {
            since: now,
            lanes,
            again: Lanes::default(),
            is_heavy: *is_due.get(Lane::Webhook),
        };
        self.running.insert(Arc::clone(&name), running);
        Some(Work { name, lanes })
    }

    /// The runtime that has been due for the longest time, and the lane. A lane that is due while its runtime is reconciled in
    /// the other one is due again when that ends.
    fn pop(&mut self, now: Duration, has_webhook_capacity: bool) -> Option<(Name, Lane)> {
        loop {
            let (name, lane) = match self.queues.configuration.pop(now) {
                Some(name) => (name, Lane::Configuration),
                None if has_webhook_capacity => (self.queues.webhook.pop(now)?, Lane::Webhook),
                None => return None,
            };
            match self.running.get_mut(&name) {
                Some(running) => *running.again.get_mut(lane) = true,
                None => return Some((name, lane)),
            }
        }
    }

    fn has_capacity(&self, now: Duration) -> bool {
        let most = self.settings.concurrency;
        let young = || self.running.values().filter(|it| it.is_young(now)).count();
        self.running.len() < most || (self.running.len() < 2 * most && young() < most)
    }

    fn has_capacity_for_webhook(&self, now: Duration) -> bool {
        let most = self.settings.webhook_concurrency;
        let heavy = || self.running.values().filter(|it| it.is_heavy);
        heavy().filter(|it| it.is_young(now)).count() < most && heavy().count() < 2 * most
    }

    /// Makes a change to rollouts; members that may start because of it become due.
    fn change_gates(&mut self, now: Duration, change: impl FnOnce(&mut Lanes<Rollout>)) {
        let gate = |rollout: &Rollout| {
            let progress = rollout.progress();
            let admissions = rollout.admissions();
            (
                progress.step,
                progress.stopped,
                progress.is_complete,
                admissions,
            )
        };
        let before = self.rollouts.as_ref().map(gate);
        change(&mut self.rollouts);
        for lane in Lane::ALL {
            let rollout = self.rollouts.get(lane);
            if gate(rollout) != *before.get(lane) {
                let names: Vec<Name> = rollout.startable().cloned().collect();
                for name in names {
                    self.wake_lane(&name, lane, now);
                }
            }
        }
    }
}

impl Running {
    fn is_young(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) < SLOW
    }
}
