//! Environment that the scenarios share. [`Watching::start`] returns when a change on the runtime causes an event on KCP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::kcp::KCP_NAMESPACE;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use listener::{
    CertificateCheck, RuntimeId, RuntimeIdFromCommonName, RuntimeLiveness, SanPinning,
    SkrDomainLookup, TrustAnchors, TrustedHops,
};
use serde_json::json;
use testkit::json::namespace;
use testkit::pki::Authority;

use super::certificates::{fresh_authority, gateway_certificates, watcher_certificates};
use super::manager::Manager;
use super::runtime::{REPLICAS, WatchedRuntime};
use super::{DOMAIN, LIFECYCLE, MANAGERS, PINNED, RUNTIME};
use crate::definitions::eventually;
use crate::gateway::{Gateway, publish_host, secret, sidecar};
use crate::install::{apply, printed, this_machine, with_image};
use crate::rollout::Workload;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::evidence::Evidence;
use clusters::images::{self, Image, Role};
use clusters::progress;
use clusters::run::Run;
use clusters::setup::{Setup, definitions};
use testkit::client::Client;
use testkit::until::until;

/// KCP with its gateway and managers, and the runtime with the watcher.
pub struct Watching {
    run: Run,
    pub(super) kcp: Cluster,
    pub(crate) gateway: Gateway,
    pub(crate) managers: Vec<Manager>,
    pub(crate) operator: Workload,
    pub(crate) runtime: WatchedRuntime,
    /// CA of KCP and the runtime.
    pub(super) authority: Mutex<Arc<Authority>>,
    /// CAs that the managers trust.
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
        let domains = testkit::locked(&self.0);
        futures::future::ready(Ok(domains.get(runtime.as_str()).cloned())).boxed()
    }
}

impl Watching {
    /// Starts the environment, or uses one that an earlier run kept.
    pub async fn start(setup: &Setup, keep: bool) -> Result<Self> {
        let gateway = images::gateway(setup).await?;
        let watcher = images::product(Role::Watcher).await?;
        let operator = images::operator().await?;
        let run = Run::begin(keep).await?;
        let start = async |name| {
            let options = ClusterOptions::new(name);
            Box::pin(Cluster::start(&run, &setup.provider, &options)).await
        };
        let clusters = async { tokio::try_join!(start("watching-kcp"), start("watching-skr")) };
        let (kcp, runtime) = progress::show("start two clusters", clusters).await?;
        let authority = fresh_authority()?;
        let trusted = TrustAnchors::from_pem(authority.pem().as_bytes())?;
        let domains = Domains::default();
        let client = Client::with(&kcp.kubeconfig).await?;
        let environment = Self {
            managers: managers(&kcp, &trusted, &domains).await?,
            operator: Workload::new(client.clone(), KCP_NAMESPACE, OPERATOR),
            gateway: Gateway::new(client),
            runtime: WatchedRuntime::of(runtime).await?,
            authority: Mutex::new(Arc::new(authority)),
            run,
            kcp,
            trusted,
            domains,
        };
        environment.set_domain(DOMAIN);
        let install = Box::pin(environment.install(&gateway, &operator, &watcher));
        let mut installed = progress::show("install gateway and watcher", install).await;
        if installed.is_ok() {
            let delivers = Box::pin(environment.delivers());
            installed = progress::show("an event is delivered", delivers).await;
        }
        if installed.is_err() {
            let evidence = Evidence::of("watching", "installation")?;
            environment.collect(&evidence).await;
        }
        installed.map(|()| environment)
    }

    async fn install(&self, gateway: &Image, operator: &Image, watcher: &Image) -> Result<()> {
        let (kcp, runtime, authority) = (&self.kcp, &self.runtime, self.authority());
        self.install_controller().await?;
        kcp.load_image(gateway).await?;
        let certificates = gateway_certificates(&authority, &[&authority])?;
        let (image, routes) = (&gateway.reference, [&MANAGERS[..], &[OPERATOR]].concat());
        let installed = self.gateway.install(kcp, image, &routes, &certificates);
        installed.await?;
        self.install_operator(operator, authority.pem()).await?;
        for manager in &self.managers {
            let route = (manager.name, manager.address);
            self.gateway.route(kcp, image, route).await?;
        }
        runtime.cluster.load_image(watcher).await?;
        publish_host(&runtime.cluster, &kcp.node_address().await?).await?;
        let certificates = watcher_certificates(&authority, &[&authority])?;
        runtime.install(&watcher.reference, &certificates).await?;
        self.operator.is_rolled_out().await?;
        // A kept operator has the CA of another run.
        self.operator.update_mounts().await
    }

    /// Installs the controller of Watchers as a user does, on a KCP with cert-manager and the definitions of Istio.
    async fn install_controller(&self) -> Result<()> {
        let image = images::product(Role::Controller).await?;
        let cert_manager = images::cert_manager().await?;
        for image in [&image, &cert_manager] {
            self.kcp.load_image(image).await?;
        }
        self.kcp.apply(&definitions().await?).await?;
        let issuer = include_str!("cert-manager.yaml").replace("IMAGE", &cert_manager.reference);
        self.kcp.apply(&issuer).await?;
        self.kcp.apply(include_str!("kyma.yaml")).await?;
        let namespaces = [KCP_NAMESPACE, "istio-system"].map(namespace);
        apply(&self.kcp, &namespaces).await?;
        apply(&self.kcp, &printed(&["crds", "--watchers"]).await?).await?;
        let flags = [
            "manifests",
            "controller",
            "--watchers",
            "--image",
            &image.reference,
        ];
        let flags = [&flags[..], &["--", "--controllers=watchers"]].concat();
        apply(&self.kcp, &printed(&flags).await?).await?;
        let client = self.operator.client.clone();
        let issuer = Workload::new(client.clone(), "cert-manager", "cert-manager");
        issuer.is_rolled_out().await?;
        let controller = Workload::new(client, KCP_NAMESPACE, "rt-bootstrapper-controller");
        controller.is_rolled_out().await
    }

    /// Installs the example operator of the listener's crate, without waiting for its Pod.
    async fn install_operator(&self, image: &Image, bundle: &str) -> Result<()> {
        self.kcp.load_image(image).await?;
        self.trust(bundle).await?;
        let objects = with_image(include_str!("operator.yaml"), &image.reference)?;
        apply(&self.kcp, &objects).await
    }

    /// Replaces the CAs that the example operator trusts; it reads them every five seconds.
    pub(super) async fn trust(&self, bundle: &str) -> Result<()> {
        let files = json!({ "ca.crt": bundle });
        let secret = secret(KCP_NAMESPACE, "example-operator-ca", &files);
        self.kcp.apply(&secret.to_string()).await.map(drop)
    }

    /// Removes all objects that are not kept.
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

    /// Waits until a new Kyma causes an event; the API server starts to call the watcher only after some time.
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

    /// Returns the liveness of the runtime, as a manager's listener reports it.
    pub(crate) fn liveness(&self, manager: &str) -> Result<RuntimeLiveness> {
        let runtimes = self.manager(manager)?.liveness()?.snapshot();
        let mut found = runtimes.into_iter();
        let found = found.find(|it| it.runtime_id.as_str() == RUNTIME);
        found.context("the manager does not know the runtime")
    }

    /// Waits until a manager receives heartbeats from this number of watchers.
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
        testkit::locked(&self.domains.0).insert(RUNTIME.to_owned(), domain.to_owned());
    }

    /// Collects diagnostics: objects, Events and logs of both clusters, including those of Envoy, and metrics.
    pub(super) async fn collect(&self, evidence: &Evidence) {
        self.kcp.collect_evidence(evidence).await;
        self.runtime.cluster.collect_evidence(evidence).await;
        self.runtime.keep(evidence).await;
        evidence.keep_result("gateway/stats.txt", self.gateway.page("stats").await);
        evidence.keep_result("gateway/certs.json", self.gateway.page("certs").await);
        for manager in &self.managers {
            let file = format!("managers/{}.txt", manager.name);
            evidence.keep(&file, manager.metrics().text());
        }
    }
}

/// Returns all managers, at the address at which Pods on KCP reach this machine.
async fn managers(
    kcp: &Cluster,
    trusted: &TrustAnchors,
    domains: &Domains,
) -> Result<Vec<Manager>> {
    let address = this_machine(&kcp.node_address().await?)?;
    let mut managers = Vec::new();
    for name in MANAGERS {
        let mut check = if name == PINNED {
            CertificateCheck::new(trusted.clone(), SanPinning::new(domains.clone()))
        } else {
            CertificateCheck::new(trusted.clone(), RuntimeIdFromCommonName)
        };
        if name == sidecar::MANAGER {
            let gateway = sidecar::GATEWAY_ID.to_owned();
            check.trusted_hops = TrustedHops::One { gateway };
        }
        managers.push(Manager::start(name, address, check).await?);
    }
    Ok(managers)
}

/// Time limit of one event after the API server called the watcher.
const EVENT_LIMIT: Duration = Duration::from_secs(2);
/// Name of the example operator as a manager, and of its Deployment on KCP.
const OPERATOR: &str = "example-operator";
