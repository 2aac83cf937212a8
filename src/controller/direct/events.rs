//! What happens, one thing after the other: watches, sources, ends of passes, and time.
//!
//! Invariant: everything is done by this one task, so nothing is locked and no two events cross.

use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::{RUNTIME_ID, kubeconfig_secret};
use component_base::telemetry::error_chain;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use policy::sync::known::{Grace, SourceHistory};
use policy::sync::sources::Sources;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::access::ClientFactory;
use super::claims::Claims;
use super::conductor::{self, Conductor};
use super::lifecycle::Lifecycle;
use super::pass::Common;
use super::store::RuntimeInfo;
use super::watches::Listing;
use super::{DIRECT_STATE, DirectOptions, progress, watches, writer};
use crate::absent::{AbsentSources, Report, Voice};
use crate::clients::RequestLimiter;
use crate::clock::Clock;
use crate::signal::runtime::RuntimeView;
use crate::sources::Published;
use crate::state::{SIGNAL_STATE, StateError, StateStore, load};

/// After a record could not be read or written.
const RECORD_PAUSE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Loop {
    conductor: Conductor,
    options: DirectOptions,
    record: StateStore,
    known: Option<SourceHistory>,
    absent: AbsentSources,
    /// Events on their way.
    reports: FuturesUnordered<Report>,
    clock: Clock,
    /// When the sources are to be looked at again although they did not change.
    sources_at: Option<Instant>,
    resources: Listing,
    runtimes: Listing,
    listed: Listing,
    writing: futures::future::BoxFuture<'static, ()>,
}

impl Loop {
    pub(super) fn new(options: DirectOptions) -> Self {
        let settings = options.settings.clone();
        let installations = options.installations.clone();
        let client = options.client.clone();
        let common = Arc::new(Common {
            door: ClientFactory::new(client.clone(), &settings.namespace, options.fleet.clone()),
            handshakes: RequestLimiter::new(settings.handshakes, conductor::YOUNG),
            places: RequestLimiter::new(settings.connected, conductor::YOUNG),
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
        );
        let (published, progress) = watch::channel(String::new());
        let publish = progress::publish(client.clone(), settings.namespace.clone(), progress);
        let writing = async move {
            tokio::join!(desk, publish);
        };
        let absent = AbsentSources::new(Voice {
            client: client.clone(),
            reporter: options.reporter.clone(),
            metrics: options.source_metrics.clone(),
            controller: "direct",
            outcome: "its copies on runtimes are deleted",
        });
        let record = StateStore::new(client, &settings.namespace, DIRECT_STATE);
        Self {
            conductor: Conductor::new(settings, common, installations, statuses, published),
            options,
            record,
            known: None,
            absent,
            reports: FuturesUnordered::new(),
            clock: Clock::new(),
            sources_at: None,
            resources: Listing::default(),
            runtimes: Listing::default(),
            listed: Listing::default(),
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
        let mut rollout = progress::watch(&options.client, namespace, &options.readiness);
        let mut sources: Published = options.sources.clone();
        sources.mark_changed();
        let mut writing = std::mem::replace(&mut self.writing, Box::pin(std::future::pending()));
        loop {
            if self.is_ready() {
                self.conductor.begin_due();
            }
            let due = self.next();
            tokio::select! {
                Some(event) = resources.next() => self.take_resource(event),
                Some(event) = runtimes.next() => self.take_runtime(event),
                Some(event) = kubeconfigs.next() => self.take_kubeconfig(event),
                Some(stored) = rollout.next() => self.conductor.hear(&stored),
                Ok(()) = sources.changed() => self.expect_sources(),
                Some(ended) = self.conductor.ended() => self.conductor.take(ended),
                Some(()) = self.reports.next() => {}
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
        self.resources.complete && self.runtimes.complete && self.conductor.has_heard()
    }

    fn next(&self) -> Option<Instant> {
        let sources = self.sources_at.filter(|_| self.is_listed());
        let passes = self.conductor.next().filter(|_| self.is_ready());
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
                self.conductor.look_at(sources, known.clone());
                self.known = Some(known);
            }
            Err(reason) => {
                tracing::error!(reason, "failed to load state, rollout suspended");
                self.sources_at = Some(Instant::now() + RECORD_PAUSE);
            }
        }
    }

    async fn remember(&mut self, sources: &Sources) -> Result<SourceHistory, String> {
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

    fn take_resource(&mut self, event: Event<RuntimeBootstrapper>) {
        match event {
            Event::Init => self.resources.begin(),
            Event::InitApply(resource) => {
                self.resources.seen.insert(resource.name_any());
                self.put_resource(resource);
            }
            Event::InitDone => {
                let known = self.conductor.register.resources();
                let known: Vec<String> = known.map(|(name, _)| name.to_string()).collect();
                for name in self.resources.end(known) {
                    self.conductor.forget(&name);
                }
            }
            Event::Apply(resource) => self.put_resource(resource),
            Event::Delete(resource) => self.conductor.forget(&resource.name_any()),
        }
    }

    fn put_resource(&mut self, resource: RuntimeBootstrapper) {
        let name = resource.name_any();
        let known = self.conductor.register.get(&name);
        // From then on the passes know better.
        if known.is_none_or(|it| it.resource.is_none()) {
            let status = resource.status.as_ref();
            let identity =
                status.and_then(|it| it.cluster_uid.as_ref().zip(it.runtime_id.as_ref()));
            if let Some((cluster, runtime)) = identity {
                self.conductor.common.claims.claim(cluster, runtime);
            }
        }
        if self.conductor.register.put_resource(resource) {
            self.conductor.wake(&name);
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
                let known = self.conductor.register.runtimes();
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
        for name in self.conductor.register.put_runtime(&name, facts) {
            self.conductor.wake(&name);
        }
    }

    fn drop_runtime(&mut self, name: &str) {
        for name in self.conductor.register.drop_runtime(name) {
            self.conductor.wake(&name);
        }
    }

    fn take_kubeconfig(&mut self, event: Event<PartialObjectMeta<Secret>>) {
        match event {
            Event::Init => self.listed.begin(),
            Event::InitDone => {
                let known = self.conductor.kubeconfigs.keys().cloned().collect();
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
            .conductor
            .kubeconfigs
            .insert(id.clone(), version.clone());
        if before != Some(version) {
            // What failed was tried with another kubeconfig, or without one.
            for name in self.conductor.register.by_id(&id) {
                if let Some(entry) = self.conductor.register.get_mut(&name) {
                    entry.attempts = 0;
                }
            }
            self.wake_all(&id);
        }
    }

    fn drop_kubeconfig(&mut self, id: &str) {
        self.conductor.kubeconfigs.remove(id);
        self.wake_all(id);
    }

    fn wake_all(&mut self, id: &str) {
        for name in self.conductor.register.by_id(id) {
            self.conductor.wake(&name);
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
