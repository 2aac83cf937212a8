//! Several sets of clusters, so that scenarios that need exclusive use of a set run in parallel.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::clusters::Clusters;
use super::control_plane::Runtime;
use super::controller::Installation;
use super::kim::{Kim, Running};
use super::pods::{PodStream, Tally};
use super::runtime_cluster::RuntimeCluster;
use crate::definitions::source::keys;
use crate::install::Fixtures;
use crate::runner::{Environments, Selection};
use crate::scenario::{Cluster, Environment};
use clusters::evidence::Evidence;
use clusters::images::{self, Role};
use clusters::setup::Setup;
use testkit::client::Client;

/// Free sets of clusters, and the channel through which used sets are returned.
pub struct ClustersPool {
    returns: UnboundedSender<Returned>,
    /// Returned sets, and sets that no other scenario may use.
    free: AsyncMutex<(UnboundedReceiver<Returned>, Vec<Arc<Clusters>>)>,
    size: usize,
}

/// A set, and whether the clean-up of its last scenario succeeded.
type Returned = (Arc<Clusters>, bool);

/// The environment of one scenario: a set of clusters, which is returned to the pool on drop, and the state of the steps.
pub(crate) struct Leased {
    clusters: Arc<Clusters>,
    returns: UnboundedSender<Returned>,
    is_retired: AtomicBool,
    state: Mutex<State>,
}

/// State that the steps of a scenario share, except objects.
#[derive(Default)]
pub(crate) struct State {
    /// Whether a step of the suite has run.
    pub(crate) is_begun: bool,
    /// The KIM double, if the scenario has one.
    pub(crate) kim: Option<(Arc<Kim>, Running)>,
    /// Runtimes by their names in the steps.
    pub(crate) runtimes: BTreeMap<String, Runtime>,
    /// Runtimes of a step that creates many.
    pub(crate) many: Vec<Runtime>,
    /// Versions of the controller's objects, by runtime cluster.
    pub(crate) writes: BTreeMap<String, Value>,
    /// How often KIM had reconciled each Runtime before the last change.
    pub(crate) reconciles: BTreeMap<String, u64>,
    /// Number of steps that changed sources.
    pub(crate) changes: u32,
    /// Number of applies to each resource, by runtime cluster.
    pub(crate) applies: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Pods that are being created.
    pub(crate) pods: Option<PodStream>,
    /// Results of the created Pods.
    pub(crate) tally: Option<Arc<Tally>>,
    /// Holder of the Lease before a kill.
    pub(crate) leader: Option<String>,
    /// UIDs of the Pods of the webhook, which must not be replaced.
    pub(crate) pod_uids: Option<Value>,
}

impl ClustersPool {
    /// Number of sets. A third set would make this suite faster, but all parallel suites slower on two cores.
    pub const SIZE: usize = SUFFIXES.len();

    /// Starts the sets that the selected scenarios need, or uses those that an earlier run kept.
    pub async fn start(setup: &Setup, selection: &Selection, keep: bool) -> anyhow::Result<Self> {
        let fixtures = Arc::new(Fixtures::prepare(setup, keep).await?);
        let image = images::product(Role::Controller).await?;
        let public = images::public_webhook().await?;
        let start = |suffix| {
            let fixtures = Arc::clone(&fixtures);
            Box::pin(Clusters::with(fixtures, [&image, &public], suffix))
        };
        let suffixes = SUFFIXES.into_iter().take(selection.scenarios);
        let started = futures::future::try_join_all(suffixes.map(start)).await?;
        let size = started.len();
        let (returns, free) = unbounded_channel();
        for clusters in started {
            returns
                .send((Arc::new(clusters), true))
                .context("the pool is closed")?;
        }
        let free = AsyncMutex::new((free, Vec::new()));
        Ok(Self {
            returns,
            free,
            size,
        })
    }

    /// Waits for a set in which no clean-up failed.
    async fn take(&self) -> anyhow::Result<Arc<Clusters>> {
        let (free, retired) = &mut *self.free.lock().await;
        while retired.len() < self.size {
            let (clusters, is_clean) = free.recv().await.context("the pool is closed")?;
            if is_clean {
                return Ok(clusters);
            }
            retired.push(clusters);
        }
        anyhow::bail!("a clean-up failed in each set of clusters")
    }
}

impl Environments for ClustersPool {
    /// Another scenario may use another set.
    const ARE_SHARED: bool = false;

    /// Takes a free set, and installs the controller as the scenario's `Given` steps describe.
    async fn next(&self, given: Vec<String>) -> anyhow::Result<Arc<dyn Environment>> {
        let leased = Leased {
            clusters: self.take().await?,
            returns: self.returns.clone(),
            is_retired: AtomicBool::new(false),
            state: Mutex::default(),
        };
        let installation = given.iter().find_map(|step| Installation::of_step(step));
        let (installation, kcp) = (installation.unwrap_or_default(), &leased.kcp);
        leased.controller.install(kcp, &installation).await?;
        Ok(Arc::new(leased))
    }

    async fn stop(self) -> anyhow::Result<()> {
        let (mut free, mut sets) = self.free.into_inner();
        sets.extend(std::iter::from_fn(|| Some(free.try_recv().ok()?.0)));
        ensure!(sets.len() == self.size, "a scenario still uses clusters");
        for clusters in sets {
            let clusters = Arc::into_inner(clusters);
            Box::pin(clusters.context("a scenario still uses clusters")?.stop()).await?;
        }
        Ok(())
    }
}

impl Leased {
    /// Locks the state; the guard must not be held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        testkit::locked(&self.state)
    }

    /// Returns the set of clusters, for an action at the end of the scenario.
    pub(crate) fn clusters(&self) -> Arc<Clusters> {
        Arc::clone(&self.clusters)
    }

    /// Returns a Runtime by its name in the steps.
    pub(crate) fn runtime(&self, name: &str) -> anyhow::Result<Runtime> {
        let runtime = self.state().runtimes.get(name).cloned();
        runtime.with_context(|| format!("the scenario has no Runtime {name:?}"))
    }

    /// Returns a runtime cluster by its name in the steps.
    pub(crate) fn cluster(&self, name: &str) -> anyhow::Result<&RuntimeCluster> {
        Ok(&self.clusters.runtimes[number(name)?])
    }

    /// Records how often KIM has reconciled each Runtime.
    pub(crate) fn record_reconciles(&self) {
        let mut state = self.state();
        let kim = state.kim.as_ref();
        state.reconciles = kim.map(|(kim, _)| kim.counts()).unwrap_or_default();
    }

    /// Records how often objects were applied on each runtime cluster.
    pub(crate) async fn record_applies(&self) -> anyhow::Result<()> {
        for (name, cluster) in RUNTIMES.into_iter().zip(&self.clusters.runtimes) {
            let applies = cluster.applied().await?;
            self.state().applies.insert(name.to_owned(), applies);
        }
        Ok(())
    }

    /// Whether a Runtime has both keys of the signal.
    pub(crate) async fn is_signaled(&self, runtime: &Runtime) -> anyhow::Result<bool> {
        let live = self.kcp.runtime(&runtime.name).await?;
        Ok(keys(&live).iter().all(|it| *it == "true"))
    }

    pub(crate) fn kim(&self) -> anyhow::Result<Arc<Kim>> {
        let state = self.state();
        let kim = state.kim.as_ref().map(|(kim, _)| Arc::clone(kim));
        kim.context("the KIM double does not run")
    }
}

/// Returns the number of a runtime cluster by its name in the steps.
pub(crate) fn number(name: &str) -> anyhow::Result<usize> {
    let found = RUNTIMES.iter().position(|it| *it == name);
    found.with_context(|| format!("runtime {name:?} is not one of {RUNTIMES:?}"))
}

impl Environment for Leased {
    fn client(&self, cluster: &Cluster) -> anyhow::Result<Client> {
        match cluster {
            Cluster::Kcp => Ok(self.kcp.api.clone()),
            Cluster::Runtime(Some(name)) => Ok(self.cluster(name)?.api.clone()),
            Cluster::Runtime(None) => anyhow::bail!("the step does not name the runtime"),
        }
    }

    fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    fn diagnose<'a>(&'a self, evidence: &'a Evidence) -> LocalBoxFuture<'a, ()> {
        self.collect(evidence).boxed_local()
    }
}

impl Deref for Leased {
    type Target = Clusters;

    fn deref(&self) -> &Clusters {
        &self.clusters
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(pods) = self.state().pods.take() {
            pods.abort();
        }
        // Without a receiver the run has ended, which removes the clusters.
        let is_clean = !self.is_retired.load(Ordering::Relaxed);
        let _ = self.returns.send((Arc::clone(&self.clusters), is_clean));
    }
}

/// Names of the runtime clusters in the steps.
pub(crate) const RUNTIMES: [&str; 2] = ["one", "two"];
/// Suffixes of the names of clusters, one for each set.
const SUFFIXES: [&str; 2] = ["a", "b"];
