//! Who gets a pass, and when: the one task that knows all runtimes.
//!
//! Invariants: never two passes over one runtime at once; a change that comes during a pass leads to another one; a
//! runtime in trouble waits at its own growing distance and delays nobody: passes that take long do not count against
//! the number of passes for long. Everything that waits is in the queue or in a pass, nowhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use kube::Resource as _;
use policy::convergence::desired::Desired;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::DirectSettings;
use super::installations::Installations;
use super::lifecycle::is_held;
use super::pass::{Assignment, Common, Report, pass};
use super::queue::{Name, Queue};
use super::register::{Register, Wish};
use super::rollout::{Aim, Rollouts};
use super::writer::Statuses;

mod ends;
mod waves;

/// A pass that takes longer does not keep others from beginning.
const YOUNG: Duration = Duration::from_secs(2);

/// What ended.
pub(super) enum Done {
    /// A pass.
    Pass(Box<Report>),
    /// Something about a resource on the control plane, or a pass that the control plane did not let happen; the watch
    /// brings what came of it.
    Chore(bool),
}

/// See the module.
pub(super) struct Conductor {
    pub(super) register: Register,
    pub(super) queue: Queue,
    pub(super) common: Arc<Common>,
    settings: DirectSettings,
    installations: Installations,
    desired: Option<Arc<Desired>>,
    rollouts: Option<Rollouts>,
    paused: bool,
    jobs: JoinSet<Done>,
    names: HashMap<Id, Name>,
    running: HashMap<Name, Running>,
    /// When everything is looked at again.
    thorough_at: HashMap<Name, Instant>,
    /// Until when a runtime asked to be left alone, whatever happens.
    left_alone: HashMap<Name, Instant>,
    statuses: Statuses,
    progress: watch::Sender<String>,
}

struct Running {
    since: Instant,
    again: bool,
}

impl Conductor {
    pub(super) fn new(
        settings: DirectSettings,
        common: Arc<Common>,
        installations: Installations,
        statuses: Statuses,
        progress: watch::Sender<String>,
    ) -> Self {
        Self {
            register: Register::default(),
            queue: Queue::default(),
            common,
            settings,
            installations,
            desired: None,
            rollouts: None,
            paused: false,
            jobs: JoinSet::new(),
            names: HashMap::new(),
            running: HashMap::new(),
            thorough_at: HashMap::new(),
            left_alone: HashMap::new(),
            statuses,
            progress,
        }
    }

    /// Makes a runtime due now, or as soon as it may be called again.
    pub(super) fn wake(&mut self, name: &str) {
        let name = self.register.name(name);
        if let Some(running) = self.running.get_mut(&name) {
            running.again = true;
            return;
        }
        let now = Instant::now();
        let at = self.left_alone.get(&name).map_or(now, |it| now.max(*it));
        self.queue.hasten(&name, at);
    }

    /// A resource is gone.
    pub(super) fn forget(&mut self, name: &str) {
        let id = self
            .register
            .get(name)
            .and_then(|entry| entry.status.runtime_id.clone());
        if let Some(id) = id {
            self.common.claims.release(&id);
        }
        self.register.drop_resource(name);
        self.thorough_at.remove(name);
        self.left_alone.remove(name);
        self.leave_rollout(name);
        // Its Runtime may ask for a new one.
        self.wake(name);
    }

    /// Everybody is to hold this from now on.
    pub(super) fn aim(&mut self, desired: Desired) {
        if self.desired.as_deref() == Some(&desired) {
            return;
        }
        let aim = Aim {
            content: desired.version,
            webhook: self.installations.default().hash(),
        };
        self.desired = Some(Arc::new(desired));
        if self.rollouts.as_ref().is_none_or(|it| it.aim() != aim) {
            self.begin(aim);
        }
        let names: Vec<Name> = self
            .register
            .resources()
            .filter(|(_, entry)| entry.attempts == 0 || waves::is_reached(&entry.status))
            .map(|(name, _)| Name::clone(name))
            .collect();
        for name in names {
            self.wake(&name);
        }
    }

    /// When there is something to do next, if a pass could begin.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = self.queue.next()?;
        if self.has_room(Instant::now()) {
            return Some(due);
        }
        // A pass grows old, or ends, which wakes us anyway.
        Some(due.max(Instant::now() + YOUNG / 8))
    }

    fn has_room(&self, now: Instant) -> bool {
        let young = self
            .running
            .values()
            .filter(|it| now.duration_since(it.since) < YOUNG)
            .count();
        young < self.settings.passes && self.running.len() < 2 * self.settings.passes
    }

    /// Begins every pass that is due and has room.
    pub(super) fn begin_due(&mut self) {
        let now = Instant::now();
        let Some(desired) = self.desired.clone() else {
            return;
        };
        while self.has_room(now) {
            let Some(name) = self.queue.pop(now) else {
                break;
            };
            self.start(&name, &desired, now);
        }
        let metrics = &self.common.metrics;
        metrics.stand(self.queue.len(), self.running.len());
    }

    fn start(&mut self, name: &Name, desired: &Arc<Desired>, now: Instant) {
        let wish = self.register.wish(name);
        let Some(entry) = self.register.get(name) else {
            return;
        };
        let common = Arc::clone(&self.common);
        let job = match (wish, entry.resource.clone()) {
            (Wish::Adopt, _) => {
                let name = Name::clone(name);
                self.jobs.spawn(async move {
                    let made = common.lifecycle.adopt(&name).await;
                    ends::chore(&name, &made)
                })
            }
            (Wish::Dismiss, Some(resource)) => {
                let name = Name::clone(name);
                self.jobs.spawn(async move {
                    let gone = common.lifecycle.dismiss(&resource).await;
                    ends::chore(&name, &gone)
                })
            }
            // What we let go is nobody's business of ours any more, whoever still holds it.
            (_, Some(resource))
                if resource.meta().deletion_timestamp.is_some() && !is_held(&resource) =>
            {
                return;
            }
            (_, Some(resource)) => {
                let assignment = self.assignment(name, resource, desired, now);
                self.jobs.spawn(async move {
                    let (name, made) = (Name::clone(&assignment.name), pass(&common, assignment));
                    match made.await {
                        Ok(report) => Done::Pass(Box::new(report)),
                        Err(error) => ends::chore(&name, &Err(error)),
                    }
                })
            }
            (_, None) => return,
        };
        self.names.insert(job.id(), Name::clone(name));
        let running = Running {
            since: now,
            again: false,
        };
        self.running.insert(Name::clone(name), running);
    }

    fn assignment(
        &mut self,
        name: &Name,
        resource: Arc<RuntimeBootstrapper>,
        desired: &Arc<Desired>,
        now: Instant,
    ) -> Assignment {
        let entry = self.register.get(name);
        Assignment {
            name: Name::clone(name),
            previous: entry.map(|it| it.status.clone()).unwrap_or_default(),
            runtime: self.register.identify(name),
            desired: Arc::clone(desired),
            installation: self.installations.of(image(&resource)),
            withheld: self.withheld(name, &resource),
            thorough: self.thorough_at.get(name).is_some_and(|at| *at <= now),
            first: self.register.get(name).is_some_and(|it| it.attempts == 0),
            resource,
        }
    }

    /// The next job that ends; none while there are none.
    pub(super) async fn ended(&mut self) -> Option<Result<(Id, Done), JoinError>> {
        self.jobs.join_next_with_id().await
    }
}

fn image(resource: &RuntimeBootstrapper) -> Option<&str> {
    resource.spec.webhook.as_ref()?.image.as_deref()
}
