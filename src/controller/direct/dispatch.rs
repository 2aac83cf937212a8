//! The task that knows all runtimes: it feeds the scheduler with what is observed on KCP, and starts the reconciles that the
//! scheduler gives.
//!
//! Invariant: every decision about time, lanes and permits is the scheduler's (`policy::sync::scheduler`); what is known of
//! runtimes is in the [`RuntimeStore`] only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, Condition, ConditionStatus, RuntimeBootstrapper, WebhookSettings,
};
use jiff::Timestamp;
use kube::Resource as _;
use policy::sync::desired::Desired;
use policy::sync::known::SourceHistory;
use policy::sync::observed::Names as ObjectNames;
use policy::sync::rollout::{Begin, Initial, Name, WritePermit};
use policy::sync::scheduler::{Access, Participation, Report, Scheduler, Settings, Work};
use policy::sync::sources::Sources;
use policy::sync::status::{Goal, chain};
use policy::sync::{Hash, Lane, Lanes};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::completion::{self, Ended};
use super::lifecycle::is_held;
use super::metrics::ConditionLabels;
use super::reconcile::{Common, ReconcileRequest, goal, reconcile};
use super::revisions::{Installations, object_names};
use super::rollout_status::RolloutReporter;
use super::store::{AdoptionAction, RuntimeStore, initial};
use super::writer::StatusQueue;
use super::{DirectSettings, WEBHOOK_RECONCILES};
use crate::rollouts::Stored;

/// See the module.
pub(super) struct Dispatcher {
    pub(super) store: RuntimeStore,
    pub(super) scheduler: Scheduler,
    /// Versions of kubeconfigs by runtime ID: no reconcile uses an older one.
    pub(super) kubeconfigs: HashMap<String, String>,
    pub(super) common: Arc<Common>,
    pub(super) installations: Installations,
    pub(super) statuses: StatusQueue,
    pub(super) rollouts: RolloutReporter,
    pub(super) jobs: JoinSet<Ended>,
    pub(super) names: HashMap<Id, Name>,
    desired: Option<Arc<Desired>>,
    /// What that was made of.
    sources: Option<(Arc<Sources>, SourceHistory)>,
    /// Names of the three objects, unless a resource names others.
    objects: Arc<ObjectNames>,
    /// The scheduler's time counts from here.
    origin: Instant,
}

impl Dispatcher {
    pub(super) fn new(
        settings: &DirectSettings,
        common: Arc<Common>,
        installations: Installations,
        statuses: StatusQueue,
        rollouts: RolloutReporter,
    ) -> Self {
        let (backoff, soon) = (settings.backoff, settings.soon);
        let scheduler = Scheduler::new(Settings {
            rollouts: settings.rollouts.clone(),
            concurrency: settings.passes,
            webhook_concurrency: WEBHOOK_RECONCILES.min(settings.passes),
            resync: settings.resync,
            failure_delay: Arc::new(move |attempt, random| backoff.delay(attempt, random)),
            progress_delay: Arc::new(move |attempt, random| soon.delay(attempt, random)),
        });
        Self {
            store: RuntimeStore::default(),
            scheduler,
            kubeconfigs: HashMap::new(),
            common,
            installations,
            statuses,
            rollouts,
            jobs: JoinSet::new(),
            names: HashMap::new(),
            desired: None,
            sources: None,
            objects: Arc::new(settings.names.clone()),
            origin: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Makes a runtime due now, or as soon as it may be called.
    pub(super) fn wake(&mut self, name: &str) {
        let (name, now) = (self.store.name(name), self.now());
        self.scheduler.wake(&name, now);
    }

    /// Makes the configuration lane of a runtime due now, or as soon as it may be called.
    pub(super) fn wake_configuration(&mut self, name: &str) {
        let (name, now) = (self.store.name(name), self.now());
        self.scheduler.wake_lane(&name, Lane::Configuration, now);
    }

    /// Notes how a runtime takes part, after its resource or its Runtime changed.
    pub(super) fn refresh(&mut self, name: &str) {
        let name = self.store.name(name);
        let Some(resource) = self.store.get(&name).and_then(|it| it.resource.as_ref()) else {
            return;
        };
        let participation = match goal(resource.shape()) {
            Goal::Sync if resource.shape().spec.paused => Participation::Paused,
            Goal::Sync => Participation::Active {
                order: self.store.order(&name),
            },
            Goal::Delete | Goal::Orphan => Participation::Other,
        };
        let initials = Lanes::from_fn(|lane| self.initial(&name, lane));
        let now = self.now();
        let initial = |lane| *initials.get(lane);
        self.scheduler.put(&name, participation, now, initial);
        self.publish();
    }

    /// A resource cannot be read: its runtime is neither reconciled nor part of a rollout. Its cluster remains claimed.
    pub(super) fn suspend(&mut self, name: &str) {
        self.store.drop_resource(name);
        self.scheduler.remove(name, self.now());
        self.publish();
    }

    /// A resource is gone.
    pub(super) fn forget(&mut self, name: &str) {
        let id = self
            .store
            .get(name)
            .and_then(|entry| entry.status.open().runtime_id);
        if let Some(id) = id {
            self.common.claims.release(&id);
        }
        self.suspend(name);
        // Its Runtime may ask for a new one.
        self.wake(name);
    }

    /// These are the sources from now on.
    pub(super) fn set_sources(&mut self, sources: Arc<Sources>, known: SourceHistory) {
        // A document that cannot be read says nothing, and the one before stays on runtimes.
        if let Some(document) = sources.configuration.valid()
            && let Err(error) = self.installations.permit(document.mentions.pull_secret())
        {
            let error = chain(&error);
            tracing::error!(error, "failed to permit the pull Secret of the document");
        }
        let desired = Desired::new(&sources, &known, &self.objects);
        self.sources = Some((sources, known));
        let has_changed = self.desired.as_deref() != Some(&desired);
        if has_changed {
            self.desired = Some(Arc::new(desired));
        }
        self.begin_rollouts();
        if has_changed {
            // What is desired may differ although its revision does not, such as the reason why a source is not written.
            let now = self.now();
            let resources = self.store.resources();
            let reached = resources.filter(|(_, it)| it.status.is_reached());
            let names: Vec<Name> = reached.map(|(name, _)| Name::clone(name)).collect();
            for name in names {
                self.scheduler.wake_lane(&name, Lane::Configuration, now);
            }
        }
    }

    /// What the objects of the rollouts say: what an earlier leader reported, and whether an operator pauses a rollout or
    /// selects an earlier revision.
    pub(super) fn set_stored(&mut self, stored: BTreeMap<String, Stored>) {
        self.rollouts.set(stored);
        for lane in Lane::ALL {
            let (is_paused, now) = (self.rollouts.stored(lane).paused, self.now());
            self.scheduler.pause(lane, is_paused, now);
        }
        self.begin_rollouts();
        self.publish();
    }

    /// Begins the rollout of each lane that has another target than before.
    fn begin_rollouts(&mut self) {
        let Some(desired) = self.desired.clone().filter(|_| self.rollouts.is_known()) else {
            return;
        };
        let rollback = self.rollouts.rollback(&self.installations);
        let targets = Lanes {
            configuration: desired.revision,
            webhook: rollback.unwrap_or_else(|| self.installations.current()),
        };
        for lane in Lane::ALL {
            let target = *targets.get(lane);
            let before = self.scheduler.rollout(lane);
            if before.target() == Some(target) {
                continue;
            }
            let (completed, resumed) = match before.target() {
                Some(_) => (before.completed(), None),
                None => self.rollouts.resume(lane, target),
            };
            let is_kept = |it: &Hash| lane == Lane::Configuration || self.installations.has(*it);
            let (completed, now) = (completed.filter(is_kept), self.now());
            let (store, desired) = (&self.store, &*desired);
            let begin = Begin {
                target,
                completed,
                resumed,
                now,
            };
            self.scheduler.begin(lane, begin, |name| {
                let entry = store.get(name);
                entry.map_or_else(Initial::default, |it| {
                    initial(it.status.shape(), lane, desired, resumed.is_some())
                })
            });
        }
        self.publish();
    }

    fn initial(&self, name: &str, lane: Lane) -> Initial {
        match (self.store.get(name), &self.desired) {
            (Some(entry), Some(desired)) => initial(entry.status.shape(), lane, desired, false),
            _ => Initial::default(),
        }
    }

    /// Reports the progress of the rollouts.
    pub(super) fn publish(&mut self) {
        for lane in Lane::ALL {
            let rollout = self.scheduler.rollout(lane);
            let version = rollout.target().filter(|_| lane == Lane::Webhook);
            let version = version.and_then(|it| self.installations.version(it));
            if rollout.target().is_some() {
                self.common.metrics.rollout(lane.name(), rollout.progress());
            }
            self.rollouts.report(lane, rollout, version);
        }
    }

    /// Shows in metrics how many runtimes have each condition.
    pub(super) fn observe(&self) {
        let mut runtimes: BTreeMap<ConditionLabels, i64> = BTreeMap::new();
        let mut oldest: Option<Timestamp> = None;
        for (_, entry) in self.store.resources() {
            // Times are not part of the shared shape.
            for condition in &entry.status.shape().conditions {
                let labels = ConditionLabels {
                    r#type: condition.kind.clone(),
                    status: format!("{:?}", condition.status),
                    reason: condition.reason.clone(),
                };
                *runtimes.entry(labels).or_default() += 1;
            }
            let is_synchronized = |it: &&Condition| {
                it.kind == CONFIGURATION_SYNCHRONIZED && it.status != ConditionStatus::True
            };
            if entry
                .status
                .shape()
                .conditions
                .iter()
                .any(|it| is_synchronized(&it))
            {
                let status = entry.status.open();
                let since = status.conditions.iter().find(is_synchronized);
                let since = since.and_then(|it| it.last_transition_time.parse().ok());
                oldest = oldest.into_iter().chain(since).min();
            }
        }
        let age = oldest.map(|it| Timestamp::now().duration_since(it));
        let age = age.and_then(|it| Duration::try_from(it).ok());
        self.common
            .metrics
            .observe(runtimes, age.unwrap_or_default());
    }

    /// When something is to be started, if no reconcile ends before.
    pub(super) fn next(&self) -> Option<Instant> {
        let next = self.scheduler.next(self.now())?;
        Some(self.origin + next)
    }

    /// Starts every reconcile that is due and for which there is capacity.
    pub(super) fn start_due(&mut self) {
        let now = self.now();
        let Some(desired) = self.desired.clone() else {
            return;
        };
        while let Some(work) = self.scheduler.start(now) {
            self.start(work, &desired);
        }
        let due = self.scheduler.due(now);
        self.statuses.set_low_priority(due > 0);
        self.common.metrics.stand(due, self.scheduler.running());
    }

    fn start(&mut self, work: Work, desired: &Arc<Desired>) {
        let name = Name::clone(&work.name);
        let common = Arc::clone(&self.common);
        let resource = self.store.get(&name).and_then(|it| it.resource.as_ref());
        let resource = resource.map(|it| Box::new(it.open()));
        let job = match (self.store.wish(&name), resource) {
            (AdoptionAction::Adopt, _) => {
                let shoot = self.store.shoot(&name).map(str::to_owned);
                self.jobs.spawn(async move {
                    let adopted = common.lifecycle.adopt(&work.name, shoot.as_deref()).await;
                    completion::of_kcp(&work.name, &adopted)
                })
            }
            (AdoptionAction::Dismiss, Some(resource)) => self.jobs.spawn(async move {
                let dismissed = common.lifecycle.dismiss(&resource).await;
                completion::of_kcp(&work.name, &dismissed)
            }),
            (_, Some(resource))
                if resource.meta().deletion_timestamp.is_some() && !is_held(&resource) =>
            {
                // Another finalizer holds it.
                let now = self.now();
                self.scheduler.finish(&name, Report::Idle, now, 0);
                return;
            }
            (_, Some(resource)) => {
                let request = self.request(&work, resource, desired);
                self.jobs.spawn(async move {
                    match reconcile(&common, request).await {
                        Ok(result) => Ended::Reconciled(Box::new(result)),
                        Err(error) => completion::of_kcp(&work.name, &Err(error)),
                    }
                })
            }
            (_, None) => {
                self.scheduler.remove(&name, self.now());
                self.scheduler
                    .finish(&name, Report::Idle, Duration::ZERO, 0);
                return;
            }
        };
        self.names.insert(job.id(), name);
    }

    fn request(
        &mut self,
        work: &Work,
        resource: Box<RuntimeBootstrapper>,
        desired: &Arc<Desired>,
    ) -> ReconcileRequest {
        let name = &work.name;
        let own = resource.spec.webhook.as_ref();
        let (objects, desired) = self.objects(own, desired);
        let rollout = self.scheduler.rollout(Lane::Webhook);
        let permitted = match work.lanes.webhook {
            Some(Access::Write(permit)) => Some(permit),
            Some(Access::Observe(_)) | None => rollout.access(name),
        };
        let revision = permitted.map(WritePermit::revision).or(rollout.target());
        let revision = revision.unwrap_or_else(|| self.installations.current());
        let installation = self.installations.of(revision, own);
        let entry = self.store.get(name);
        let runtime = self.store.identify(name);
        let id = runtime.as_ref().ok();
        ReconcileRequest {
            name: Name::clone(name),
            previous: entry.map(|it| it.status.open()).unwrap_or_default(),
            kubeconfig: id.and_then(|id| self.kubeconfigs.get(id.as_str()).cloned()),
            runtime,
            eligibility: self.store.standing(name),
            objects,
            desired,
            installation,
            lanes: work.lanes,
            resource,
        }
    }

    /// Names and contents of the three objects on a runtime.
    fn objects(
        &self,
        own: Option<&WebhookSettings>,
        desired: &Arc<Desired>,
    ) -> (Arc<ObjectNames>, Arc<Desired>) {
        let names = object_names(&self.objects, own);
        match &self.sources {
            Some((sources, known)) if names != *self.objects => {
                let desired = Desired::new(sources, known, &names);
                (Arc::new(names), Arc::new(desired))
            }
            _ => (Arc::clone(&self.objects), Arc::clone(desired)),
        }
    }
}

impl Drop for Dispatcher {
    /// The next leader shows the figures.
    fn drop(&mut self) {
        self.common.metrics.clear();
    }
}
