//! Who gets a pass, and when: the one task that knows all runtimes.
//!
//! Invariants: never two passes over one runtime at once; a change that comes during a pass leads to another one; a
//! runtime in trouble waits at its own growing distance and delays nobody: passes that take long do not count against
//! the number of passes for long. Everything that waits is in a queue or in a pass, nowhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::{RuntimeBootstrapper, WebhookSettings};
use kube::Resource as _;
use policy::sync::desired::Desired;
use policy::sync::known::SourceHistory;
use policy::sync::observed::Names as ObjectNames;
use policy::sync::sources::Sources;
use policy::sync::status::chain;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::DirectSettings;
use super::installations::Installations;
use super::lifecycle::is_held;
use super::pass::{Assignment, Common, Report, pass};
use super::queue::{Name, Queue};
use super::rollout::{Aim, Earlier, Rollouts};
use super::store::{AdoptionAction, RuntimeStore};
use super::writer::StatusQueue;

mod ends;
mod turns;
mod waves;

/// A pass that takes longer does not keep others from beginning.
pub(super) const YOUNG: Duration = Duration::from_secs(2);

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
    pub(super) register: RuntimeStore,
    pub(super) queue: Queue,
    /// Versions of kubeconfigs by runtime id: a relist wakes nobody, and no pass goes by an older one.
    pub(super) kubeconfigs: HashMap<String, String>,
    /// Those who are due, and for a look at everything (`turns`).
    whole: Queue,
    pub(super) common: Arc<Common>,
    settings: DirectSettings,
    installations: Installations,
    desired: Option<Arc<Desired>>,
    /// What that was made of.
    sources: Option<(Arc<Sources>, SourceHistory)>,
    /// What the three objects are called, where a resource says nothing else.
    objects: Arc<ObjectNames>,
    /// How often that was something else.
    aims: u64,
    rollouts: Option<Rollouts>,
    /// What an earlier leader knew of its rollout, until the first one begins here.
    earlier: Option<Earlier>,
    /// `None` until it is known.
    paused: Option<bool>,
    jobs: JoinSet<Done>,
    names: HashMap<Id, Name>,
    running: HashMap<Name, Running>,
    /// When everything is looked at again.
    thorough_at: HashMap<Name, Instant>,
    /// Until when a runtime asked to be left alone, whatever happens.
    left_alone: HashMap<Name, Instant>,
    statuses: StatusQueue,
    progress: watch::Sender<String>,
    /// From when the rollouts' time counts.
    origin: Instant,
}

struct Running {
    since: Instant,
    again: bool,
    /// Whether it may look at everything.
    whole: bool,
    /// The rollout of which it is a part: once another one began, its end says nothing about anybody's progress.
    aim: Option<Aim>,
}

impl Conductor {
    pub(super) fn new(
        settings: DirectSettings,
        common: Arc<Common>,
        installations: Installations,
        statuses: StatusQueue,
        progress: watch::Sender<String>,
    ) -> Self {
        Self {
            register: RuntimeStore::default(),
            queue: Queue::default(),
            kubeconfigs: HashMap::new(),
            whole: Queue::default(),
            aims: 0,
            common,
            objects: Arc::new(settings.names.clone()),
            settings,
            installations,
            desired: None,
            sources: None,
            rollouts: None,
            earlier: None,
            paused: None,
            jobs: JoinSet::new(),
            names: HashMap::new(),
            running: HashMap::new(),
            thorough_at: HashMap::new(),
            left_alone: HashMap::new(),
            statuses,
            progress,
            origin: Instant::now(),
        }
    }

    /// Makes a runtime due now, or as soon as it may be called again.
    pub(super) fn wake(&mut self, name: &str) {
        let name = self.register.name(name);
        if let Some(running) = self.running.get_mut(&name) {
            running.again = true;
            return;
        }
        if self.whole.contains(&name) {
            if !self.is_fresh(&name) {
                return;
            }
            self.whole.remove(&name);
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
            .and_then(|entry| entry.status.open().runtime_id);
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

    /// These are the sources from now on.
    pub(super) fn look_at(&mut self, sources: Arc<Sources>, known: SourceHistory) {
        // A document that cannot be read says nothing, and the one before stays on runtimes.
        if let Some(document) = sources.configuration.valid()
            && let Err(error) = self.installations.permit(document.mentions.pull_secret())
        {
            let error = chain(&error);
            tracing::error!(error, "failed to permit the pull Secret of the document");
        }
        let desired = Desired::new(&sources, &known, &self.objects);
        self.sources = Some((sources, known));
        self.aim(desired);
    }

    /// Everybody is to hold this from now on.
    fn aim(&mut self, desired: Desired) {
        if self.desired.as_deref() == Some(&desired) {
            return;
        }
        let aim = Aim {
            content: desired.version,
            revision: desired.revision,
            webhook: self.installations.default().hash(),
        };
        let desired = Arc::new(desired);
        self.desired = Some(Arc::clone(&desired));
        self.aims += 1;
        if self.aimed() != Some(aim) {
            self.begin(aim, &desired);
        }
        let names: Vec<Name> = self
            .register
            .resources()
            // A pass under way was begun for what everybody was to hold before.
            .filter(|(name, entry)| {
                entry.attempts == 0
                    || waves::is_reached(entry.status.shape())
                    || self.running.contains_key(*name)
            })
            .map(|(name, _)| Name::clone(name))
            .collect();
        for name in names {
            self.wake(&name);
        }
    }

    fn aimed(&self) -> Option<Aim> {
        self.rollouts.as_ref().map(Rollouts::aim)
    }

    fn start(&mut self, name: &Name, desired: &Arc<Desired>, whole: bool) {
        let now = Instant::now();
        let wish = self.register.wish(name);
        let Some(entry) = self.register.get(name) else {
            return;
        };
        let common = Arc::clone(&self.common);
        let resource = entry.resource.as_ref().map(|it| Box::new(it.open()));
        let job = match (wish, resource) {
            (AdoptionAction::Adopt, _) => {
                let name = Name::clone(name);
                self.jobs.spawn(async move {
                    let made = common.lifecycle.adopt(&name).await;
                    ends::chore(&name, &made)
                })
            }
            (AdoptionAction::Dismiss, Some(resource)) => {
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
                let assignment = self.assignment(name, resource, desired, whole);
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
            whole,
            aim: self.aimed(),
        };
        self.running.insert(Name::clone(name), running);
    }

    fn assignment(
        &mut self,
        name: &Name,
        resource: Box<RuntimeBootstrapper>,
        desired: &Arc<Desired>,
        whole: bool,
    ) -> Assignment {
        let fresh = self.is_fresh(name);
        let thorough = self.is_overdue(name, Instant::now());
        let withheld = self.withheld(name, &resource);
        let aims = self.aims;
        let own = resource.spec.webhook.as_ref();
        let (objects, desired) = self.objects(own, desired);
        let installation = self.installations.of(own);
        let entry = self.register.get_mut(name);
        let first = entry.is_some_and(|it| {
            it.aim = aims;
            fresh || it.attempts == 0
        });
        let entry = self.register.get(name);
        let runtime = self.register.identify(name);
        let id = runtime.as_ref().ok();
        Assignment {
            name: Name::clone(name),
            previous: entry.map(|it| it.status.open()).unwrap_or_default(),
            kubeconfig: id.and_then(|id| self.kubeconfigs.get(id.as_str()).cloned()),
            runtime,
            standing: self.register.standing(name),
            objects,
            desired,
            installation,
            withheld,
            thorough,
            whole,
            first,
            resource,
        }
    }

    /// What the three objects on a runtime are called, and what they should be.
    fn objects(
        &self,
        own: Option<&WebhookSettings>,
        desired: &Arc<Desired>,
    ) -> (Arc<ObjectNames>, Arc<Desired>) {
        let renamed = own.map(|own| renamed(&self.objects, own));
        match (renamed, &self.sources) {
            (Some(names), Some((sources, known))) if names != *self.objects => {
                let desired = Desired::new(sources, known, &names);
                (Arc::new(names), Arc::new(desired))
            }
            _ => (Arc::clone(&self.objects), Arc::clone(desired)),
        }
    }

    /// The next job that ends; none while there are none.
    pub(super) async fn ended(&mut self) -> Option<Result<(Id, Done), JoinError>> {
        self.jobs.join_next_with_id().await
    }
}

/// The webhook reads the objects by the names of its settings.
fn renamed(objects: &ObjectNames, own: &WebhookSettings) -> ObjectNames {
    let mut names = objects.clone();
    if let Some(name) = &own.config_map_name {
        names.configuration.clone_from(name);
    }
    // A pull Secret that is switched off stays so.
    if let (Some(name), Some(own)) = (&mut names.pull_secret, &own.pull_secret_name) {
        name.clone_from(own);
    }
    names
}
