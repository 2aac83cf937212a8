//! The effects of the end of a reconcile: the phase of each lane, and the time at which the lane is due again.
//!
//! Invariant: a runtime that was reconciled is due again, unless its resource does not exist.

use std::time::Duration;

use super::{
    Access, Delay, Lane, LaneResult, Lanes, Name, Observation, Participation, Phase, Schedule,
    Scheduler, WritePermit,
};

/// Number of attempts after which the backoff does not grow further while KCP fails.
const MAX_INTERRUPTED_ATTEMPTS: u32 = 2;

/// Number of writes of a lane that are followed by another reconcile without a growing delay: twice the number of
/// writes of an installation. If another client reverts each write, the delay grows after this number.
const FAST_WRITES: u32 = 8;

/// Number of observations of a runtime while it soaks.
const SOAK_LOOKS: u32 = 8;

/// Minimum time between two observations of a runtime that soaks.
const MIN_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The end of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The resource does not exist, or no action is necessary until a change.
    Idle,
    /// KCP did not respond as needed, so that the state of the runtime is unknown.
    Interrupted,
    /// The runtime was not reached, or must not be called.
    Unreachable {
        /// Time for which the API server allows no request.
        retry_after: Option<Duration>,
        /// Whether an object was written before.
        wrote: bool,
    },
    /// The runtime was reached.
    Reconciled {
        /// The report of each lane that was part of the reconcile. A deletion has the report of the webhook lane only.
        lanes: Lanes<Option<LaneReport>>,
        /// Whether objects of the webhook lane differ although the lane was not part of the reconcile.
        webhook_differs: bool,
    },
}

/// The report of a reconcile about one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneReport {
    /// The result of the reconcile in the lane.
    pub result: LaneResult,
    /// Whether the reconcile tried to write.
    pub wrote: bool,
    /// Whether the lane is observed again soon although nothing may be written, or an object of it cannot be written.
    pub needs_requeue: bool,
    /// Time for which the API server allows no request.
    pub retry_after: Option<Duration>,
}

/// The time of an event, and a random number for delays.
#[derive(Clone, Copy)]
struct Moment {
    now: Duration,
    random: u64,
}

impl Scheduler {
    /// Processes the end of a reconcile.
    pub fn finish(&mut self, name: &Name, report: Report, now: Duration, random: u64) {
        let at = Moment { now, random };
        let Some(running) = self.running.remove(name) else {
            return;
        };
        if self.runtimes.contains_key(name) {
            self.take(name, report, running.lanes, at);
            self.reorder(name, now);
        }
        // This includes a runtime that was removed during the reconcile: its Runtime may need another resource.
        for lane in Lane::ALL {
            if *running.again.get(lane) {
                self.wake_lane(name, lane, now);
            }
        }
    }

    fn take(&mut self, name: &Name, report: Report, lanes: Lanes<Option<Access>>, at: Moment) {
        match report {
            Report::Idle => {}
            Report::Interrupted => self.interrupted(name, lanes, at),
            Report::Unreachable { retry_after, wrote } => {
                self.unreachable(name, lanes, (retry_after, wrote), at);
            }
            Report::Reconciled {
                lanes: reports,
                webhook_differs,
            } => {
                self.reconciled(name, lanes, reports, at);
                let phase = self.rollout(Lane::Webhook).phase(name);
                let is_settled = self.attempts(name, Lane::Webhook) == 0
                    && !matches!(phase, Some(Phase::Waiting | Phase::Unreachable) | None);
                if webhook_differs && is_settled {
                    self.wake_lane(name, Lane::Webhook, at.now);
                }
            }
        }
    }

    pub(super) fn attempts(&self, name: &str, lane: Lane) -> u32 {
        let runtime = self.runtimes.get(name);
        runtime.map_or(0, |it| it.lanes.get(lane).attempts)
    }

    fn interrupted(&mut self, name: &Name, lanes: Lanes<Option<Access>>, at: Moment) {
        for lane in self.concerned(name, lanes) {
            let report = observation(lanes, lane, LaneResult::Interrupted, false);
            self.note(name, lane, report, at.now);
            // KCP failed, not the runtime. All runtimes must be retried when KCP works again.
            if let Some(runtime) = self.runtimes.get_mut(name) {
                let attempts = &mut runtime.lanes.get_mut(lane).attempts;
                *attempts = (*attempts).min(MAX_INTERRUPTED_ATTEMPTS);
            }
            self.retry(name, lane, None, at);
        }
    }

    fn unreachable(
        &mut self,
        name: &Name,
        lanes: Lanes<Option<Access>>,
        (retry_after, wrote): (Option<Duration>, bool),
        at: Moment,
    ) {
        let Moment { now, random } = at;
        let Some(runtime) = self.runtimes.get_mut(name) else {
            return;
        };
        let delay = (self.settings.failure_delay)(runtime.unreachable, random);
        runtime.unreachable = runtime.unreachable.saturating_add(1);
        if let Some(retry_after) = retry_after {
            runtime.not_before = now + retry_after;
        }
        let at = now + delay.max(retry_after.unwrap_or_default());
        for lane in Lane::ALL {
            let report = observation(lanes, lane, LaneResult::Unreachable, wrote);
            self.note(name, lane, report, now);
        }
        for lane in self.concerned(name, Lanes::both(Some(()))) {
            self.queues.get_mut(lane).set(name, at);
        }
    }

    fn reconciled(
        &mut self,
        name: &Name,
        access: Lanes<Option<Access>>,
        reports: Lanes<Option<LaneReport>>,
        at: Moment,
    ) {
        let Moment { now, random } = at;
        let resync = self.settings.resync;
        let Some(runtime) = self.runtimes.get_mut(name) else {
            return;
        };
        runtime.unreachable = 0;
        runtime.not_before = Duration::ZERO;
        // A webhook lane that is due since the last resync waits for its turn, but the configuration lane does not
        // wait with it.
        let is_over = runtime.resync.is_some_and(|at| at <= now);
        if reports.webhook.is_some() || is_over {
            runtime.resync = Some(now + resync.saturating_sub(share(resync / 5, random)));
        } else if runtime.resync.is_none() {
            // The first reconcile after a start does not read all manifests. Complete reconciles are spread over the interval.
            runtime.resync = Some(now + share(resync, random));
        }
        for lane in Lane::ALL {
            let Some(report) = *reports.get(lane) else {
                continue;
            };
            let noted = observation(access, lane, report.result, report.wrote);
            self.note(name, lane, noted, now);
            self.schedule(name, lane, report, at);
            let rollout = self.rollouts.get(lane);
            let permitted = noted.permit.map(WritePermit::revision);
            let was_permitted = permitted.is_some() && permitted == rollout.target();
            if !was_permitted && rollout.is_startable(name) {
                self.queues.get_mut(lane).hasten(name, now);
            }
        }
        let Some(runtime) = self.runtimes.get(name) else {
            return;
        };
        let (resync, not_before) = (runtime.resync, runtime.not_before);
        let takes_part = self.takes_part(name);
        for lane in Lane::ALL {
            let queue = self.queues.get_mut(lane);
            // A lane that was never reconciled is due with the next resync.
            if let Some(at) = resync.filter(|_| takes_part) {
                queue.hasten(name, at);
            }
            // The API server allows no request of either lane.
            if queue.at(name).is_some_and(|at| at < not_before) {
                queue.set(name, not_before);
            }
        }
    }

    fn schedule(&mut self, name: &Name, lane: Lane, report: LaneReport, at: Moment) {
        let Moment { now, random } = at;
        let phase = self.rollouts.get(lane).phase(name);
        let rollout = self.rollouts.get(lane);
        let soak = rollout.soak();
        // After the last step, no other runtime waits for the observation.
        let look = if rollout.is_last_step() {
            Duration::MAX
        } else {
            now + (soak / SOAK_LOOKS).max(MIN_LOOK_INTERVAL)
        };
        let progress_delay = Delay::clone(&self.settings.progress_delay);
        let failure_delay = Delay::clone(&self.settings.failure_delay);
        let Some(runtime) = self.runtimes.get_mut(name) else {
            return;
        };
        let (rest, schedule) = (runtime.resync.unwrap_or(now), runtime.lanes.get_mut(lane));
        let due = match report.result {
            LaneResult::Done => {
                let attempts = std::mem::take(schedule).attempts;
                let rest = match phase {
                    Some(Phase::Soaking { since }) => rest.min(since + soak).min(look),
                    _ => rest,
                };
                if report.needs_requeue {
                    schedule.attempts = attempts.saturating_add(1);
                    rest.min(now + failure_delay(attempts, random))
                } else {
                    rest
                }
            }
            LaneResult::Deferred if !report.needs_requeue => {
                *schedule = Schedule::default();
                rest
            }
            LaneResult::Progressing | LaneResult::Deferred => {
                let is_first = !std::mem::replace(&mut schedule.is_progressing, true);
                schedule.writes = schedule.writes.saturating_add(u32::from(report.wrote));
                if is_first || (report.wrote && schedule.writes <= FAST_WRITES) {
                    schedule.attempts = 0;
                }
                let delay = progress_delay(schedule.attempts, random);
                schedule.attempts = schedule.attempts.saturating_add(1);
                now + delay
            }
            LaneResult::Interrupted | LaneResult::Failed | LaneResult::Unreachable => {
                self.retry(name, lane, report.retry_after, at);
                return;
            }
        };
        self.queues.get_mut(lane).set(name, due);
    }

    fn retry(&mut self, name: &Name, lane: Lane, at_least: Option<Duration>, at: Moment) {
        let Moment { now, random } = at;
        let Some(runtime) = self.runtimes.get_mut(name) else {
            return;
        };
        let schedule = runtime.lanes.get_mut(lane);
        let delay = (self.settings.failure_delay)(schedule.attempts, random);
        schedule.is_progressing = false;
        schedule.attempts = schedule.attempts.saturating_add(1);
        if let Some(at_least) = at_least {
            runtime.not_before = now + at_least;
        }
        let due = now + delay.max(at_least.unwrap_or_default());
        self.queues.get_mut(lane).set(name, due);
    }

    fn note(&mut self, name: &str, lane: Lane, report: Observation, now: Duration) {
        self.change_gates(now, |rollouts| {
            rollouts.get_mut(lane).note(name, report, now);
        });
    }

    pub(super) fn takes_part(&self, name: &str) -> bool {
        let participation = self.runtimes.get(name).and_then(|it| it.participation);
        matches!(
            participation,
            Some(Participation::Active { .. } | Participation::Paused)
        )
    }

    /// Returns the lanes that were part of a reconcile. A reconcile that is independent of lanes is scheduled as the
    /// webhook lane.
    fn concerned<T: Copy>(&self, name: &str, lanes: Lanes<Option<T>>) -> Vec<Lane> {
        if !self.takes_part(name) {
            return vec![Lane::Webhook];
        }
        let all = Lane::ALL.into_iter();
        all.filter(|lane| lanes.get(*lane).is_some()).collect()
    }
}

/// Returns the observation of one lane at the end of a reconcile.
fn observation(
    access: Lanes<Option<Access>>,
    lane: Lane,
    result: LaneResult,
    wrote: bool,
) -> Observation {
    let permit = match access.get(lane) {
        Some(Access::Write(permit)) => Some(*permit),
        Some(Access::Observe(_)) | None => None,
    };
    Observation {
        permit,
        result,
        wrote: wrote && permit.is_some(),
    }
}

/// Returns `random / 2⁶⁴` of a duration.
fn share(whole: Duration, random: u64) -> Duration {
    let nanos = (whole.as_nanos() * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
