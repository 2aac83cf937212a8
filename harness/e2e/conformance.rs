//! The conformance suite: `cargo harness conformance`, as a landscape owner runs it, for a runtime with the product and one
//! without.
//!
//! The program runs as a separate process, in an empty folder and with an empty environment. It receives only a scenario file
//! and copies of kubeconfigs.

mod program;

pub(crate) use program::{Call, Ended, Interrupt, Program};

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use crate::install::Fixtures;
use crate::runner::{Environments, Selection};
use crate::scenario::{Cluster as Which, Environment};
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::evidence::Evidence;
use clusters::progress;
use clusters::setup::Setup;
use testkit::client::Client;

/// State that the scenarios share.
pub struct Conformance {
    pub(crate) fixtures: Arc<Fixtures>,
    pub(crate) program: Program,
    skr: (Cluster, Client),
    plain: (Cluster, Client),
}

/// Starts the environment, or uses one that an earlier run kept.
pub async fn start(setup: &Setup, _: &Selection, keep: bool) -> Result<Arc<Conformance>> {
    let program = Program::build().await?;
    let fixtures = Arc::new(Box::pin(Fixtures::prepare(setup, keep)).await?);
    let start = async {
        let [skr, plain] = [WITH_PRODUCT, WITHOUT_PRODUCT]
            .map(|name| fixtures.cluster(ClusterOptions::new(&format!("conformance-{name}"))));
        futures::try_join!(skr, plain)
    };
    let (skr, plain) = progress::show("start the clusters", start).await?;
    let clients = [
        Client::with(&skr.kubeconfig).await?,
        Client::with(&plain.kubeconfig).await?,
    ];
    let [of_skr, of_plain] = clients;
    Ok(Arc::new(Conformance {
        fixtures,
        program,
        skr: (skr, of_skr),
        plain: (plain, of_plain),
    }))
}

impl Conformance {
    /// Returns a runtime by its name in the steps, and its client.
    pub(crate) fn runtime(&self, name: &str) -> Result<&(Cluster, Client)> {
        match name {
            WITH_PRODUCT => Ok(&self.skr),
            WITHOUT_PRODUCT => Ok(&self.plain),
            _ => bail!("expected runtime {WITH_PRODUCT:?} or {WITHOUT_PRODUCT:?}, found {name:?}"),
        }
    }
}

impl Environments for Arc<Conformance> {
    async fn next(&self, _: Vec<String>) -> Result<Arc<dyn Environment>> {
        Ok(Self::clone(self))
    }

    async fn stop(self) -> Result<()> {
        let this = Self::into_inner(self).context("a scenario still runs")?;
        this.skr.0.stop().await?;
        this.plain.0.stop().await?;
        this.fixtures.release().await
    }
}

impl Environment for Conformance {
    fn client(&self, cluster: &Which) -> Result<Client> {
        match cluster {
            Which::Kcp => bail!("the conformance suite has no control plane"),
            Which::Runtime(name) => {
                let (_, client) = self.runtime(name.as_deref().unwrap_or(WITH_PRODUCT))?;
                Ok(client.clone())
            }
        }
    }

    fn diagnose<'a>(&'a self, evidence: &'a Evidence) -> LocalBoxFuture<'a, ()> {
        let collect = async {
            self.skr.0.collect_evidence(evidence).await;
            self.plain.0.collect_evidence(evidence).await;
        };
        collect.boxed_local()
    }
}

/// Name of the runtime with the product and a landscape of `scenarios/`.
const WITH_PRODUCT: &str = "skr";
/// Name of the runtime without an installation.
const WITHOUT_PRODUCT: &str = "plain";
