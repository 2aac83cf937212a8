//! What the scenarios share. [`Watching::start`] returns when a change on the runtime leads to an event on KCP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use listener::{
    CertificateCheck, RuntimeId, RuntimeIdFromCommonName, RuntimeLiveness, SanPinning,
    SkrDomainLookup, TrustAnchors,
};
use testkit::pki::Authority;

use super::certificates::{fresh_authority, gateway_certificates, watcher_certificates};
use super::manager::Manager;
use super::runtime::{REPLICAS, WatchedRuntime};
use super::{DOMAIN, LIFECYCLE, MANAGERS, PINNED, RUNTIME, operator};
use crate::client::Client;
use crate::definitions::eventually;
use crate::fixtures::this_machine;
use crate::gateway::{Gateway, publish_host};
use crate::rollout::Workload;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::evidence::Evidence;
use clusters::images::{self, Image, Role};
use clusters::progress;
use clusters::run::Run;
use clusters::setup::Setup;
use testkit::until::until;

/// KCP with its gateway and managers, and the runtime with the watcher.
pub struct Watching {
    run: Run,
    pub(super) kcp: Cluster,
    pub(super) kcp_client: Client,
    pub(crate) gateway: Gateway,
    pub(crate) managers: Vec<Manager>,
    pub(crate) operator: Workload,
    pub(crate) runtime: WatchedRuntime,
    /// The CA of KCP and the runtime.
    pub(super) authority: Mutex<Arc<Authority>>,
    /// The CAs that the managers trust.
    pub(super) trusted: TrustAnchors,
    domains: Domains,
}

/// The annotations `skr-domain` of Kymas on KCP, by runtime.
#[derive(Clone, Default)]
struct Domains(Arc<Mutex<HashMap<String, String>>>);

impl SkrDomainLookup for Domains {
    fn skr_domain<'a>(
        &'a self,
        runtime: &'a RuntimeId,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn std::error::Error + Send + Sync>>> {
        let domains = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        futures::future::ready(Ok(domains.get(runtime.as_str()).cloned())).boxed()
    }
}

impl Watching {
    /// Starts everything, or uses what an earlier run kept.
    ///
    /// # Errors
    /// At the first part that does not become ready.
    pub async fn start(setup: &Setup, keep: bool) -> Result<Self> {
        let gateway = images::gateway(setup).await?;
        let watcher = images::product(Role::Watcher).await?;
        let operator = images::operator().await?;
        let run = Run::begin(keep).await?;
        let start = |name| {
            let (run, provider) = (&run, &setup.provider);
            async move { Cluster::start(run, provider, &ClusterOptions::new(name)).await }
        };
        let names = ["watching-kcp", "watching-skr"];
        let clusters = futures::future::try_join_all(names.map(|name| Box::pin(start(name))));
        let clusters = progress::show("start two clusters", clusters).await?;
        let [kcp, runtime] = <[Cluster; 2]>::try_from(clusters)
            .ok()
            .context("two clusters")?;
        let install = Box::pin(Self::install(
            (&kcp, [&gateway, &operator]),
            (&runtime, &watcher),
        ));
        let installed = progress::show("install gateway and watcher", install).await;
        let evidence = || Evidence::of("watching", "installation");
        let environment = match installed {
            Ok(installed) => installed(run, kcp, runtime),
            Err(error) => {
                let evidence = evidence()?;
                kcp.collect_evidence(&evidence).await;
                runtime.collect_evidence(&evidence).await;
                return Err(error);
            }
        };
        let delivers = Box::pin(environment.delivers());
        let delivers = progress::show("an event is delivered", delivers).await;
        if delivers.is_err() {
            environment.collect(&evidence()?).await;
        }
        delivers.map(|()| environment)
    }

    /// Installs everything, and gives what makes the environment of it. The clusters stay the caller's until then, so that a
    /// failure leaves evidence of them.
    async fn install(
        (kcp, [gateway, operator]): (&Cluster, [&Image; 2]),
        (runtime, watcher): (&Cluster, &Image),
    ) -> Result<impl FnOnce(Run, Cluster, Cluster) -> Self + use<>> {
        let authority = fresh_authority()?;
        let trusted = TrustAnchors::from_pem(authority.pem().as_bytes())?;
        let domains = Domains::default();
        let managers = managers(kcp, &trusted, &domains).await?;
        kcp.load_image(gateway).await?;
        let certificates = gateway_certificates(&authority, &[&authority])?;
        let image = &gateway.reference;
        let routes = [&MANAGERS[..], &[operator::NAME]].concat();
        let gateway = Gateway::install(kcp, image, &routes, &certificates).await?;
        let operator = operator::install(kcp, operator, authority.pem()).await?;
        for manager in &managers {
            Gateway::route(kcp, manager.name, manager.address).await?;
        }
        runtime.load_image(watcher).await?;
        publish_host(runtime, kcp).await?;
        let certificates = watcher_certificates(&authority, &[&authority])?;
        let image = &watcher.reference;
        let watcher = WatchedRuntime::install(runtime, image, &certificates).await?;
        operator.is_rolled_out().await?;
        // A kept operator has the CA of another run.
        operator.update_mounts().await?;
        let kcp_client = Client::with(&kcp.kubeconfig).await?;
        Ok(move |run, kcp, cluster| {
            let environment = Self {
                run,
                kcp,
                kcp_client,
                gateway,
                managers,
                operator,
                runtime: WatchedRuntime { cluster, watcher },
                authority: Mutex::new(Arc::new(authority)),
                trusted,
                domains,
            };
            environment.set_domain(DOMAIN);
            environment
        })
    }

    /// Removes everything that is not kept.
    ///
    /// # Errors
    /// When Docker reports an error.
    pub async fn stop(self) -> Result<()> {
        for manager in &self.managers {
            manager.stop().await?;
        }
        self.kcp.stop().await?;
        self.runtime.cluster.stop().await?;
        self.run.end().await
    }

    pub(crate) fn manager(&self, name: &str) -> Result<&Manager> {
        let found = self.managers.iter().find(|it| it.name == name);
        found.with_context(|| format!("manager {name:?} is not one of {MANAGERS:?}"))
    }

    /// Waits until a new Kyma leads to an event; the API server does not ask the watcher at once.
    async fn delivers(&self) -> Result<()> {
        let namespace = self.create_namespace("installation").await?;
        let manager = self.manager(LIFECYCLE)?;
        eventually("an event is delivered", async || {
            let kyma = self.create_kyma(&namespace).await?;
            let is_received = || async { manager.received_in(&namespace).contains_key(&kyma) };
            until("the event is received", EVENT_LIMIT, is_received).await?;
            Ok(())
        })
        .await?;
        self.has_heartbeats(LIFECYCLE, REPLICAS).await?;
        self.delete_namespace(&namespace).await
    }

    /// Liveness of the runtime, as a manager's listener reports it.
    pub(crate) fn liveness(&self, manager: &str) -> Result<RuntimeLiveness> {
        let runtimes = self.manager(manager)?.liveness()?.snapshot();
        let mut found = runtimes.into_iter();
        let found = found.find(|it| it.runtime_id.as_str() == RUNTIME);
        found.context("the manager does not know the runtime")
    }

    /// Waits until a manager gets heartbeats from this number of watchers.
    pub(crate) async fn has_heartbeats(&self, manager: &str, count: usize) -> Result<()> {
        eventually("each watcher sends heartbeats", async || {
            let watchers = self.liveness(manager)?.watchers;
            let mut alive = watchers.clone();
            alive.retain(|it| it.heartbeat.is_some() && !it.silent);
            ensure!(alive.len() == count, "{watchers:?}");
            Ok(())
        })
        .await
    }

    pub(crate) fn set_domain(&self, domain: &str) {
        let domains = self.domains.0.lock();
        let mut domains = domains.unwrap_or_else(PoisonError::into_inner);
        domains.insert(RUNTIME.to_owned(), domain.to_owned());
    }

    /// Keeps what explains a failure: objects, Events and logs of both clusters, Envoy's among them, and metrics.
    pub(super) async fn collect(&self, evidence: &Evidence) {
        self.kcp.collect_evidence(evidence).await;
        self.runtime.cluster.collect_evidence(evidence).await;
        self.runtime.keep(evidence).await;
        evidence.keep_result("gateway/stats.txt", self.gateway.page("stats").await);
        evidence.keep_result("gateway/certs.json", self.gateway.page("certs").await);
        for manager in &self.managers {
            let file = format!("managers/{}.txt", manager.name);
            evidence.keep(&file, manager.metrics_page());
        }
    }
}

/// All managers, at the address by which Pods on KCP reach this machine.
async fn managers(
    kcp: &Cluster,
    trusted: &TrustAnchors,
    domains: &Domains,
) -> Result<Vec<Manager>> {
    let address = this_machine(&kcp.node_address().await?)?;
    let mut managers = Vec::new();
    for name in MANAGERS {
        let check = if name == PINNED {
            CertificateCheck::new(trusted.clone(), SanPinning::new(domains.clone()))
        } else {
            CertificateCheck::new(trusted.clone(), RuntimeIdFromCommonName)
        };
        managers.push(Manager::start(name, address, check).await?);
    }
    Ok(managers)
}

/// Longest time that one event takes when the watcher was asked.
const EVENT_LIMIT: Duration = Duration::from_secs(2);
