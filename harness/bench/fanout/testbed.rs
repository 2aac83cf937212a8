//! The environment of the controller: a real API server as the control plane, and the simulated runtimes.
//!
//! Both are filled before the measurement.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use api::bootstrapper::GROUP;
use api::kcp::{KCP_NAMESPACE, RUNTIME_GROUP};
use api::names;
use clusters::cluster::{Cluster, ClusterOptions, write_kubeconfig};
use clusters::control_plane::{ControlPlane, Sources, TRUST_BUNDLE};
use clusters::run::Run;
use clusters::setup::Setup;
use serde_json::Value;
use testkit::client::Client;
use testkit::until::{holds, until};
use tokio::process::Command;

use super::watchers::{self, Watchers};
use crate::environment::Bench;
use crate::fleet::{Conditions, Expected, Fleet};
use crate::process::{Process, Program};

/// Environment variables of the manifest that influence the measurement.
const ENVIRONMENT: &[(&str, &str)] = &[("MIMALLOC_PURGE_DELAY", "0")];

/// API groups of the objects on the control plane that the controller writes, but Secrets and ConfigMaps.
const KCP_GROUPS: [&str; 4] = [
    GROUP,
    RUNTIME_GROUP,
    "cert-manager.io",
    "networking.istio.io",
];

#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) runtimes: usize,
    /// Whether the settings are those of production: a CA per runtime, client certificates, jitter of half a round trip,
    /// objects of real sizes, both controllers, and a control plane whose API server has the default garbage collection.
    pub(super) production: bool,
    /// Whether all controllers run, with a Watcher, and a Kyma per runtime.
    pub(super) watchers: bool,
}

impl Settings {
    /// Returns the conditions of a runtime without a fault.
    pub(super) fn conditions(self) -> Conditions {
        let jitter = ROUND_TRIP / 2 * u32::from(self.production);
        Conditions {
            latency: ROUND_TRIP,
            jitter,
            ..Conditions::default()
        }
    }

    /// Returns sources in which all three values are different from those of every other version.
    fn sources(self, version: u32) -> anyhow::Result<Sources> {
        let mut sources = Sources::of_version(version)?;
        for _ in 1..if self.production { BUNDLE } else { 1 } {
            sources.bundle += &Sources::of_version(version)?.bundle;
        }
        Ok(sources)
    }
}

pub(super) struct Testbed<'a> {
    run: Run,
    cluster: Cluster,
    control_plane: ControlPlane,
    pub(super) fleet: Fleet,
    pub(super) settings: Settings,
    controller: Program<'a>,
    /// Path of the control plane's kubeconfig, with the address of its container.
    kubeconfig: PathBuf,
    sources: Sources,
    watchers: Watchers,
    /// Version of the sources; it increases with every change.
    version: u32,
    /// Object of the last change.
    change: Change,
    /// Start of the last change on the simulator's clock. The first value is the time at which the control plane was prepared.
    since: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    PullSecret,
    AllThree,
    /// Fields of the Watchers.
    Watcher,
    /// CA of the watchers; afterwards both CAs are trusted.
    Authority,
    /// Certificates of the watchers.
    Certificates,
}

impl<'a> Testbed<'a> {
    pub(super) async fn start(bench: &'a Bench, settings: Settings) -> anyhow::Result<Self> {
        let setup = Setup::load()?;
        let run = Run::begin(false).await?;
        let mut options = ClusterOptions::new("kcp").without_node();
        if !settings.production {
            options = options.with_env("GOGC", "off").with_env("GOMEMLIMIT", HEAP);
        }
        let cluster = Cluster::start(&run, &setup.provider, &options).await?;
        let crds = Command::new(&bench.product).arg("crds").output().await?;
        ensure!(crds.status.success(), "crds: {crds:?}");
        cluster.apply(str::from_utf8(&crds.stdout)?).await?;
        let mut control_plane = ControlPlane::prepare(cluster.client()).await?;
        if settings.production {
            control_plane.shoot = serde_json::from_str(SHOOT)?;
        }
        let (runtimes, production) = (settings.runtimes, settings.production);
        let fleet = Fleet::start(runtimes, production, &settings.conditions()).await?;
        let kubeconfig = cluster.direct_kubeconfig().await?.to_string();
        let mut testbed = Self {
            run,
            control_plane,
            fleet,
            settings,
            controller: Program::new(bench, "controller")?.with_environment(ENVIRONMENT),
            kubeconfig: write_kubeconfig("kcp-direct", &kubeconfig)?,
            cluster,
            sources: settings.sources(0)?,
            watchers: Watchers::new()?,
            version: 0,
            change: if settings.watchers {
                Change::Watcher
            } else {
                Change::AllThree
            },
            since: Duration::ZERO,
        };
        testbed.control_plane.put_sources(&testbed.sources).await?;
        let kubeconfigs = testbed.fleet.kubeconfigs()?;
        testbed.control_plane.fill(&kubeconfigs).await?;
        if settings.watchers {
            let (cluster, control_plane) = (&testbed.cluster, &testbed.control_plane);
            let watchers = &testbed.watchers;
            watchers
                .prepare(bench, cluster, control_plane, runtimes)
                .await?;
        }
        testbed.since = testbed.fleet.now();
        Ok(testbed)
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        self.run.end().await
    }

    /// Returns the number of requests to the control plane that wrote objects of the kinds that the controller writes. Leases, Events
    /// and objects of the API server itself are not counted.
    pub(super) async fn writes_on_kcp(&self) -> anyhow::Result<u64> {
        let metrics = Client::new(self.cluster.client()).metrics().await?;
        let groups = KCP_GROUPS.map(|it| ("group", it));
        let kinds = ["configmaps", "secrets"].map(|it| ("resource", it));
        let writes = ["APPLY", "DELETE", "PATCH", "POST", "PUT"].map(|verb| {
            let labels = groups.iter().chain(&kinds);
            let counts = labels.map(|(label, value)| {
                let series =
                    format!("apiserver_request_total{{verb=\"{verb}\",{label}=\"{value}\"}}");
                metrics.count(&series)
            });
            counts.sum::<u64>()
        });
        Ok(writes.iter().sum())
    }

    /// Starts the controller, which is not ready yet.
    pub(super) fn start_controller(&self) -> anyhow::Result<Process> {
        self.controller.start(self.flags())
    }

    fn flags(&self) -> Vec<String> {
        let Settings {
            production,
            watchers,
            ..
        } = self.settings;
        let signal = ["", "signal,"][usize::from(production || watchers)];
        let more = ["", ",watchers"][usize::from(watchers)];
        vec![
            "controller".to_owned(),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--controllers={signal}direct{more}"),
            format!("--namespace={KCP_NAMESPACE}"),
            format!("--kcp-pull-secret-name={}", names::PULL_SECRET),
            format!("--kcp-cluster-trust-bundle={TRUST_BUNDLE}"),
            format!("--skr-cluster-trust-bundle={TRUST_BUNDLE}"),
            format!("--metrics-bind-address={}", self.controller.metrics),
            // The fleet is on loopback, which the controller rejects by default.
            "--allow-loopback-runtimes".to_owned(),
            "--leader-elect-identity=bench".to_owned(),
            // The state is that after a completed rollout: a new runtime does not wait for steps.
            "--rollout-steps=100%".to_owned(),
            "--rollout-soak-duration=0s".to_owned(),
        ]
    }

    pub(super) async fn rotate(&self) -> anyhow::Result<()> {
        self.fleet.rotate();
        self.control_plane.renew(&self.fleet.kubeconfigs()?).await
    }

    /// Changes sources on the control plane.
    pub(super) async fn change(&mut self, change: Change) -> anyhow::Result<()> {
        self.version += 1;
        let next = self.settings.sources(self.version)?;
        let (watchers, control_plane) = (&mut self.watchers, &self.control_plane);
        (self.change, self.since) = (change, self.fleet.now());
        match change {
            Change::AllThree => self.sources = next,
            Change::PullSecret => self.sources.password = next.password,
            Change::Watcher => return watchers.change(control_plane).await,
            Change::Authority => return watchers.rotate(control_plane).await,
            Change::Certificates => {
                return watchers.renew(control_plane, self.settings.runtimes).await;
            }
        }
        control_plane.put_sources(&self.sources).await
    }

    /// Changes the route of the Watcher. Returns the seconds until its VirtualService had the change.
    pub(super) async fn reroute(&mut self) -> anyhow::Result<f64> {
        let begin = Instant::now();
        let port = self.watchers.reroute(&self.control_plane).await?;
        let route = watchers::virtual_service();
        let is_live = || async {
            let live = self.control_plane.get(&route).await?;
            let seen = live.pointer("/spec/http/0/route/0/destination/port/number");
            ensure!(
                seen.and_then(Value::as_u64) == Some(port.into()),
                "{seen:?}"
            );
            anyhow::Ok(())
        };
        until("the VirtualService is live", LONGEST, is_live).await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Waits until all runtimes except `excluded` have the last change. Returns the seconds after which each had all of it.
    pub(super) async fn converged(&self, excluded: usize) -> anyhow::Result<Vec<f64>> {
        let expected = self.settings.runtimes - excluded;
        let what = format!("the change on {expected} runtimes");
        let times = until(&what, LONGEST, || async {
            let arrivals = self.arrivals().into_iter().flatten();
            let times: Vec<Duration> = arrivals.collect();
            ensure!(times.len() >= expected, "{}", times.len());
            Ok(times)
        });
        let seconds = |time: Duration| time.saturating_sub(self.since).as_secs_f64();
        Ok(times.await?.into_iter().map(seconds).collect())
    }

    /// Returns the time at which each runtime got the last object of the change. The ConfigMap contains the revision of all
    /// sources, so it changes with each source.
    fn arrivals(&self) -> Vec<Option<Duration>> {
        let mut last = vec![Some(Duration::ZERO); self.settings.runtimes];
        let of_watchers = match self.change {
            Change::Watcher => vec![watchers::webhooks()],
            Change::Authority => vec![watchers::webhooks(), watchers::certificate()],
            Change::Certificates => vec![watchers::certificate()],
            Change::AllThree | Change::PullSecret => Vec::new(),
        };
        if !of_watchers.is_empty() {
            for place in of_watchers {
                for (last, time) in last.iter_mut().zip(self.fleet.changes(&place, self.since)) {
                    *last = last.zip(time).map(|(one, other)| one.max(other));
                }
            }
            // The cold start includes the objects of the controller `direct`.
            if self.version > 0 {
                return last;
            }
        }
        for object in Expected::of(&self.sources) {
            if self.change == Change::PullSecret && object.place.resource == "clustertrustbundles" {
                continue;
            }
            for (last, time) in last
                .iter_mut()
                .zip(self.fleet.arrivals(&object, self.since))
            {
                *last = last.zip(time).map(|(one, other)| one.max(other));
            }
        }
        last
    }

    /// Waits until this number of runtimes has the pull Secret of the change.
    pub(super) async fn reached(&self, expected: usize) -> anyhow::Result<()> {
        let reached = || async { self.arrived() >= expected };
        Ok(until("the change spreads", LONGEST, reached).await?)
    }

    /// Returns how many runtimes have the pull Secret of the change, which is written first.
    pub(super) fn arrived(&self) -> usize {
        let [secret, ..] = Expected::of(&self.sources);
        let arrivals = self.fleet.arrivals(&secret, self.since);
        arrivals.into_iter().flatten().count()
    }

    /// Waits until the fleet has as many further handshakes as runtimes since this number, and no request is in flight.
    pub(super) async fn visited_again(&self, handshakes: u64) -> anyhow::Result<()> {
        let wanted = handshakes + self.settings.runtimes as u64;
        let visited = until("a connection to every runtime", LONGEST, || async {
            let counts = self.fleet.counts();
            let done = counts.handshakes;
            ensure!(done >= wanted, "{done} of {wanted} handshakes");
            ensure!(counts.in_flight == 0, "{} requests", counts.in_flight);
            Ok(())
        });
        Ok(visited.await?)
    }

    /// Waits until the controller is ready, and neither runtimes nor control plane receive writes.
    pub(super) async fn settled(&self, controller: &mut Process) -> anyhow::Result<()> {
        self.controller.ready(controller).await?;
        let written = || async {
            let metrics = self.controller.metrics().await?;
            anyhow::Ok((self.fleet.counts().writes, metrics.count(STATUSES)))
        };
        let settled = until("no more writes", LONGEST, || async {
            let before = written().await?;
            let quiet = holds("no writes", STILL, || async {
                let now = written().await?;
                ensure!(now == before, "{now:?} after {before:?}");
                Ok(())
            });
            anyhow::Ok(quiet.await?)
        });
        Ok(settled.await?)
    }
}

/// Fields of `spec.shoot` of a `Runtime` as KEB writes them: three worker pools in three zones.
const SHOOT: &str = include_str!("shoot.json");
const ROUND_TRIP: Duration = Duration::from_millis(100);
const STATUSES: &str = "rt_bootstrapper_controller_status_updates_total";
const BUNDLE: usize = 40;
/// Heap size below which the API server of the control plane does not collect garbage. With the default it collects several
/// times in one scenario with 5,000 Runtimes, and each time uses one and a half of the two cores for seconds.
const HEAP: &str = "8GiB";
/// Longer than the interval between checks of a runtime that waits for its Deployment.
const STILL: Duration = Duration::from_secs(8);
/// Time limit of a change. 10,000 runtimes have 30,000 statuses, of which 100 are written per second.
const LONGEST: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests;
