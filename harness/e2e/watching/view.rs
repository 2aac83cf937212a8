//! The environment of one scenario: the shared environment, and the state with which its steps compare.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use clusters::evidence::Evidence;
use clusters::setup::Setup;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use testkit::metrics::Samples;

use super::environment::Watching;
use crate::definitions::{Stream, eventually};
use crate::runner::{Environments, Selection};
use crate::scenario::{Cluster, Environment, ObjectRef};
use testkit::client::Client;

/// The shared environment, and the state of one scenario.
pub(crate) struct View {
    watching: Arc<Watching>,
    pub(crate) before: Before,
    state: Mutex<State>,
}

/// Counters before the first step.
pub(crate) struct Before {
    pub(crate) handshake_errors: u64,
    pub(crate) managers: BTreeMap<&'static str, Samples>,
    pub(crate) api_server: Samples,
    pub(crate) watcher: BTreeMap<String, Samples>,
    pub(crate) restarts: BTreeMap<String, u64>,
}

/// State that the steps of a scenario share, except objects.
#[derive(Default)]
pub(crate) struct State {
    /// Number of events about an object before the scenario's last change, by manager.
    pub(crate) marks: BTreeMap<(&'static str, String), usize>,
    /// Metrics of the watcher before that change.
    pub(crate) before_change: BTreeMap<String, Samples>,
    pub(crate) kymas: Kymas,
    pub(crate) stream: Option<Stream<Result<Kymas>>>,
}

/// Kymas of one Namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kymas {
    pub(crate) namespace: String,
    /// Names of the Kymas, with the start of the write.
    pub(crate) names: Vec<(String, SystemTime)>,
}

/// Starts the environment, or uses one that an earlier run kept.
pub async fn start(setup: &Setup, _: &Selection, keep: bool) -> Result<Arc<Watching>> {
    Ok(Arc::new(Box::pin(Watching::start(setup, keep)).await?))
}

impl Environments for Arc<Watching> {
    async fn next(&self, _: Vec<String>) -> Result<Arc<dyn Environment>> {
        let before = eventually("the metrics of the environment", async || {
            let managers = self.managers.iter();
            anyhow::Ok(Before {
                handshake_errors: self.gateway.handshake_errors().await?,
                managers: managers.map(|it| (it.name, it.metrics())).collect(),
                api_server: self.runtime.watcher.client.metrics().await?,
                watcher: self.runtime.metrics().await?,
                restarts: self.runtime.restarts().await?,
            })
        });
        let before = before.await?;
        Ok(Arc::new(View {
            before,
            watching: Self::clone(self),
            state: Mutex::default(),
        }))
    }

    async fn stop(self) -> Result<()> {
        let watching = Self::into_inner(self).context("a scenario still runs")?;
        Box::pin(watching.stop()).await
    }
}

impl View {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        testkit::locked(&self.state)
    }

    /// Returns the shared environment, for an action at the end of the scenario.
    pub(crate) fn shared(&self) -> Arc<Watching> {
        Arc::clone(&self.watching)
    }

    /// Counts the events about an object until now; later steps consider only further events.
    pub(crate) fn mark(&self, about: &str) {
        let counts = self.managers.iter().map(|manager| {
            let key = (manager.name, about.to_owned());
            (key, manager.received(about).len())
        });
        self.state().marks.extend(counts);
    }

    /// Returns the Kymas that steps created, and ends their continuous creation.
    pub(crate) async fn created_kymas(&self) -> Result<Kymas> {
        let stream = self.state().stream.take();
        if let Some(stream) = stream {
            let kymas = stream.end().await??;
            let count = kymas.names.len();
            ensure!(count >= MINIMUM, "only {count} Kymas were created");
            self.state().kymas = kymas;
        }
        let kymas = self.state().kymas.clone();
        ensure!(!kymas.names.is_empty(), "no Kymas were created");
        Ok(kymas)
    }
}

impl Kymas {
    /// Creates Kymas one after the other.
    pub(crate) fn stream(watching: Arc<Watching>, namespace: String) -> Stream<Result<Self>> {
        Stream::spawn(async move |over| {
            let mut kymas = Self {
                namespace,
                ..Self::default()
            };
            while !over.load(Ordering::Relaxed) {
                kymas.add(&watching).await?;
            }
            Ok(kymas)
        })
    }

    pub(crate) async fn add(&mut self, watching: &Watching) -> Result<()> {
        let time = SystemTime::now();
        let name = watching.create_kyma(&self.namespace).await?;
        self.names.push((name, time));
        Ok(())
    }
}

impl Environment for View {
    fn client(&self, cluster: &Cluster) -> Result<Client> {
        match cluster {
            Cluster::Kcp => Ok(self.gateway.workload.client.clone()),
            Cluster::Runtime(None) => Ok(self.runtime.watcher.client.clone()),
            Cluster::Runtime(Some(name)) => anyhow::bail!("there is one runtime, not {name:?}"),
        }
    }

    /// The API server calls a webhook only some time after its configuration was created, and also for some time after its
    /// configuration was deleted.
    fn settle<'a>(&'a self, object: &'a ObjectRef) -> LocalBoxFuture<'a, Result<()>> {
        if object.kind == "ValidatingWebhookConfiguration" {
            self.runtime.uses_configuration().boxed_local()
        } else {
            futures::future::ready(Ok(())).boxed_local()
        }
    }

    fn diagnose<'a>(&'a self, evidence: &'a Evidence) -> LocalBoxFuture<'a, ()> {
        self.collect(evidence).boxed_local()
    }
}

impl Deref for View {
    type Target = Watching;

    fn deref(&self) -> &Watching {
        &self.watching
    }
}

/// Smallest number of Kymas that proves anything.
const MINIMUM: usize = 20;
