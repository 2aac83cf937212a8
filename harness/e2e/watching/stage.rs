//! What the scenarios of watching share: KCP with its gateway and managers, and one runtime with the watcher.
//!
//! Invariant: [`Stage::start`] returns when a change on the runtime is heard on KCP.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use listener::{
    Authorities, CertificateCheck, RuntimeId, RuntimeIdFromCommonName, SanPinning, SkrDomainLookup,
};

use super::manager::Manager;
use super::objects::{LIFECYCLE, PINNED, WATCHER_MANAGERS};
use super::subject::{Kind, Subject};
use super::watcher::{REPLICAS, Skr};
use super::{Changed, DOMAIN, PATIENCE, RUNTIME};
use crate::gateway::{self, Authority, Gateway, Leaf, Pair, Validity, entrance};
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::evidence::Evidence;
use clusters::images::{self, Image, Role};
use clusters::progress::Progress;
use clusters::run::Run;
use clusters::setup::Setup;
use testkit::until::until;

/// See the module.
pub struct Stage {
    run: Run,
    pub(super) kcp: Cluster,
    pub(super) gateway: Gateway,
    pub(super) managers: Vec<Manager>,
    pub(super) skr: Skr,
    /// Who signs for KCP and the runtime.
    authority: Mutex<Arc<Authority>>,
    /// Whom the managers believe.
    believed: Authorities,
    /// What KCP knows of the runtimes' domains.
    domains: Domains,
}

/// Kymas' annotation `skr-domain`, by runtime.
#[derive(Clone, Default)]
struct Domains(Arc<Mutex<HashMap<String, String>>>);

impl SkrDomainLookup for Domains {
    fn skr_domain<'a>(
        &'a self,
        runtime: &'a RuntimeId,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn std::error::Error + Send + Sync>>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        futures::future::ready(Ok(known.get(runtime.as_str()).cloned())).boxed()
    }
}

impl Domains {
    fn set(&self, domain: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(RUNTIME.to_owned(), domain.to_owned());
    }
}

/// The images of a stage.
struct Images {
    gateway: Image,
    watcher: Image,
}

impl Stage {
    /// Starts everything, or takes what an earlier run kept.
    ///
    /// # Errors
    /// At the first part that does not come up.
    pub async fn start(progress: &Progress, setup: &Setup, keep: bool) -> anyhow::Result<Self> {
        let images = Images {
            gateway: images::gateway(progress, setup).await?,
            watcher: images::product(progress, Role::Watcher).await?,
        };
        let run = Run::begin(keep).await?;
        let start = |name| {
            let (run, provider) = (&run, &setup.provider);
            async move { Cluster::start(run, provider, &ClusterOptions::new(name)).await }
        };
        let clusters = async {
            tokio::try_join!(
                Box::pin(start("watching-kcp")),
                Box::pin(start("watching-skr"))
            )
        };
        let (kcp, skr) = progress.show("start two clusters", clusters).await?;
        let install = Box::pin(Self::install(run, kcp, skr, &images));
        let stage = progress
            .show("install gateway and watcher", install)
            .await?;
        let watching = progress
            .show("a change is heard", Box::pin(stage.is_watching()))
            .await;
        if watching.is_err() {
            let evidence = Evidence::of("stage", "watching")?;
            stage.keep(&evidence).await;
        }
        watching.map(|()| stage)
    }

    async fn install(
        run: Run,
        kcp: Cluster,
        skr: Cluster,
        images: &Images,
    ) -> anyhow::Result<Self> {
        let authority = Authority::new("watcher authority 1")?;
        let believed = Authorities::from_pem(authority.pem().as_bytes())?;
        let domains = Domains::default();
        domains.set(DOMAIN);
        let managers = managers(&kcp, &believed, &domains).await?;
        kcp.load_image(&images.gateway).await?;
        let pair = gateway_pair(&authority)?;
        let reference = &images.gateway.reference;
        let gateway = Gateway::install(&kcp, reference, &WATCHER_MANAGERS, &pair).await?;
        for manager in &managers {
            Gateway::lead(&kcp, manager.name(), manager.address()).await?;
        }
        skr.load_image(&images.watcher).await?;
        entrance(&skr, &kcp).await?;
        let skr = Skr::of(skr).await?;
        let pair = watcher_pair(&authority)?;
        skr.install(
            &images::built_binary(images::Profile::E2e),
            &images.watcher,
            &pair,
        )
        .await?;
        Ok(Self {
            run,
            kcp,
            gateway,
            managers,
            skr,
            authority: Mutex::new(Arc::new(authority)),
            believed,
            domains,
        })
    }

    /// Removes everything that is not kept.
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn stop(self) -> anyhow::Result<()> {
        for manager in &self.managers {
            manager.stop().await?;
        }
        self.kcp.stop().await?;
        self.skr.cluster.stop().await?;
        self.run.end().await
    }

    /// A manager by its name.
    pub(super) fn manager(&self, name: &str) -> anyhow::Result<&Manager> {
        let found = self.managers.iter().find(|it| it.name() == name);
        found.with_context(|| format!("{name}: not in the vocabulary"))
    }

    /// Who signs now.
    pub(super) fn authority(&self) -> anyhow::Result<Arc<Authority>> {
        let current = self.authority.lock().ok();
        current.map(|it| Arc::clone(&it)).context("the authority")
    }

    async fn is_watching(&self) -> anyhow::Result<()> {
        let namespace = format!("watched-{}", std::process::id());
        self.skr.make_namespace(&namespace).await?;
        let manager = self.manager(LIFECYCLE)?;
        until("a change is heard", PATIENCE, || async {
            // One that nobody was asked about is not asked about later either.
            let kyma = Subject::fresh(Kind::Kyma, &namespace);
            kyma.create(&self.skr.dialogue, Some("kyma")).await?;
            until("it is heard", super::A_WHILE, || async {
                !manager.heard.of(&kyma.heard_as()).is_empty()
            })
            .await?;
            anyhow::Ok(())
        })
        .await?;
        self.every_replica_reports(LIFECYCLE, REPLICAS).await?;
        self.skr.drop_namespace(&namespace).await
    }

    /// Waits until a manager has heartbeats of so many watchers of the runtime.
    pub(super) async fn every_replica_reports(
        &self,
        manager: &str,
        count: usize,
    ) -> anyhow::Result<()> {
        let liveness = self.manager(manager)?.liveness()?;
        until("every watcher has sent a heartbeat", PATIENCE, || async {
            let snapshot = liveness.snapshot();
            let runtime = snapshot.iter().find(|it| it.runtime_id.as_str() == RUNTIME);
            let runtime = runtime.context("the runtime was never heard of")?;
            let alive = runtime.watchers.iter().filter(|it| it.heartbeat.is_some());
            ensure!(alive.count() >= count, "{:?}", runtime.watchers);
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// KCP knows that domain for the runtime from now on.
    pub(super) fn set_domain(&self, domain: &str) {
        self.domains.set(domain);
    }

    /// Another authority for both sides, in the order that costs nothing: both are trusted, then the new one signs, then
    /// the old one is no longer trusted.
    pub(super) async fn rotate(&self) -> anyhow::Result<()> {
        let old = self.authority()?;
        let new = Arc::new(Authority::new("watcher authority 2")?);
        let both = [old.as_ref(), new.as_ref()];
        for (signer, trusted) in [(&old, &both[..]), (&new, &both[..]), (&new, &both[1..])] {
            let believed: String = trusted.iter().map(|it| it.pem()).collect();
            self.believed.replace(believed.as_bytes())?;
            let pair = gateway_pair(signer)?.trusting(trusted);
            self.gateway.renew(&self.kcp, &pair).await?;
            let pair = watcher_pair(signer)?.trusting(trusted);
            self.skr.renew(&pair).await?;
        }
        if let Ok(mut current) = self.authority.lock() {
            *current = new;
        }
        Ok(())
    }

    /// Handshakes that the gateway ended, whatever it disliked.
    pub(super) async fn refused_handshakes(&self) -> anyhow::Result<u64> {
        let mut refused = 0;
        for counter in [
            "ssl.connection_error",
            "ssl.fail_verify_no_cert",
            "ssl.fail_verify_error",
        ] {
            refused += self.gateway.statistic(counter).await?;
        }
        Ok(refused)
    }

    /// Brings back what a scenario changed for all.
    pub(super) async fn put_back(&self, changed: Changed) -> anyhow::Result<()> {
        match changed {
            Changed::Kcp(trouble) => self.recover(trouble).await,
            Changed::Watcher => self.skr.resume().await,
            Changed::Domain => {
                self.set_domain(DOMAIN);
                Ok(())
            }
        }
    }

    /// Keeps all that explains a failure.
    pub(super) async fn keep(&self, evidence: &Evidence) {
        self.skr.keep(evidence).await;
        evidence.keep_result("gateway/stats.txt", self.gateway.ask("stats").await);
        evidence.keep_result("gateway/certs.json", self.gateway.ask("certs").await);
    }
}

/// All of them, at the address by which Pods on KCP reach this machine.
async fn managers(
    kcp: &Cluster,
    believed: &Authorities,
    domains: &Domains,
) -> anyhow::Result<Vec<Manager>> {
    let address = this_machine(kcp).await?;
    let mut managers = Vec::new();
    for name in WATCHER_MANAGERS {
        let check = if name == PINNED {
            CertificateCheck::new(believed.clone(), SanPinning::new(domains.clone()))
        } else {
            CertificateCheck::new(believed.clone(), RuntimeIdFromCommonName)
        };
        managers.push(Manager::start(name, address, check).await?);
    }
    Ok(managers)
}

/// The container network's gateway is this machine.
async fn this_machine(kcp: &Cluster) -> anyhow::Result<IpAddr> {
    let routes = kcp.exec_on_node(&["cat", "/proc/net/route"]).await?;
    let way_out = way_out(&routes.stdout);
    way_out.with_context(|| format!("no way out: {routes:?}"))
}

/// The gateway of the default route, out of the kernel's table: interface, destination, gateway, in the bytes' own order.
fn way_out(table: &str) -> Option<IpAddr> {
    let mut routes = table.lines().map(|line| line.split_whitespace().skip(1));
    let gateway = routes.find_map(|mut route| match route.next() {
        Some("00000000") => route.next(),
        _ => None,
    })?;
    let bytes = u32::from_str_radix(gateway, 16).ok()?.to_le_bytes();
    Some(IpAddr::from(bytes))
}

fn gateway_pair(authority: &Authority) -> anyhow::Result<Pair> {
    authority.pair(&Leaf {
        common_name: gateway::HOST,
        names: &[gateway::HOST],
        validity: Validity::Now,
    })
}

/// As the lifecycle manager orders it: for the webhook's Service, and for KCP.
fn watcher_pair(authority: &Authority) -> anyhow::Result<Pair> {
    authority.pair(&Leaf {
        common_name: RUNTIME,
        names: &[
            DOMAIN,
            "skr-webhook.kyma-system.svc",
            "skr-webhook.kyma-system.svc.cluster.local",
        ],
        validity: Validity::Now,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_way_out_is_the_default_route() {
        let table = "Iface\tDestination\tGateway\tFlags\neth0\t0000A8C0\t00000000\t0001\n\
                     eth0\t00000000\t0100A8C0\t0003\n";
        assert_eq!(super::way_out(table).unwrap().to_string(), "192.168.0.1");
    }
}
