//! The environment of one scenario: the shared environment, and the Runtimes that the scenario provisions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use doubles::keb::Instance;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::task::JoinHandle;

use super::Flow;
use super::shoots::Shoot;
use crate::definitions::random;
use crate::runner::{Environments, Selection};
use crate::scenario::{Cluster, Environment};
use clusters::evidence::Evidence;
use clusters::setup::Setup;
use testkit::client::Client;

/// The shared environment, and the Runtimes of one scenario.
pub(crate) struct View {
    flow: Arc<Flow>,
    provisioned: Mutex<BTreeMap<String, Provisioned>>,
}

/// A Runtime that KEB provisions.
#[derive(Clone)]
pub(crate) struct Provisioned {
    pub(crate) instance: Instance,
    pub(crate) begin: Instant,
    running: Arc<Mutex<Option<JoinHandle<Result<()>>>>>,
}

/// Starts the environment, or uses one that an earlier run kept.
pub async fn start(setup: &Setup, _: &Selection, keep: bool) -> Result<Arc<Flow>> {
    Ok(Arc::new(Box::pin(Flow::start(setup, keep)).await?))
}

impl Environments for Arc<Flow> {
    async fn next(&self, _: Vec<String>) -> Result<Arc<dyn Environment>> {
        Ok(Arc::new(View {
            flow: Self::clone(self),
            provisioned: Mutex::default(),
        }))
    }

    async fn stop(self) -> Result<()> {
        let flow = Self::into_inner(self).context("a scenario still runs")?;
        Box::pin(flow.stop()).await
    }
}

/// Returns an instance with unique names.
pub fn instance(mode: &str, modules: &[&str]) -> Instance {
    let unique = random();
    Instance {
        runtime_id: format!("f10e0000-{}-4000-8000-{}", &unique[..4], &unique[4..]),
        shoot: format!("flow-{unique}"),
        mode: mode.to_owned(),
        modules: modules.iter().map(|it| (*it).to_owned()).collect(),
    }
}

impl View {
    /// Returns the shared environment, for an action at the end of the scenario.
    pub(crate) fn shared(&self) -> Arc<Flow> {
        Arc::clone(&self.flow)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Provisioned>> {
        testkit::locked(&self.provisioned)
    }

    /// Returns a Runtime by its name in the steps.
    pub(crate) fn provisioned(&self, name: &str) -> Result<Provisioned> {
        let found = self.all().get(name).cloned();
        found.with_context(|| format!("the scenario has no Runtime {name:?}"))
    }

    /// Lets KEB provision a Runtime, without waiting for it.
    pub(crate) fn provision(&self, name: &str, mode: &str, modules: &str) -> Provisioned {
        let modules: Vec<&str> = modules.split(", ").collect();
        let instance = instance(mode, &modules);
        let (flow, own) = (self.shared(), instance.clone());
        let running = tokio::spawn(async move { flow.keb.provision(&own).await });
        let provisioned = Provisioned {
            instance,
            begin: Instant::now(),
            running: Arc::new(Mutex::new(Some(running))),
        };
        self.all().insert(name.to_owned(), provisioned.clone());
        provisioned
    }

    /// Returns the cluster of a Runtime; without a name, the only one.
    pub(crate) fn shoot(&self, name: Option<&str>) -> Result<Arc<Shoot>> {
        let instance = if let Some(name) = name {
            self.provisioned(name)?.instance
        } else {
            let all = self.all();
            ensure!(all.len() == 1, "the step does not name the runtime");
            let only = all.values().next().context("no Runtime")?;
            only.instance.clone()
        };
        self.flow.shoots.find(&instance.shoot)
    }
}

impl Provisioned {
    /// Cancels KEB's work for the Runtime. An error of KEB fails the scenario only if a step checks it.
    pub(crate) fn end(&self) {
        if let Some(running) = testkit::locked(&self.running).take() {
            running.abort();
        }
    }

    /// Returns the error of KEB, if it has failed.
    pub(crate) fn error(&self) -> Result<()> {
        let ended = {
            let mut running = testkit::locked(&self.running);
            let is_finished = running.as_ref().is_some_and(JoinHandle::is_finished);
            if is_finished { running.take() } else { None }
        };
        match ended.and_then(FutureExt::now_or_never) {
            Some(ended) => ended?.context("KEB"),
            None => Ok(()),
        }
    }
}

impl std::ops::Deref for View {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl Environment for View {
    fn client(&self, cluster: &Cluster) -> Result<Client> {
        match cluster {
            Cluster::Kcp => Ok(self.kcp.api.clone()),
            Cluster::Runtime(name) => Ok(self.shoot(name.as_deref())?.api.clone()),
        }
    }

    fn diagnose<'a>(&'a self, evidence: &'a Evidence) -> LocalBoxFuture<'a, ()> {
        let collect = async {
            self.collect(evidence).await;
            let instances: Vec<Provisioned> = self.all().values().cloned().collect();
            for it in instances {
                if let Ok(shoot) = self.shoots.find(&it.instance.shoot) {
                    shoot.cluster.collect_evidence(evidence).await;
                }
            }
        };
        collect.boxed_local()
    }
}
