//! Reports observed changes on KCP to the scheduler, and starts the reconciles that the scheduler returns.
//!
//! Invariant: the scheduler (`policy::sync::scheduler`) makes every decision about time, lanes and permits; the state of runtimes
//! is in the [`RuntimeStore`] only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::{
    CONFIGURATION_SYNCHRONIZED, Condition, ConditionStatus, RuntimeBootstrapper, WebhookSettings,
};
use component_base::telemetry::{LogLimit, error_chain};
use jiff::Timestamp;
use kube::Resource as _;
use policy::sync::ObjectNames;
use policy::sync::desired::Desired;
use policy::sync::history::SourceHistory;
use policy::sync::rollout::{Begin, Initial, Name, WritePermit};
use policy::sync::scheduler::{Access, Participation, Report, Scheduler, Settings, Work};
use policy::sync::signal::Eligibility;
use policy::sync::sources::Sources;
use policy::sync::status::{Goal, Reason};
use policy::sync::{Hash, Lane, Lanes};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::completion::{JobResult, KCP_LOG_INTERVAL};
use super::lifecycle::has_finalizer;
use super::metrics::ConditionLabels;
use super::reconcile::{Common, ReconcileRequest, goal, reconcile};
use super::revisions::Installations;
use super::rollout_status::RolloutReporter;
use super::store::{AdoptionAction, RuntimeStore, initial};
use super::writer::StatusQueue;
use super::{DirectSettings, WEBHOOK_RECONCILES};
use crate::rollouts::Stored;

/// State of all runtimes and the running reconciles. One task owns it.
pub(super) struct Dispatcher {
    pub(super) store: RuntimeStore,
    pub(super) scheduler: Scheduler,
    /// Resource versions of kubeconfig Secrets by runtime ID. No reconcile uses an older version.
    pub(super) kubeconfigs: HashMap<String, String>,
    pub(super) common: Arc<Common>,
    pub(super) installations: Installations,
    pub(super) statuses: StatusQueue,
    pub(super) rollouts: RolloutReporter,
    pub(super) jobs: JoinSet<JobResult>,
    pub(super) kcp_failures: LogLimit,
    pub(super) names: HashMap<Id, Name>,
    desired: Option<Arc<Desired>>,
    /// The input of `desired`.
    sources: Option<(Arc<Sources>, SourceHistory)>,
    /// Names of the three objects on runtimes, unless a resource overrides them.
    objects: Arc<ObjectNames>,
    /// Start of the time of the scheduler.
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
        let (backoff, progress) = (settings.backoff, settings.progress_backoff);
        let scheduler = Scheduler::new(Settings {
            rollouts: settings.rollouts.clone(),
            concurrency: settings.max_concurrent_reconciles,
            webhook_concurrency: WEBHOOK_RECONCILES.min(settings.max_concurrent_reconciles),
            slow_after: settings.slow_after,
            resync: settings.resync,
            failure_delay: Arc::new(move |attempt, random| backoff.delay(attempt, random)),
            progress_delay: Arc::new(move |attempt, random| progress.delay(attempt, random)),
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
            kcp_failures: LogLimit::new(KCP_LOG_INTERVAL),
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

    /// Makes a runtime due now, or when its backoff allows it.
    pub(super) fn wake(&mut self, name: &str) {
        let (name, now) = (self.store.name(name), self.now());
        self.scheduler.wake(&name, now);
    }

    /// Makes the configuration lane of a runtime due now, or when its backoff allows it.
    pub(super) fn wake_configuration(&mut self, name: &str) {
        let (name, now) = (self.store.name(name), self.now());
        self.scheduler.wake_lane(&name, Lane::Configuration, now);
    }

    /// Updates the participation of a runtime in rollouts, after its resource or its Runtime changed.
    pub(super) fn refresh(&mut self, name: &str) {
        let name = self.store.name(name);
        let Some(resource) = self.store.get(&name).and_then(|it| it.resource.as_ref()) else {
            return;
        };
        let participation = match goal(resource.shape()) {
            Goal::Sync if resource.shape().spec.paused => Participation::Paused,
            Goal::Sync => Participation::Active {
                order: self.store.info(&name).map_or(u32::MAX, |it| it.order),
            },
            Goal::Delete | Goal::Orphan => Participation::Other,
        };
        let initials = Lanes::from_fn(|lane| self.initial(&name, lane));
        let now = self.now();
        let initial = |lane| *initials.get(lane);
        self.scheduler.put(&name, participation, now, initial);
        self.publish();
    }

    /// Handles a resource that cannot be read: its runtime is neither reconciled nor a member of a rollout. Its
    /// cluster remains claimed.
    pub(super) fn suspend(&mut self, name: &str) {
        self.store.drop_resource(name);
        self.scheduler.remove(name, self.now());
        self.publish();
    }

    /// Handles the deletion of a resource.
    pub(super) fn forget(&mut self, name: &str) {
        let id = self
            .store
            .get(name)
            .and_then(|entry| entry.status.expand().runtime_id);
        if let Some(id) = id {
            self.common.claims.release(&id);
        }
        self.suspend(name);
        // The Runtime may need a new resource.
        self.wake(name);
    }

    /// Sets the sources.
    pub(super) fn set_sources(&mut self, sources: Arc<Sources>, known: SourceHistory) {
        let desired = Desired::new(&sources, &known, &self.objects);
        self.sources = Some((sources, known));
        let has_changed = self.desired.as_deref() != Some(&desired);
        if has_changed {
            self.desired = Some(Arc::new(desired));
        }
        self.begin_rollouts();
        if has_changed {
            // The desired objects may differ although their revision does not: for example, in the reason why a
            // source is not written.
            let now = self.now();
            let resources = self.store.resources();
            let reached = resources.filter(|(_, it)| it.status.is_reached());
            let names: Vec<Name> = reached.map(|(name, _)| Name::clone(name)).collect();
            for name in names {
                self.scheduler.wake_lane(&name, Lane::Configuration, now);
            }
        }
    }

    /// Sets the stored rollout objects: the progress that an earlier leader reported, and whether an operator pauses
    /// a rollout or selects an earlier revision.
    pub(super) fn set_stored(&mut self, stored: BTreeMap<String, Stored>) {
        self.rollouts.set(stored);
        for lane in Lane::ALL {
            let (is_paused, now) = (self.rollouts.stored(lane).paused, self.now());
            self.scheduler.pause(lane, is_paused, now);
        }
        self.begin_rollouts();
        self.publish();
    }

    /// Starts the rollout of each lane whose target changed.
    fn begin_rollouts(&mut self) {
        let Some(desired) = self.desired.clone().filter(|_| self.rollouts.is_known()) else {
            return;
        };
        self.permit_secret();
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
            let has_begun = resumed.is_some_and(|it| !it.is_complete);
            let failed = has_begun.then(|| self.rollouts.failed(lane));
            let (deleted, failed) = failed.unwrap_or_default();
            let is_kept = |it: &Hash| lane == Lane::Configuration || self.installations.has(*it);
            let (completed, now) = (completed.filter(is_kept), self.now());
            let (store, desired) = (&self.store, &*desired);
            let counted = deleted.iter().chain(&failed);
            let counted = counted.filter(|it| !is_excluded(store, it));
            let counted: Vec<Name> = counted.map(|it| Name::from(&**it)).collect();
            self.scheduler.recall_failed(lane, counted);
            let begin = Begin {
                target,
                completed,
                resumed,
                now,
            };
            self.scheduler.begin(lane, begin, |name| {
                let entry = store.get(name);
                entry.map_or_else(Initial::default, |it| {
                    let mut known = initial(it.status.shape(), lane, desired, resumed.is_some());
                    // The status may not show that the runtime started.
                    if failed.contains(&**name) {
                        (known.revision, known.is_failed) = (Some(target), true);
                    }
                    known
                })
            });
        }
        self.publish();
    }

    /// Gives the webhook the permission for the pull Secret that the configuration document names. While the document
    /// is missing or invalid, the previous document stays on runtimes, and so does the permission. A new leader reads
    /// the permission from the revision that is rolled out.
    fn permit_secret(&mut self) {
        let sources = self.sources.as_ref();
        let document = sources.and_then(|(it, _)| it.configuration.valid());
        let permitted = match document {
            Some(document) => self.installations.permit(document.references.pull_secret()),
            None if self.scheduler.rollout(Lane::Webhook).target().is_some() => return,
            None => match self.rollouts.reported_revision(Lane::Webhook) {
                Some(revision) => self.installations.permit_as(revision),
                None => return,
            },
        };
        if let Err(error) = permitted {
            let error = error_chain(&error);
            tracing::error!(error, "failed to permit the pull Secret of the document");
        }
    }

    fn initial(&self, name: &str, lane: Lane) -> Initial {
        match (self.store.get(name), &self.desired) {
            (Some(entry), Some(desired)) => initial(entry.status.shape(), lane, desired, false),
            _ => Initial::default(),
        }
    }

    /// Reports the progress of the rollouts.
    pub(super) fn publish(&mut self) {
        let sources = self.sources.as_ref();
        let invalid = sources.and_then(|(it, _)| it.invalid_text());
        for lane in Lane::ALL {
            let rollout = self.scheduler.rollout(lane);
            let version = rollout.target().filter(|_| lane == Lane::Webhook);
            let version = version.and_then(|it| self.installations.version(it));
            if rollout.target().is_some() {
                self.common.metrics.rollout(lane.name(), rollout.progress());
            }
            let invalid = invalid.clone().filter(|_| lane == Lane::Configuration);
            self.rollouts.report(lane, rollout, (version, invalid));
        }
    }

    /// Updates the gauges of runtimes by condition.
    pub(super) fn update_gauges(&self) {
        let mut runtimes: BTreeMap<ConditionLabels, i64> = BTreeMap::new();
        let mut oldest: Option<Timestamp> = None;
        for (_, entry) in self.store.resources() {
            // Times are not stored in the shared shape.
            for condition in &entry.status.shape().conditions {
                let labels = [
                    ("type", condition.kind.clone()),
                    ("status", format!("{:?}", condition.status)),
                    ("reason", condition.reason.clone()),
                ];
                *runtimes.entry(labels).or_default() += 1;
            }
            // Excluded: a runtime that is paused, or that serves no ClusterTrustBundles and has all the rest.
            let ignored = [Reason::Paused, Reason::TrustBundleAPINotServed].map(Reason::name);
            let is_waiting = |it: &&Condition| {
                it.kind == CONFIGURATION_SYNCHRONIZED
                    && it.status != ConditionStatus::True
                    && !ignored.contains(&&*it.reason)
            };
            if entry
                .status
                .shape()
                .conditions
                .iter()
                .any(|it| is_waiting(&it))
            {
                let status = entry.status.expand();
                let since = status.conditions.iter().find(is_waiting);
                let since = since.and_then(|it| it.last_transition_time.parse().ok());
                oldest = oldest.into_iter().chain(since).min();
            }
        }
        let age = oldest.map(|it| Timestamp::now().duration_since(it));
        let age = age.and_then(|it| Duration::try_from(it).ok());
        self.common
            .metrics
            .set_runtimes(runtimes, age.unwrap_or_default());
    }

    /// Returns the time at which the next reconcile is due, if no other reconcile ends before.
    pub(super) fn next(&self) -> Option<Instant> {
        let next = self.scheduler.next(self.now())?;
        Some(self.origin + next)
    }

    /// Starts every reconcile that is due, up to the limits.
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
        self.common
            .metrics
            .set_workqueue(due, self.scheduler.running());
    }

    fn start(&mut self, work: Work, desired: &Arc<Desired>) {
        let name = Name::clone(&work.name);
        let common = Arc::clone(&self.common);
        let resource = self.store.get(&name).and_then(|it| it.resource.as_ref());
        let resource = resource.map(|it| Box::new(it.expand()));
        let job = match (self.store.adoption_action(&name), resource) {
            (AdoptionAction::Adopt, _) => {
                let shoot = self.store.info(&name).and_then(|it| it.shoot.clone());
                self.jobs.spawn(async move {
                    let adopted = common.lifecycle.adopt(&work.name, shoot.as_deref());
                    adopted.await.map(|()| None)
                })
            }
            (AdoptionAction::Delete, Some(resource)) => self.jobs.spawn(async move {
                let deleted = common.lifecycle.delete(&resource).await;
                deleted.map(|()| None)
            }),
            (_, Some(resource))
                if resource.meta().deletion_timestamp.is_some() && !has_finalizer(&resource) =>
            {
                // The resource waits for a finalizer of another controller.
                let now = self.now();
                self.scheduler.finish(&name, Report::Idle, now, 0);
                return;
            }
            (_, Some(resource)) => {
                let request = self.request(&work, resource, desired);
                self.jobs.spawn(async move {
                    let result = reconcile(&common, request).await;
                    result.map(|it| Some(Box::new(it)))
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
        let overrides = resource.spec.webhook.as_ref();
        let rollout = self.scheduler.rollout(Lane::Webhook);
        let permitted = match work.lanes.webhook {
            Some(Access::Write(permit)) => Some(permit),
            Some(Access::Observe(_)) | None => rollout.access(name),
        };
        let permitted = permitted.map(WritePermit::revision);
        // The webhook on the runtime reads the objects by the names of its own revision.
        let named_by = permitted.or(rollout.revision(name)).or(rollout.target());
        let revision = permitted.or(rollout.target());
        let current = self.installations.current();
        let (objects, desired) = self.objects(named_by.unwrap_or(current), overrides, desired);
        let installation = self
            .installations
            .of(revision.unwrap_or(current), overrides);
        let (entry, info) = (self.store.get(name), self.store.info(name));
        let runtime = self.store.identify(name);
        let id = runtime.as_ref().ok();
        ReconcileRequest {
            name: Name::clone(name),
            previous: entry.map(|it| it.status.expand()).unwrap_or_default(),
            kubeconfig: id.and_then(|id| self.kubeconfigs.get(id.as_str()).cloned()),
            runtime,
            eligibility: info.map_or(Eligibility::NotSelected, |it| it.eligibility),
            objects,
            desired,
            installation,
            lanes: work.lanes,
            resource,
        }
    }

    /// Names and contents of the three objects on a runtime whose webhook has this revision.
    fn objects(
        &self,
        revision: Hash,
        overrides: Option<&WebhookSettings>,
        desired: &Arc<Desired>,
    ) -> (Arc<ObjectNames>, Arc<Desired>) {
        let names = self.installations.names(revision, &self.objects, overrides);
        match &self.sources {
            Some((sources, known)) if names != *self.objects => {
                let desired = Desired::new(sources, known, &names);
                (Arc::new(names), Arc::new(desired))
            }
            _ => (Arc::clone(&self.objects), Arc::clone(desired)),
        }
    }
}

/// Returns whether an operator excludes a runtime from rollouts.
fn is_excluded(store: &RuntimeStore, name: &str) -> bool {
    let resource = store.get(name).and_then(|it| it.resource.as_ref());
    resource.is_some_and(|it| goal(it.shape()) == Goal::Sync && it.shape().spec.paused)
}

impl Drop for Dispatcher {
    /// Resets the metrics, because the next leader reports them.
    fn drop(&mut self) {
        self.common.metrics.clear();
    }
}
