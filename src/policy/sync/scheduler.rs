//! The time at which a runtime is reconciled, the lanes, and the permissions to write: a state machine without clock
//! and effects.
//!
//! Each runtime has, for each lane, a time at which the lane is due, a backoff, and a phase in the rollout of the
//! lane. A reconcile covers every lane that is due. A reconcile of the webhook lane reads all manifests. It needs
//! many times the requests and the memory of a reconcile of the configuration, so that fewer of them run
//! concurrently.
//!
//! Invariants: at most one reconcile of a runtime runs at a time; a lane that becomes due during a reconcile leads to
//! another reconcile; a failure in one lane delays the other lane only if the runtime cannot be reached; a slow
//! reconcile counts against the limit only for a short time; nothing is written without a [`WritePermit`] of the
//! rollout. Not in here: the clock (`now` counts from any fixed moment), random numbers, and all actions of a
//! reconcile.

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

/// The delay before an attempt, as a function of the number of earlier attempts and a random number.
pub type Delay = Arc<dyn Fn(u32, u64) -> Duration + Send + Sync>;

/// Settings of a scheduler.
#[derive(Clone)]
pub struct Settings {
    /// Steps and limits of the rollouts.
    pub rollouts: Lanes<rollout::Settings>,
    /// Maximum number of concurrent reconciles; up to twice this number while some of them are slow.
    pub concurrency: usize,
    /// Maximum number of concurrent reconciles of the webhook lane; up to twice this number while some of them are slow.
    pub webhook_concurrency: usize,
    /// A reconcile that takes longer than this is slow.
    pub slow_after: Duration,
    /// Interval in which every runtime is reconciled in all lanes, shortened by a random share.
    pub resync: Duration,
    /// Delay after a failure.
    pub failure_delay: Delay,
    /// Delay before a Deployment that is progressing is observed again.
    pub progress_delay: Delay,
}

/// The participation of a runtime in lanes and rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Participation {
    /// The runtime is synchronized, and is a member of rollouts.
    Active {
        /// The order of its wave.
        order: u32,
    },
    /// The runtime is observed, and nothing is written.
    Paused,
    /// The runtime is adopted or deleted, independently of lanes.
    Other,
}

/// The access of a reconcile in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The reconcile writes this revision.
    Write(WritePermit),
    /// The reconcile only observes, for this reason.
    Observe(Deferral),
}

/// A reconcile to start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The runtime.
    pub name: Name,
    /// The access in each lane; `None` for a lane that is not due.
    pub lanes: Lanes<Option<Access>>,
}

/// The scheduler of all runtimes.
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
    /// Number of consecutive reconciles that could not reach the runtime.
    unreachable: u32,
    /// Time before which the API server allows no request.
    not_before: Duration,
    /// Time at which all lanes are due without a change.
    resync: Option<Duration>,
}

/// The attempts of one lane of one runtime.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    /// Number of consecutive attempts that failed, or that found a progressing Deployment.
    attempts: u32,
    /// Whether the last attempt found a progressing Deployment.
    is_progressing: bool,
    /// Number of reconciles since the lane was complete that wrote an object and must be followed by another reconcile.
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
    /// Creates a scheduler without runtimes.
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

    /// Returns the rollout of a lane.
    #[must_use]
    pub fn rollout(&self, lane: Lane) -> &Rollout {
        self.rollouts.get(lane)
    }

    /// Adds a runtime, or updates its participation. The due times of the runtime are not changed.
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
                    Participation::Active { order } => {
                        rollout.join(name, order, initial(lane), now);
                    }
                    Participation::Paused => rollout.leave(name),
                    Participation::Other => rollout.delete(name),
                }
            }
        });
        self.reorder(name, now);
    }

    /// Moves a runtime to the order of its wave, unless a reconcile runs, which keeps its permission.
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

    /// Removes a runtime.
    pub fn remove(&mut self, name: &str, now: Duration) {
        self.runtimes.remove(name);
        for lane in Lane::ALL {
            self.queues.get_mut(lane).remove(name);
        }
        self.change_gates(now, |rollouts| {
            for lane in Lane::ALL {
                rollouts.get_mut(lane).delete(name);
            }
        });
    }

    /// Starts the rollout of a revision; see [`Rollout::begin`]. Members become due if they may start, or if their
    /// status changes because they may not start.
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
        // A running reconcile was permitted to write another revision.
        for running in self.running.values_mut() {
            *running.again.get_mut(lane) = true;
        }
    }

    /// Adds runtimes that failed under an earlier leader; see [`Rollout::recall_failed`].
    pub fn recall_failed(&mut self, lane: Lane, names: impl IntoIterator<Item = Name>) {
        self.rollouts.get_mut(lane).recall_failed(names);
    }

    /// Pauses or continues the rollout of a lane.
    pub fn pause(&mut self, lane: Lane, is_paused: bool, now: Duration) {
        self.change_gates(now, |rollouts| rollouts.get_mut(lane).pause(is_paused));
    }

    /// Makes all lanes of a runtime due now, or as soon as a request to the runtime is allowed.
    pub fn wake(&mut self, name: &Name, now: Duration) {
        for lane in Lane::ALL {
            self.wake_lane(name, lane, now);
        }
    }

    /// Makes one lane of a runtime due now, or as soon as a request to the runtime is allowed.
    pub fn wake_lane(&mut self, name: &Name, lane: Lane, now: Duration) {
        if let Some(running) = self.running.get_mut(name) {
            *running.again.get_mut(lane) = true;
            return;
        }
        let runtime = self.runtimes.entry(Arc::clone(name)).or_default();
        let at = now.max(runtime.not_before);
        let lane = match runtime.participation {
            Some(Participation::Other) => Lane::Webhook,
            // Without a resource, the participation is not known yet.
            Some(Participation::Active { .. } | Participation::Paused) | None => lane,
        };
        self.queues.get_mut(lane).hasten(name, at);
    }

    /// Resets the failures of a runtime, since their cause may be removed.
    pub fn reset(&mut self, name: &str) {
        if let Some(runtime) = self.runtimes.get_mut(name) {
            runtime.unreachable = 0;
            runtime.lanes = Lanes::default();
        }
    }

    /// Returns the number of runtimes that are due and whose reconcile has not started.
    #[must_use]
    pub fn due(&self, now: Duration) -> usize {
        let names = self.queues.configuration.due(now);
        let others = self.queues.webhook.due(now);
        others
            .filter(|it| self.queues.configuration.at(it).is_none_or(|at| at > now))
            .count()
            + names.count()
    }

    /// Returns the number of running reconciles.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the time of the next [`Self::start`] that may return a reconcile, unless a running reconcile ends earlier.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        // A running reconcile becomes slow.
        let soon = now + self.settings.slow_after / 8;
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
        // The reconcile reads the data of the configuration lane in any case. The lane is omitted if it has failed
        // and waits for its next attempt.
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

    /// Removes and returns the runtime that has been due for the longest time, and the lane. A lane that is due while
    /// its runtime is reconciled in the other lane is due again when that reconcile ends.
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
        let running = self.running.values();
        let young = || running.filter(|it| self.is_young(it, now)).count();
        self.running.len() < most || (self.running.len() < 2 * most && young() < most)
    }

    fn has_capacity_for_webhook(&self, now: Duration) -> bool {
        let most = self.settings.webhook_concurrency;
        let heavy = || self.running.values().filter(|it| it.is_heavy);
        heavy().filter(|it| self.is_young(it, now)).count() < most && heavy().count() < 2 * most
    }

    fn is_young(&self, running: &Running, now: Duration) -> bool {
        now.saturating_sub(running.since) < self.settings.slow_after
    }

    /// Changes rollouts. Members that may start because of the change become due.
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
