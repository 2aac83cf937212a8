//! A simulated fleet around the scheduler. For each started reconcile, it asserts that no gate forbids the reconcile.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::rollout::{
    self, Begin, Initial, LaneResult, MaxFailures, Name, Phase, Resumed, Step,
};
use crate::sync::scheduler::{
    Access, LaneReport, Participation, Report, Scheduler, Settings, Work,
};
use crate::sync::{Hash, Lane, Lanes};

const RESYNC: Duration = Duration::from_mins(10);

fn revision(number: u8) -> Hash {
    format!("{number:064x}").parse().unwrap()
}

/// The state of a runtime, and the observation of the runtime by the controller.
#[derive(Clone, Debug, Default)]
struct Simulated {
    order: u32,
    is_paused: bool,
    is_unreachable: bool,
    /// The revision that was written last, and whether it is complete.
    written: Lanes<Option<Hash>>,
    is_complete: Lanes<bool>,
    seen_unreachable: bool,
    has_failed: Lanes<bool>,
}

struct Fleet {
    settings: Settings,
    scheduler: Scheduler,
    now: Duration,
    runtimes: BTreeMap<Name, Simulated>,
    running: Vec<Work>,
    /// Revisions with which no runtime becomes ready.
    bad: BTreeSet<Hash>,
    targets: Lanes<Hash>,
    completed: Lanes<Option<Hash>>,
    is_paused: Lanes<bool>,
    /// Runtimes that were permitted to write the current target of the webhook lane.
    started: BTreeSet<Name>,
    /// Runtimes of `started` that did not have the target before.
    permitted: BTreeSet<Name>,
    /// Runtimes that failed with the current target of the webhook lane and were deleted since.
    deleted: BTreeSet<Name>,
    /// The largest number of runtimes since the start of the webhook rollout.
    most: usize,
    steps: Vec<Step>,
    allowed: usize,
    writes: usize,
}

impl Fleet {
    fn new(steps: Vec<Step>, allowed: u32, soak: Duration) -> Self {
        let delay = |attempt: u32, _: u64| Duration::from_secs(1 << attempt.min(6));
        let settings = Settings {
            rollouts: Lanes {
                configuration: rollout::Settings::new(Vec::new()),
                webhook: rollout::Settings {
                    soak,
                    max_failures: Some(MaxFailures::Count(allowed)),
                    keeps_revisions: true,
                    ..rollout::Settings::new(steps.clone())
                },
            },
            concurrency: 4,
            webhook_concurrency: 2,
            slow_after: Duration::from_secs(2),
            resync: RESYNC,
            failure_delay: Arc::new(delay),
            progress_delay: Arc::new(delay),
        };
        let mut fleet = Self {
            scheduler: Scheduler::new(settings.clone()),
            settings,
            now: Duration::ZERO,
            runtimes: BTreeMap::new(),
            running: Vec::new(),
            bad: BTreeSet::new(),
            targets: Lanes::both(revision(1)),
            completed: Lanes::default(),
            is_paused: Lanes::default(),
            started: BTreeSet::new(),
            permitted: BTreeSet::new(),
            deleted: BTreeSet::new(),
            most: 0,
            steps,
            allowed: usize::try_from(allowed).unwrap(),
            writes: 0,
        };
        fleet.begin(Lane::Configuration, None);
        fleet.begin(Lane::Webhook, None);
        fleet
    }

    fn begin(&mut self, lane: Lane, resumed: Option<Resumed>) {
        let (runtimes, completed) = (self.runtimes.clone(), *self.completed.get(lane));
        let target = *self.targets.get(lane);
        if lane == Lane::Webhook {
            let held = |it: &Simulated| it.written.webhook == Some(target);
            let has = self.runtimes.iter().filter(|(_, it)| held(it));
            self.started = has.map(|(name, _)| Arc::clone(name)).collect();
            if resumed.is_none() {
                self.permitted.clear();
                self.deleted.clear();
                self.most = self.runtimes.len();
            }
        }
        let begin = Begin {
            target,
            completed,
            resumed,
            now: self.now,
        };
        self.scheduler
            .begin(lane, begin, |name| initial(&runtimes[name], lane));
    }

    /// Returns the number of runtimes that a step may start.
    fn size(&self, step: usize) -> usize {
        match self.steps.get(step) {
            Some(Step::Count(count)) => usize::try_from(*count).unwrap(),
            Some(Step::Percent(percent)) => (self.most * usize::from(*percent)).div_ceil(100),
            None => usize::MAX,
        }
    }

    fn put(&mut self, name: &Name) {
        self.most = self.most.max(self.runtimes.len());
        let runtime = self.runtimes[name].clone();
        if runtime.written.webhook == Some(self.targets.webhook) {
            self.started.insert(Arc::clone(name));
        }
        let participation = if runtime.is_paused {
            Participation::Paused
        } else {
            Participation::Active {
                order: runtime.order,
            }
        };
        self.scheduler.put(name, participation, self.now, |lane| {
            initial(&runtime, lane)
        });
        self.scheduler.wake(name, self.now);
    }

    /// Replaces the leader. Running reconciles may have written or not, and the next leader starts with the content
    /// of the statuses.
    fn change_leader(&mut self, has_written: bool) {
        let resumed = Lanes::from_fn(|lane| {
            let progress = self.scheduler.rollout(lane).progress();
            Resumed {
                step: progress.step - 1,
                is_complete: progress.is_complete,
            }
        });
        let failed: BTreeSet<Name> = self
            .scheduler
            .rollout(Lane::Webhook)
            .failed()
            .cloned()
            .collect();
        if has_written {
            for work in std::mem::take(&mut self.running) {
                self.apply(&work);
            }
        }
        self.running.clear();
        // The other reconciles ended before they wrote, so that the next leader has no record of their permissions.
        let has_written =
            |name: &Name| self.runtimes[name].written.webhook == Some(self.targets.webhook);
        self.permitted.retain(has_written);
        self.started.retain(has_written);
        self.scheduler = Scheduler::new(self.settings.clone());
        for lane in Lane::ALL {
            self.scheduler
                .pause(lane, *self.is_paused.get(lane), self.now);
        }
        let names: Vec<Name> = self.runtimes.keys().cloned().collect();
        for name in &names {
            self.put(name);
        }
        // A runtime that was created again has no status that shows its failure.
        self.deleted
            .retain(|it| failed.contains(it) && !self.runtimes.contains_key(it));
        self.scheduler
            .recall_failed(Lane::Webhook, self.deleted.iter().cloned());
        for lane in Lane::ALL {
            self.begin(lane, Some(*resumed.get(lane)));
        }
    }

    /// Removes the runtimes that may not write the current target any more, and have not written it: they were unreachable.
    fn forget_unreachable(&mut self) {
        let (target, webhook) = (self.targets.webhook, self.scheduler.rollout(Lane::Webhook));
        let stays = |name: &Name| {
            self.runtimes[name].written.webhook == Some(target)
                || self.running.iter().any(|it| it.name == *name)
                || !webhook.phase(name).is_some_and(Phase::is_startable)
        };
        self.permitted.retain(stays);
        self.started.retain(stays);
    }

    fn start_all(&mut self) {
        loop {
            self.forget_unreachable();
            let webhook = self.scheduler.rollout(Lane::Webhook);
            let is_failed = |it: &&Name| webhook.phase(it).is_some_and(Phase::is_failed);
            let failed = self.runtimes.keys().filter(is_failed).count() + self.deleted.len();
            let before = webhook.progress();
            let holds_none = |it: &Simulated| it.written.webhook.is_none();
            let Some(work) = self.scheduler.start(self.now) else {
                return;
            };
            assert!(
                self.running.iter().all(|it| it.name != work.name),
                "two reconciles of {}",
                work.name
            );
            for lane in Lane::ALL {
                let Some(Access::Write(permit)) = *work.lanes.get(lane) else {
                    continue;
                };
                let runtime = &self.runtimes[&work.name];
                assert!(!runtime.is_paused, "{} is paused", work.name);
                let target = *self.targets.get(lane);
                let is_known = permit.revision() == target
                    || Some(permit.revision()) == *self.completed.get(lane);
                assert!(is_known, "{} may write a strange revision", work.name);
                if lane == Lane::Webhook && permit.revision() == target && !before.is_complete {
                    let is_new = !self.started.contains(&work.name);
                    let gets_completed =
                        holds_none(runtime) && self.completed.webhook == Some(target);
                    if is_new && !gets_completed {
                        assert_eq!(before.stopped, None, "{} starts", work.name);
                        assert!(!self.is_paused.webhook);
                        assert!(
                            failed <= self.allowed,
                            "{} starts after {failed} failures",
                            work.name
                        );
                        self.started.insert(Arc::clone(&work.name));
                        self.permitted.insert(Arc::clone(&work.name));
                        let size = self.size(before.step - 1);
                        assert!(self.permitted.len() <= size, "more than {size} started");
                    }
                    self.deleted.remove(&work.name);
                }
            }
            self.running.push(work);
        }
    }

    /// Applies the effect of a reconcile to the runtime.
    fn apply(&mut self, work: &Work) -> Option<Report> {
        let runtime = self.runtimes.get_mut(&work.name)?;
        if runtime.is_unreachable {
            runtime.seen_unreachable = true;
            return Some(Report::Unreachable {
                retry_after: None,
                wrote: false,
            });
        }
        runtime.seen_unreachable = false;
        let lanes = Lanes::from_fn(|lane| {
            let access = (*work.lanes.get(lane))?;
            let Access::Write(permit) = access else {
                return Some(report(LaneResult::Deferred, false));
            };
            let (written, is_complete, has_failed) = (
                runtime.written.get_mut(lane),
                runtime.is_complete.get_mut(lane),
                runtime.has_failed.get_mut(lane),
            );
            let wrote = *written != Some(permit.revision());
            self.writes += usize::from(wrote);
            if lane == Lane::Webhook && permit.revision() == self.targets.webhook {
                // The reconcile may have started before the rollout.
                self.started.insert(Arc::clone(&work.name));
            }
            *written = Some(permit.revision());
            *has_failed = lane == Lane::Webhook && self.bad.contains(&permit.revision());
            *is_complete = !*has_failed && !wrote;
            let result = match (*has_failed, wrote) {
                (true, _) => LaneResult::Failed,
                (false, true) => LaneResult::Progressing,
                (false, false) => LaneResult::Done,
            };
            Some(report(result, wrote))
        });
        Some(Report::Reconciled {
            lanes,
            webhook_differs: false,
        })
    }

    fn finish(&mut self, index: usize, is_interrupted: bool) {
        if self.running.is_empty() {
            return;
        }
        let work = self.running.remove(index % self.running.len());
        let report = if is_interrupted {
            Some(Report::Interrupted)
        } else {
            self.apply(&work)
        };
        self.scheduler.finish(
            &work.name,
            report.unwrap_or(Report::Idle),
            self.now,
            1 << 63,
        );
        for lane in Lane::ALL {
            *self.completed.get_mut(lane) = self.scheduler.rollout(lane).completed();
        }
    }

    /// Runs all due reconciles and advances the time, until nothing is due before the next resync.
    fn run_dry(&mut self) {
        for _ in 0..20_000 {
            self.start_all();
            if !self.running.is_empty() {
                self.finish(0, false);
                continue;
            }
            let settled = Lane::ALL
                .into_iter()
                .all(|lane| self.scheduler.rollout(lane).progress().is_complete);
            match self.scheduler.next(self.now) {
                Some(at) if at > self.now + RESYNC / 2 || settled => return,
                Some(at) => self.now = at.max(self.now),
                None => return,
            }
        }
        panic!(
            "it does not end: {:?}",
            self.scheduler.rollout(Lane::Webhook).progress()
        );
    }
}

fn initial(runtime: &Simulated, lane: Lane) -> Initial {
    Initial {
        revision: *runtime.written.get(lane),
        is_complete: *runtime.is_complete.get(lane),
        is_unreachable: runtime.seen_unreachable,
        is_failed: *runtime.has_failed.get(lane),
    }
}

fn report(result: LaneResult, wrote: bool) -> LaneReport {
    LaneReport {
        result,
        wrote,
        needs_requeue: false,
        retry_after: None,
    }
}
