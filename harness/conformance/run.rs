//! One run: it first determines its requests, then checks identities and permissions, then the clusters. At the end it removes
//! all its objects, also after an error or an interrupt.

mod allowed;
mod context;
mod identities;

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::{Cluster, Endpoint};
use crate::install::Installation;
use crate::report::{Check, ClusterReport, Outcome, Report, seconds};
use crate::requests::Allowed;
use crate::runtime::{version, webhook_deployment};
use crate::scenario::Scenario;
use crate::{control_plane, runtime};

use context::{Found, Namespaces};
use identities::{have_rights, identities};

pub(crate) use context::{Context, LABEL};

/// Options of a run that are not part of the scenario.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Skips checks of metrics, version and warnings of this project's components, so that any implementation can be checked.
    pub only_contract: bool,
    /// Time limit for an expected state on a cluster.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only_contract: false,
            patience: Duration::from_mins(1),
        }
    }
}

/// A run that has not started.
pub struct Run<'a> {
    scenario: &'a Scenario,
    options: Options,
    kcp: Option<Endpoint>,
    runtimes: Vec<Endpoint>,
    namespaces: Namespaces,
    installation: Option<Installation>,
}

impl<'a> Run<'a> {
    /// Returns a run for clusters: `kcp`, and the runtimes in the order of the scenario.
    ///
    /// # Errors
    ///
    /// The scenario has another number of runtimes.
    pub fn new(
        scenario: &'a Scenario,
        kcp: Option<Endpoint>,
        runtimes: Vec<Endpoint>,
        options: Options,
    ) -> Result<Self> {
        let expected: Vec<&str> = scenario.runtimes().collect();
        ensure!(
            expected.len() == runtimes.len(),
            "{}: {} kubeconfigs of runtimes, expected one for each of {expected:?}",
            scenario.file.display(),
            runtimes.len()
        );
        let id = format!("{:08x}", fastrand::u32(..));
        Ok(Self {
            scenario,
            options,
            kcp,
            runtimes,
            namespaces: Namespaces(id),
            installation: None,
        })
    }

    /// Adds an installation, which the runtimes have for the duration of the run.
    ///
    /// # Errors
    ///
    /// The scenario needs a control plane or a watcher, which an installation does not have.
    pub fn with_installation(self, installation: Installation) -> Result<Self> {
        let landscape = &self.scenario.landscape;
        let file = self.scenario.file.display();
        let expected =
            "expected a scenario without it, because --install installs only the webhook";
        ensure!(
            landscape.control_plane.is_none(),
            "{file}: controlPlane: {expected}"
        );
        let is_changed = !self.options.only_contract && !landscape.events.is_empty();
        ensure!(!is_changed, "{file}: events: {expected}");
        Ok(Self {
            installation: Some(installation),
            ..self
        })
    }

    /// Returns all requests that the run may send, by cluster. `{…}` is a name that is not known before.
    pub fn requests(&self) -> Vec<(String, Vec<Allowed>)> {
        let allowed = self.allowed().into_iter();
        let by_name = allowed.map(|(it, allowed)| (it.name.clone(), allowed.into_iter().collect()));
        by_name.collect()
    }

    /// Checks the clusters. `interrupt` ends the run early, which also removes its objects.
    ///
    /// # Errors
    ///
    /// A cluster cannot be reached, is given twice, does not grant the required permissions, or responded with an error; the
    /// run was interrupted; or an object of the run could not be removed.
    pub async fn run(
        self,
        interrupt: impl Future<Output = ()>,
        said: &(dyn Fn(&Check) + Sync),
    ) -> Result<Report> {
        let context = Context {
            scenario: self.scenario,
            options: self.options,
            namespaces: self.namespaces.clone(),
            is_new: self.installation.is_some(),
            begin: Instant::now(),
            said,
            found: Mutex::default(),
        };
        let started = Timestamp::now().strftime("%FT%TZ").to_string();
        let checked = tokio::select! {
            checked = self.check(&context) => checked,
            () = interrupt => Err(anyhow!("interrupted")),
        };
        let removed = context.remove_namespaces().await;
        let removed = match (removed, context.uninstall().await) {
            (Err(namespaces), Err(others)) => Err(namespaces.context(format!("{others:#}"))),
            (namespaces, others) => namespaces.and(others),
        };
        let clusters = match (checked, removed) {
            (Ok(clusters), Ok(())) => clusters,
            (Err(error), Ok(())) => return Err(error),
            (Ok(_), Err(left)) => return Err(left),
            (Err(error), Err(left)) => return Err(error.context(format!("{left:#}"))),
        };
        let Found {
            checks,
            pods,
            mut timeline,
            ..
        } = context.taken();
        timeline.sort();
        Ok(Report {
            scenario: self.scenario.landscape.name.clone(),
            description: self.scenario.landscape.description.clone(),
            started,
            seconds: seconds(context.begin.elapsed()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clusters,
            checks,
            pods,
            timeline,
        })
    }

    async fn check(&self, context: &Context<'_>) -> Result<Vec<ClusterReport>> {
        let allowed = self.allowed().into_iter();
        let guarded = allowed.map(|(it, allowed)| (Cluster::new(it, allowed.clone()), allowed));
        let (clusters, allowed): (Vec<Cluster>, Vec<_>) = guarded.unzip();
        have_rights(&clusters, &allowed).await?;
        let identities = identities(&clusters).await?.into_iter();
        let (kcp, runtimes) = clusters.split_at(usize::from(self.kcp.is_some()));
        if let Some(installation) = &self.installation {
            for runtime in runtimes {
                installation.is_absent(runtime).await?;
            }
            every(runtimes.iter().map(|it| installation.install(context, it))).await?;
        }
        let reports = every(clusters.iter().map(about)).await?;
        let identities = identities.skip(kcp.len());
        let of_runtimes: Vec<(Cluster, String)> =
            runtimes.iter().cloned().zip(identities).collect();
        let checks = every(runtimes.iter().map(|it| runtime::check(context, it)));
        let of_kcp = async {
            match kcp.first() {
                Some(kcp) => control_plane::check(context, kcp, &of_runtimes).await,
                None => Ok(()),
            }
        };
        let (checks, of_kcp) = tokio::join!(checks, of_kcp);
        checks.and(of_kcp)?;
        let has_kcp = self.scenario.landscape.control_plane.is_some();
        if let (true, [], Some(runtime)) = (has_kcp, kcp, runtimes.first()) {
            let outcome = Outcome::not_run("the option --kcp is missing");
            context.contract(runtime, "The runtimes are as KCP has them", outcome);
        }
        Ok(reports)
    }
}

/// Waits for all futures, even if one fails. Returns their results, or the first error.
async fn every<T>(all: impl IntoIterator<Item: Future<Output = Result<T>>>) -> Result<Vec<T>> {
    join_all(all).await.into_iter().collect()
}

async fn about(cluster: &Cluster) -> Result<ClusterReport> {
    let kubernetes = cluster.find(VERSION).await?.unwrap_or_default();
    let deployment = match cluster.name.as_str() {
        KCP => None,
        _ => cluster.find(&webhook_deployment()).await?,
    };
    let kubernetes = kubernetes["gitVersion"].as_str().unwrap_or("unknown");
    Ok(ClusterReport {
        name: cluster.name.clone(),
        kubernetes: kubernetes.to_owned(),
        webhook: version(deployment.as_ref()),
    })
}

/// Name of the control plane in reports.
pub const KCP: &str = "kcp";
/// Path of the version of an API server.
const VERSION: &str = "/version";

#[cfg(test)]
mod tests;
