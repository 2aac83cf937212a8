//! What happens, one thing after the other: watches, sources, ends of passes, and time.
//!
//! Invariant: everything is done by this one task, so nothing is locked and no two events cross.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::{RUNTIME_ID, kubeconfig_secret};
use component_base::telemetry::error_chain;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::Event;
use policy::sync::known::{Grace, SourceHistory};
use policy::sync::sources::Sources;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::access::ClientFactory;
use super::claims::Claims;
use super::dispatch::Dispatcher;
use super::lifecycle::Lifecycle;
use super::reconcile::Common;
use super::revisions::RevisionStore;
use super::store::{Change, RuntimeInfo};
use super::watches::Listing;
use super::{DIRECT_STATE, DirectOptions, SLOW, rollout_status, watches, writer};
use crate::absent::{AbsentSources, Report, Voice};
use crate::clients::RequestLimiter;
use crate::clock::Clock;
use crate::rollouts;
use crate::signal::runtime::RuntimeView;
use crate::sources::Published;
use crate::state::{SIGNAL_STATE, StateError, StateStore, load};

/// How often gauges of all runtimes are computed.
const FIGURES: Duration = Duration::from_secs(5);

/// After a record could not be read or written.
const RECORD_PAUSE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Loop {
    dispatcher: Dispatcher,
    options: DirectOptions,
    record: StateStore,
    known: Option<SourceHistory>,
    absent: AbsentSources,
    revisions: RevisionStore,
    has_revisions: bool,
    /// Events on their way.
    reports: FuturesUnordered<Report>,
    clock: Clock,
    /// When the sources are to be looked at again although they did not change.
    sources_at: Option<Instant>,
    resources: Listing,
    runtimes: Listing,
    listed: Listing,
    /// Names of resources that cannot be read.
    unreadable: BTreeSet<String>,
    /// Whether all lists were read once.
    has_started: bool,
    writing: futures::future::BoxFuture<'static, ()>,
}

impl Loop {
    pub(super) fn new(options: DirectOptions) -> Self {
        let settings = options.settings.clone();
        let installations = options.installations.clone();
        let client = options.client.clone();
        let metrics = &options.metrics;
        let limiter = |size, name| RequestLimiter::new(size, SLOW, metrics.limit(name));
        let common = Arc::new(Common {
            door: ClientFactory::new(client.clone(), &settings.namespace, options.fleet.clone()),
            handshakes: limiter(settings.handshakes, "handshakes"),
            places: limiter(settings.connected, "connections"),
            lifecycle: Lifecycle::new(client.clone(), &settings),
            claims: Claims::default(),
            control_plane: options.salt.control_plane(),
            metrics: options.metrics.clone(),
        });
        let (statuses, desk) = writer::desk(
            client.clone(),
            &settings.namespace,
            settings.statuses_per_second,
            options.metrics.clone(),
            options.reporter.clone(),
        );
        let who = options.reporter.clone();
        let (reporter, reporting) = rollout_status::reporter(&client, &settings.namespace, who);
        let writing = async move {
            tokio::join!(desk, reporting);
        };
        let absent = AbsentSources::new(Voice {
            client: client.clone(),
            reporter: options.reporter.clone(),
            metrics: options.source_metrics.clone(),
            controller: "direct",
            outcome: "its copies on runtimes are deleted",
        });
        let revisions = RevisionStore::new(client.clone(), &settings.namespace);
        let record = StateStore::new(client, &settings.namespace, DIRECT_STATE);
        Self {
            dispatcher: Dispatcher::new(&settings, common, installations, statuses, reporter),
            options,
            record,
            known: None,
            absent,
            revisions,
            has_revisions: false,
            reports: FuturesUnordered::new(),
            clock: Clock::new(),
            sources_at: None,
            resources: Listing::default(),
            runtimes: Listing::default(),
            listed: Listing::default(),
            unreadable: BTreeSet::new(),
            has_started: false,
            writing: Box::pin(writing),
        }
    }

    /// Never ends.
    pub(super) async fn run(mut self) {
        let options = &self.options;
        let mut resources = watches::resources(options);
        let mut runtimes = watches::runtimes(options);
        let mut kubeconfigs = watches::kubeconfigs(options);
        let namespace = &options.settings.namespace;
        let mut rollout = rollouts::watch(&options.client, namespace, &options.readiness);
        let mut sources: Published = options.sources.clone();
        sources.mark_changed();
        let mut figures = interval(FIGURES);
        figures.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut writing = std::mem::replace(&mut self.writing, Box::pin(std::future::pending()));
        loop {
            if self.is_ready() {
                self.has_started |= self.listed.complete;
                self.dispatcher.start_due();
            }
            let due = self.next();
            tokio::select! {
                Some(event) = resources.next() => self.take_resource(event),
                Some(event) = runtimes.next() => self.take_runtime(event),
                Some(event) = kubeconfigs.next() => self.take_kubeconfig(event),
                Some(stored) = rollout.next() => self.dispatcher.set_stored(stored),
                Ok(()) = sources.changed() => self.expect_sources(),
                Some(ended) = self.dispatcher.ended() => self.dispatcher.complete(ended),
                Some(()) = self.reports.next() => {}
                _ = figures.tick() => self.dispatcher.observe(),
                () = &mut writing => return,
                () = wait(due) => self.look_at_sources(&sources).await,
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.is_listed() && self.known.is_some()
    }

    /// The rollout's ConfigMap as well: before it is known whether there is a pause, nobody begins.
    fn is_listed(&self) -> bool {
        self.resources.complete && self.runtimes.complete && self.dispatcher.rollouts.is_known()
    }

    fn next(&self) -> Option<Instant> {
        let sources = self.sources_at.filter(|_| self.is_listed());
        let passes = self.dispatcher.next().filter(|_| self.is_ready());
        [sources, passes].into_iter().flatten().min()
    }

    /// Counted from the first change, so that one after the other cannot put it off.
    fn expect_sources(&mut self) {
        let soon = Instant::now() + self.options.settings.together;
        self.sources_at = Some(self.sources_at.map_or(soon, |at| at.min(soon)));
    }

    /// The record first: what is rolled out is remembered before it is, or its deletion could be missed.
    async fn look_at_sources(&mut self, published: &Published) {
        if self.sources_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.sources_at = None;
        let Some(sources) = published.borrow().clone() else {
            return;
        };
        match self.remember(&sources).await {
            Ok(known) => {
                // When the next grace period ends, if that is before another change.
                self.sources_at = known.next_deletion().map(|at| self.clock.instant(at));
                let record = self.record.reference();
                let reports = self.absent.show(&sources, &known, &record);
                self.reports.extend(reports);
                self.dispatcher.set_sources(sources, known.clone());
                self.known = Some(known);
                self.store_revision();
            }
            Err(reason) => {
                tracing::error!(reason, "failed to load state, rollout suspended");
                self.sources_at = Some(Instant::now() + RECORD_PAUSE);
            }
        }
    }

    /// Stores the manifests that are rolled out from now on, and deletes those that no rollout needs any more.
    fn store_revision(&mut self) {
        let kept = self.dispatcher.rollouts.kept();
        let installations = &mut self.dispatcher.installations;
        let (created, deleted) = (installations.take_unstored(), installations.outdated(&kept));
        if created.is_some() || !deleted.is_empty() {
            let saved = self.revisions.clone().save(created, deleted);
            self.reports.push(Box::pin(saved));
        }
    }

    async fn remember(&mut self, sources: &Sources) -> Result<SourceHistory, String> {
        if !self.has_revisions {
            let listed = self.revisions.list().await;
            let listed = listed.map_err(|it| error_chain(&it))?;
            self.dispatcher.installations.load(listed);
            self.has_revisions = true;
        }
        let (mut known, inherited) = if let Some(known) = self.known.clone() {
            (known, false)
        } else {
            let client = self.options.client.clone();
            let namespace = &self.options.settings.namespace;
            let mut signal = StateStore::new(client, namespace, SIGNAL_STATE);
            let recalled = load(&mut self.record, &mut signal).await;
            let recalled = recalled.map_err(|it| error_chain(&it))?;
            (recalled.known, recalled.inherited)
        };
        let before = known.clone();
        let grace = Grace {
            now: self.clock.now(),
            period: self.options.settings.deletion_grace,
        };
        known.advance(sources, grace);
        if known != before || inherited {
            let mut data = std::collections::BTreeMap::new();
            known.write(&mut data);
            let mut saved = self.record.save(data.clone()).await;
            if let Err(StateError::Deleted) = saved {
                // Nobody else knows any more what was rolled out.
                saved = self.record.save(data).await;
            }
            if let Err(error) = saved {
                // Whoever wrote it meanwhile knows better. Otherwise what is known holds, and passes go on by it.
                if let StateError::Changed = error {
                    self.known = None;
                }
                return Err(error_chain(&error));
            }
        }
        Ok(known)
    }

    fn take_resource(&mut self, event: Event<DeserializeGuard<RuntimeBootstrapper>>) {
        match event {
            Event::Init => self.resources.begin(),
            Event::InitApply(resource) => {
                self.resources.seen.insert(resource.name_any());
                self.read_resource(resource);
            }
            Event::InitDone => {
                let known = self.dispatcher.store.resources();
                let known = known.map(|(name, _)| name.to_string());
                let known = known.chain(self.unreadable.iter().cloned()).collect();
                for name in self.resources.end(known) {
                    self.drop_resource(&name);
                }
            }
            Event::Apply(resource) => self.read_resource(resource),
            Event::Delete(resource) => self.drop_resource(&resource.name_any()),
        }
    }

    fn drop_resource(&mut self, name: &str) {
        self.unreadable.remove(name);
        let unreadable = self.unreadable.len();
        self.dispatcher.common.metrics.unreadable(unreadable);
        self.dispatcher.forget(name);
    }

    /// What an unreadable resource asks for is unknown, so nothing is done for its runtime until it can be read.
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
        let unreadable = self.unreadable.len();
        self.dispatcher.common.metrics.unreadable(unreadable);
    }

    fn put_resource(&mut self, resource: RuntimeBootstrapper) {
        let name = resource.name_any();
        let known = self.dispatcher.store.get(&name);
        // From then on the passes know better.
        if known.is_none_or(|it| it.resource.is_none()) {
            let status = resource.status.as_ref();
            let identity =
                status.and_then(|it| it.cluster_uid.as_ref().zip(it.runtime_id.as_ref()));
            if let Some((cluster, runtime)) = identity {
                self.dispatcher.common.claims.claim(cluster, runtime);
            }
        }
        let change = self.dispatcher.store.put_resource(resource);
        if change == Change::Spec {
            // What failed was asked for by another spec.
            self.dispatcher.scheduler.reset(&name);
        }
        if change != Change::None {
            self.dispatcher.refresh(&name);
            self.wake(&name);
        }
    }

    /// Makes a runtime due. What the first lists contain is not news: the webhook lane, which reads all manifests, is due then
    /// only where a status says that it is not complete, and everywhere else with the resync.
    fn wake(&mut self, name: &str) {
        if self.has_started {
            self.dispatcher.wake(name);
        } else {
            self.dispatcher.wake_configuration(name);
        }
    }

    fn take_runtime(&mut self, event: Event<RuntimeView>) {
        match event {
            Event::Init => self.runtimes.begin(),
            Event::InitApply(view) => {
                self.runtimes.seen.insert(view.name_any());
                self.put_runtime(&view);
            }
            Event::InitDone => {
                let known = self.dispatcher.store.runtimes();
                let known: Vec<String> = known.map(ToString::to_string).collect();
                for name in self.runtimes.end(known) {
                    self.drop_runtime(&name);
                }
            }
            Event::Apply(view) => self.put_runtime(&view),
            Event::Delete(view) => self.drop_runtime(&view.name_any()),
        }
    }

    fn put_runtime(&mut self, view: &RuntimeView) {
        let settings = &self.options.settings;
        let (name, facts) = RuntimeInfo::read(view, &settings.adopt, &settings.signal_selector);
        for name in self.dispatcher.store.put_runtime(&name, facts) {
            self.dispatcher.refresh(&name);
            self.wake(&name);
        }
    }

    fn drop_runtime(&mut self, name: &str) {
        for name in self.dispatcher.store.drop_runtime(name) {
            self.wake(&name);
        }
    }

    fn take_kubeconfig(&mut self, event: Event<PartialObjectMeta<Secret>>) {
        match event {
            Event::Init => self.listed.begin(),
            Event::InitDone => {
                let known = self.dispatcher.kubeconfigs.keys().cloned().collect();
                for id in self.listed.end(known) {
                    self.drop_kubeconfig(&id);
                }
            }
            Event::InitApply(secret) => {
                self.listed.seen.extend(runtime_id(&secret));
                self.put_kubeconfig(&secret);
            }
            Event::Apply(secret) => self.put_kubeconfig(&secret),
            Event::Delete(secret) => {
                if let Some(id) = runtime_id(&secret) {
                    self.drop_kubeconfig(&id);
                }
            }
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
            // What failed was tried with another kubeconfig, or without one.
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

/// Whose kubeconfig a Secret is: copies and other Secrets may carry the label as well.
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
