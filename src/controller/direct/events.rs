//! The main loop: handles events of watches, changes of the sources, results of reconciles, and timers.
//!
//! Invariant: one task handles all of them sequentially, so no lock is needed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::{KUBECONFIG_PREFIX, RUNTIME_ID, kubeconfig_secret};
use component_base::watch::WatchChange;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use policy::sync::history::Grace;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::dispatch::Dispatcher;
use super::lifecycle::Lifecycle;
use super::reconcile::{Common, Deletions};
use super::revisions::RevisionStore;
use super::state_update::{StateUpdate, StateUpdater};
use super::store::{Change, RuntimeInfo};
use super::{DirectOptions, rollout_status, watches, writer};
use crate::absent::{AbsentSources, EventSettings, PendingEvent};
use crate::access::ClientFactory;
use crate::claims::Claims;
use crate::clients::{ConnectionLimits, RequestLimiter, RuntimeId};
use crate::clock::Clock;
use crate::inventory::{RuntimeChanges, RuntimeView};
use crate::kube_events::EventWriter;
use crate::rollouts;
use crate::sources::Published;

/// Interval at which the gauges of runtimes are computed.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);

/// Delay before a failed read or write of the state ConfigMap is repeated.
const STATE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Time limit for reconciles to end after the token is canceled. The Lease is held for longer.
const DRAIN: Duration = Duration::from_secs(5);

/// The main loop of the controller.
pub(super) struct Loop {
    dispatcher: Dispatcher,
    options: DirectOptions,
    /// `None` while an update runs.
    updater: Option<StateUpdater>,
    updates: FuturesUnordered<BoxFuture<'static, StateUpdate>>,
    /// Whether the state on KCP is known.
    has_state: bool,
    absent: AbsentSources,
    /// Writes of Events and of revisions that are running.
    tasks: FuturesUnordered<PendingEvent>,
    clock: Clock,
    /// The time at which the sources are read again: after a change, or when a grace period ends.
    next_update: Option<Instant>,
    listed: Listed,
    /// Names of resources that cannot be deserialized.
    unreadable: BTreeSet<String>,
    /// Whether all first lists were handled.
    has_started: bool,
    writing: BoxFuture<'static, ()>,
}

/// Whether the first list of each watch is complete.
#[derive(Clone, Copy, Default)]
struct Listed {
    resources: bool,
    runtimes: bool,
    kubeconfigs: bool,
}

impl Loop {
    pub(super) fn new(options: DirectOptions) -> Self {
        let settings = options.settings.clone();
        let installations = options.installations.clone();
        let client = options.client.clone();
        let metrics = &options.metrics;
        let limiter =
            |size, name| RequestLimiter::new(size, settings.slow_after, metrics.limit(name));
        let common = Arc::new(Common {
            client_factory: ClientFactory::new(
                client.clone(),
                &settings.namespace,
                options.fleet.clone(),
            ),
            limits: ConnectionLimits {
                handshakes: limiter(settings.max_handshakes, "handshakes"),
                connections: limiter(settings.max_connections, "connections"),
            },
            lifecycle: Lifecycle::new(client.clone(), &settings),
            deletions: Deletions::new(settings.min_deletion_time),
            claims: Claims::default(),
            control_plane: options.salt.control_plane(),
            metrics: options.metrics.clone(),
        });
        let events = |action| EventWriter {
            client: client.clone(),
            reporter: options.reporter.clone(),
            action,
        };
        let (statuses, status_writer) = writer::status_queue(
            events("Reconcile"),
            &settings.namespace,
            settings.statuses_per_second,
            options.metrics.clone(),
        );
        let (reporter, reporting) =
            rollout_status::reporter(events("RollOut"), &settings.namespace);
        let writing = async move {
            tokio::join!(status_writer, reporting);
        };
        let absent = AbsentSources::new(EventSettings {
            events: events("SynchronizeSource"),
            metrics: options.source_metrics.clone(),
            controller: "direct",
            outcome: "its copies on runtimes are deleted",
        });
        let updater = StateUpdater::new(&client, &settings.namespace);
        Self {
            dispatcher: Dispatcher::new(&settings, common, installations, statuses, reporter),
            options,
            updater: Some(updater),
            updates: FuturesUnordered::new(),
            has_state: false,
            absent,
            tasks: FuturesUnordered::new(),
            clock: Clock::new(),
            next_update: None,
            listed: Listed::default(),
            unreadable: BTreeSet::new(),
            has_started: false,
            writing: Box::pin(writing),
        }
    }

    /// Runs the loop until the token is canceled and the running reconciles have ended, or [`DRAIN`] is over. The
    /// wait ensures that an object that is being replaced is not left deleted.
    pub(super) async fn run(mut self, runtimes: RuntimeChanges, token: CancellationToken) {
        let options = &self.options;
        let mut resources = watches::resources(options);
        let RuntimeChanges(mut runtimes) = runtimes;
        let mut kubeconfigs = watches::kubeconfigs(options);
        let namespace = &options.settings.namespace;
        let mut rollout = rollouts::watch(&options.client, namespace, &options.readiness);
        let mut sources: Published = options.sources.clone();
        sources.mark_changed();
        let mut gauges = interval(GAUGE_INTERVAL);
        gauges.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drained = None;
        let mut writing = std::mem::replace(&mut self.writing, Box::pin(std::future::pending()));
        loop {
            if drained.is_some() && self.dispatcher.is_idle() {
                return;
            }
            if self.is_ready() && drained.is_none() {
                self.has_started = true;
                self.dispatcher.start_due();
            }
            let due = self.next().filter(|_| drained.is_none());
            tokio::select! {
                () = token.cancelled(), if drained.is_none() => drained = Some(Instant::now() + DRAIN),
                () = wait(drained) => return,
                Some(event) = resources.next() => self.take_resource(event),
                Some(event) = runtimes.next() => self.take_runtime(event),
                Some(event) = kubeconfigs.next() => self.take_kubeconfig(event),
                Some(stored) = rollout.next() => self.dispatcher.set_stored(stored),
                Ok(()) = sources.changed() => self.schedule_update(),
                Some(ended) = self.dispatcher.next_result() => self.dispatcher.complete(ended),
                Some(()) = self.tasks.next() => {}
                _ = gauges.tick() => self.dispatcher.update_gauges(),
                () = &mut writing => return,
                Some(update) = self.updates.next() => self.finish_update(update),
                () = wait(due) => self.update_sources(&sources),
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.is_listed() && self.has_state
    }

    /// Returns whether the first lists are complete. The list of the rollouts is included, because a rollout may be paused.
    fn is_listed(&self) -> bool {
        let Listed {
            resources,
            runtimes,
            kubeconfigs,
        } = self.listed;
        resources && runtimes && kubeconfigs && self.dispatcher.rollouts.is_known()
    }

    fn next(&self) -> Option<Instant> {
        let may_update = self.is_listed() && self.updater.is_some();
        let sources = self.next_update.filter(|_| may_update);
        let reconciles = self.dispatcher.next().filter(|_| self.is_ready());
        [sources, reconciles].into_iter().flatten().min()
    }

    /// Schedules an update. The delay counts from the first change, so further changes do not postpone it.
    fn schedule_update(&mut self) {
        self.update_by(Instant::now() + self.options.settings.debounce);
    }

    fn update_by(&mut self, at: Instant) {
        self.next_update = Some(self.next_update.map_or(at, |it| it.min(at)));
    }

    /// Starts an update of the state, if it is due and no update is running.
    fn update_sources(&mut self, published: &Published) {
        if self.next_update.is_none_or(|at| at > Instant::now()) {
            return;
        }
        let Some(sources) = published.borrow().clone() else {
            self.next_update = None;
            return;
        };
        if let Some(updater) = self.updater.take() {
            self.next_update = None;
            let grace = Grace {
                now: self.clock.now(),
                period: self.options.settings.deletion_grace,
            };
            self.updates.push(updater.start(sources, grace));
        }
    }

    /// Starts rollouts after the state was saved.
    fn finish_update(&mut self, update: StateUpdate) {
        if let Some(revisions) = update.revisions {
            self.dispatcher.installations.load(revisions);
        }
        self.has_state = update.updater.is_loaded();
        let metrics = &self.dispatcher.common.metrics;
        metrics.state_invalid(update.result.is_err());
        match update.result {
            Ok(history) => {
                // The next update is at the end of the next grace period, unless a source changes before.
                if let Some(at) = history.next_deletion() {
                    self.update_by(self.clock.instant(at));
                }
                let state = update.updater.reference();
                let events = self.absent.report(&update.sources, &history, &state);
                self.tasks.extend(events);
                self.dispatcher.set_sources(update.sources, history);
                self.store_revision(update.updater.revisions.clone());
            }
            Err(reason) => {
                tracing::error!(reason, "failed to load state, rollout suspended");
                self.update_by(Instant::now() + STATE_RETRY_DELAY);
            }
        }
        self.updater = Some(update.updater);
    }

    /// Stores the manifests of the current revision, and deletes the revisions that no rollout needs.
    fn store_revision(&mut self, revisions: RevisionStore) {
        let kept = self.dispatcher.rollouts.kept();
        let installations = &mut self.dispatcher.installations;
        let (created, deleted) = (installations.take_unstored(), installations.outdated(&kept));
        if created.is_some() || !deleted.is_empty() {
            self.tasks.push(Box::pin(revisions.save(created, deleted)));
        }
    }

    fn take_resource(&mut self, change: WatchChange<DeserializeGuard<RuntimeBootstrapper>>) {
        match change {
            WatchChange::Put(resource) => self.read_resource(resource),
            WatchChange::Removed(name) => self.drop_resource(&name),
            WatchChange::Listed => self.listed.resources = true,
        }
    }

    fn drop_resource(&mut self, name: &str) {
        self.unreadable.remove(name);
        self.show_unreadable();
        self.dispatcher.forget(name);
    }

    fn show_unreadable(&self) {
        let metrics = &self.dispatcher.common.metrics;
        metrics.unreadable(self.unreadable.len());
    }

    /// Reads a resource. If a resource cannot be deserialized, its spec is unknown, so its runtime is not reconciled.
    fn read_resource(&mut self, resource: DeserializeGuard<RuntimeBootstrapper>) {
        match resource.0 {
            Ok(resource) => {
                self.unreadable.remove(&resource.name_any());
                self.put_resource(resource);
            }
            Err(invalid) => {
                let name = invalid.metadata.name.unwrap_or_default();
                tracing::error!(
                    runtime = name,
                    error = %invalid.error,
                    "RuntimeBootstrapper cannot be read, its runtime is not reconciled"
                );
                self.dispatcher.suspend(&name);
                self.unreadable.insert(name);
            }
        }
        self.show_unreadable();
    }

    fn put_resource(&mut self, resource: RuntimeBootstrapper) {
        let name = resource.name_any();
        let known = self.dispatcher.store.get(&name);
        // For a known resource, reconciles set the claims.
        if known.is_none_or(|it| it.resource.is_none()) {
            let status = resource.status.as_ref();
            let identity =
                status.and_then(|it| it.cluster_uid.as_ref().zip(it.runtime_id.as_ref()));
            if let Some((cluster, runtime)) = identity {
                let runtime = RuntimeId::new(runtime);
                self.dispatcher.common.claims.claim(cluster, &runtime);
            }
        }
        let change = self.dispatcher.store.put_resource(resource);
        if change == Change::Spec {
            // Failures of the previous spec do not count for the new spec.
            self.dispatcher.scheduler.reset(&name);
        }
        if change != Change::None {
            self.dispatcher.refresh(&name);
            self.wake(&name);
        }
    }

    /// Makes a runtime due. For the objects of the first lists only the configuration lane becomes due. The webhook
    /// lane, which reads all manifests, is due if the status is incomplete, and otherwise at the resync.
    fn wake(&mut self, name: &str) {
        if self.has_started {
            self.dispatcher.wake(name);
        } else {
            self.dispatcher.wake_configuration(name);
        }
    }

    fn take_runtime(&mut self, change: WatchChange<RuntimeView>) {
        match change {
            WatchChange::Put(view) => self.put_runtime(&view),
            WatchChange::Removed(name) => self.drop_runtime(&name),
            WatchChange::Listed => self.listed.runtimes = true,
        }
    }

    fn put_runtime(&mut self, view: &RuntimeView) {
        let settings = &self.options.settings;
        let (name, info) = RuntimeInfo::read(view, &settings.adopt, &settings.signal_selector);
        for name in self.dispatcher.store.put_runtime(&name, info) {
            self.dispatcher.refresh(&name);
            self.wake(&name);
        }
    }

    fn drop_runtime(&mut self, name: &str) {
        for name in self.dispatcher.store.drop_runtime(name) {
            self.wake(&name);
        }
    }

    fn take_kubeconfig(&mut self, change: WatchChange<PartialObjectMeta<Secret>>) {
        match change {
            WatchChange::Put(secret) => self.put_kubeconfig(&secret),
            WatchChange::Removed(name) => {
                if let Some(id) = name.strip_prefix(KUBECONFIG_PREFIX) {
                    self.drop_kubeconfig(id);
                }
            }
            WatchChange::Listed => self.listed.kubeconfigs = true,
        }
    }

    fn put_kubeconfig(&mut self, secret: &PartialObjectMeta<Secret>) {
        let Some(id) = runtime_id(secret) else {
            return;
        };
        let version = secret.resource_version().unwrap_or_default();
        let before = self
            .dispatcher
            .kubeconfigs
            .insert(id.clone(), version.clone());
        if before != Some(version) {
            // Failures of the previous or missing kubeconfig do not count for the new kubeconfig.
            for name in self.dispatcher.store.by_id(&id) {
                self.dispatcher.scheduler.reset(&name);
            }
            self.wake_all(&id);
        }
    }

    fn drop_kubeconfig(&mut self, id: &str) {
        self.dispatcher.kubeconfigs.remove(id);
        self.wake_all(id);
    }

    fn wake_all(&mut self, id: &str) {
        for name in self.dispatcher.store.by_id(id) {
            self.wake(&name);
        }
    }
}

/// Returns the runtime ID of a kubeconfig Secret; `None` for copies and other Secrets with the label.
fn runtime_id(secret: &PartialObjectMeta<Secret>) -> Option<String> {
    let id = secret.labels().get(RUNTIME_ID)?;
    (secret.name_any() == kubeconfig_secret(id)).then(|| id.clone())
}

async fn wait(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
