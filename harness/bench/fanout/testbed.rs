//! What surrounds the controller: a real API server as the control plane, and the simulated runtimes.
//!
//! The simulator is a process on the core of the load generator. Both are filled before anything is timed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::runtimes::MODE_DIRECT;
use clusters::cluster::{Cluster, ClusterOptions, write_kubeconfig};
use clusters::control_plane::{ControlPlane, Member, Sources, controller_flags};
use clusters::run::Run;
use clusters::setup::Setup;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;
use testkit::Place;
use testkit::until::{holds, until};
use tokio::process::Command;

use super::curve::Curve;
use crate::environment::Bench;
use crate::fleet::control::FleetControl;
use crate::fleet::{Arrival, Conditions, Selection, content_of};
use crate::process::{self, Process, counter, free_address};

/// What a testbed is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) runtimes: usize,
    /// One round trip between controller and runtimes.
    pub(super) latency: Duration,
    /// Client certificates instead of tokens, jitter of half a round trip, a trust bundle of a real size, and the API
    /// server of the control plane with the default garbage collection.
    pub(super) production: bool,
}

impl Settings {
    /// The conditions of a runtime without a fault.
    pub(super) fn conditions(self) -> Conditions {
        Conditions {
            latency: self.latency,
            jitter: if self.production {
                self.latency / 2
            } else {
                Duration::ZERO
            },
            ..Conditions::default()
        }
    }
}

/// Everything but the controller.
pub(super) struct Testbed {
    run: Run,
    cluster: Cluster,
    control_plane: ControlPlane,
    pub(super) simulator: Process,
    pub(super) fleet: FleetControl,
    pub(super) settings: Settings,
    binary: PathBuf,
    core: u32,
    /// Of the control plane, by the address of its container.
    kubeconfig: PathBuf,
    sources: Sources,
    /// Increases with every change.
    version: u32,
}

/// Which of the sources change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    PullSecret,
    AllThree,
}

impl Change {
    /// The objects on a runtime that a change reaches. The ConfigMap has the revision of all sources, so it changes with
    /// each.
    fn places(self) -> Vec<Place> {
        let [secret, bundle, configuration] = Sources::places();
        match self {
            Self::PullSecret => vec![secret, configuration],
            Self::AllThree => vec![secret, configuration, bundle],
        }
    }
}

impl Testbed {
    pub(super) async fn start(bench: &Bench<'_>, settings: Settings) -> anyhow::Result<Self> {
        let setup = Setup::load()?;
        let run = Run::begin(false).await?;
        let mut options = ClusterOptions::new("kcp").without_node();
        if !settings.production {
            options = options.with_env("GOGC", "off").with_env("GOMEMLIMIT", HEAP);
        }
        let start = Cluster::start(&run, &setup.provider, &options);
        let cluster = bench
            .progress
            .show("start the control plane", start)
            .await?;
        let crds = Command::new(&bench.programs.product)
            .arg("crds")
            .output()
            .await?;
        ensure!(
            crds.status.success(),
            "crds: {}",
            String::from_utf8_lossy(&crds.stderr)
        );
        cluster.apply(str::from_utf8(&crds.stdout)?).await?;
        let control_plane = ControlPlane::prepare(cluster.client(), Some(MODE_DIRECT)).await?;
        let (simulator, fleet) = start_simulator(bench, settings).await?;
        fleet.set(Selection::All, settings.conditions()).await?;
        let kubeconfig = cluster.direct_kubeconfig().await?.to_string();
        let testbed = Self {
            run,
            control_plane,
            simulator,
            fleet,
            settings,
            binary: bench.programs.product.clone(),
            core: bench.cores.system,
            kubeconfig: write_kubeconfig("kcp-direct", &kubeconfig)?,
            cluster,
            sources: sources(0, settings)?,
            version: 0,
        };
        testbed.control_plane.put_sources(&testbed.sources).await?;
        let fill = async { testbed.control_plane.fill(&testbed.members().await?).await };
        bench.progress.show("fill the control plane", fill).await?;
        Ok(testbed)
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        self.run.end().await
    }

    /// Starts the controller, which is not ready yet.
    pub(super) fn start_controller(&self) -> anyhow::Result<Controller> {
        let [health, metrics] = [free_address()?, free_address()?];
        let mut flags = controller_flags(&self.kubeconfig, "bench");
        flags.push(format!("--health-probe-bind-address={health}"));
        flags.push(format!("--metrics-bind-address={metrics}"));
        let process = Process::start("controller", self.core, &self.binary, &flags)?;
        Ok(Controller {
            process,
            health,
            metrics,
        })
    }

    /// Rotates the credentials of all runtimes and updates their kubeconfigs.
    pub(super) async fn rotate(&self) -> anyhow::Result<()> {
        self.fleet.rotate(&Selection::All).await?;
        self.control_plane.renew(&self.members().await?).await
    }

    async fn members(&self) -> anyhow::Result<Vec<Member>> {
        let member = async |number| {
            let kubeconfig = self.fleet.kubeconfig(number).await?;
            anyhow::Ok(Member { number, kubeconfig })
        };
        let members = stream::iter(0..self.settings.runtimes).map(member);
        members.buffered(AT_ONCE).try_collect().await
    }

    /// Changes sources on the control plane; gives the time on the simulator's clock.
    pub(super) async fn change(&mut self, change: Change) -> anyhow::Result<Duration> {
        self.version += 1;
        let next = sources(self.version, self.settings)?;
        self.sources = match change {
            Change::AllThree => next,
            Change::PullSecret => Sources {
                password: next.password,
                ..self.sources.clone()
            },
        };
        let now = self.now().await?;
        self.control_plane.put_sources(&self.sources).await?;
        Ok(now)
    }

    /// The time on the simulator's clock.
    pub(super) async fn now(&self) -> anyhow::Result<Duration> {
        Ok(self.fleet.totals().await?.now)
    }

    /// Waits until all runtimes but `excluded` have what changed after a time; says when each got it.
    pub(super) async fn converged(
        &self,
        change: Change,
        since: Duration,
        excluded: usize,
    ) -> anyhow::Result<Curve> {
        let expected = self.settings.runtimes - excluded;
        let mut times = vec![Some(Duration::ZERO); self.settings.runtimes];
        for arrival in self.arrivals(change, since)? {
            let what = format!("{} on {expected} runtimes", arrival.place.name);
            until(&what, LONGEST, || async {
                let arrived = self.fleet.arrived(&arrival).await?;
                ensure!(arrived >= expected, "{arrived}");
                anyhow::Ok(())
            })
            .await?;
        }
        for arrival in self.arrivals(change, since)? {
            let entries = self.fleet.entries(&arrival.place).await?;
            for (time, entry) in times.iter_mut().zip(&entries) {
                let right = entry.content.as_ref() == Some(&arrival.content);
                let arrived = entry.changed.checked_sub(since).filter(|_| right);
                *time = time.zip(arrived).map(|(one, other)| one.max(other));
            }
        }
        Ok(Curve::new(times.into_iter().flatten().collect(), expected))
    }

    fn arrivals(&self, change: Change, since: Duration) -> anyhow::Result<Vec<Arrival>> {
        let sent = self.sources.objects();
        let arrival = |place: Place| {
            let same = |it: &&Value| it["metadata"]["name"] == place.name.as_str();
            let wanted = sent.iter().find(same).context("a source of that name")?;
            let content = content_of(wanted);
            Ok(Arrival {
                place,
                content,
                since,
            })
        };
        change.places().into_iter().map(arrival).collect()
    }

    /// Waits until the first object of a change is on so many runtimes.
    pub(super) async fn reached(&self, since: Duration, expected: usize) -> anyhow::Result<()> {
        let reached = until("the change spreads", LONGEST, || async {
            let arrived = self.arrived(since).await?;
            ensure!(arrived >= expected, "{arrived} of {expected}");
            anyhow::Ok(())
        });
        Ok(reached.await?)
    }

    /// On how many runtimes the first object of a change is.
    pub(super) async fn arrived(&self, since: Duration) -> anyhow::Result<usize> {
        let arrivals = self.arrivals(Change::AllThree, since)?;
        self.fleet.arrived(&arrivals[0]).await
    }

    /// Waits until every runtime was connected to again since so many handshakes, and no request is open.
    pub(super) async fn visited_again(&self, handshakes: u64) -> anyhow::Result<()> {
        let wanted = handshakes + self.settings.runtimes as u64;
        let visited = until("a connection to every runtime", LONGEST, || async {
            let totals = self.fleet.totals().await?;
            let done = totals.counts.handshakes;
            ensure!(done >= wanted, "{done} of {wanted} handshakes");
            ensure!(totals.in_flight == 0, "{} requests", totals.in_flight);
            anyhow::Ok(())
        });
        Ok(visited.await?)
    }

    /// Waits until the controller is ready and nothing is written to runtimes and control plane any more.
    pub(super) async fn settled(&self, controller: &mut Controller) -> anyhow::Result<()> {
        controller.process.ready(controller.health).await?;
        let controller = &*controller;
        let written = || async {
            let totals = self.fleet.totals().await?;
            anyhow::Ok((totals.counts.writes, controller.statuses().await?))
        };
        let settled = until("no more writes", LONGEST, || async {
            let before = written().await?;
            let quiet = holds("no writes", STILL, || async {
                let now = written().await?;
                ensure!(now == before, "{now:?} after {before:?}");
                anyhow::Ok(())
            });
            anyhow::Ok(quiet.await?)
        });
        Ok(settled.await?)
    }
}

/// The product's controller.
pub(super) struct Controller {
    pub(super) process: Process,
    health: SocketAddr,
    metrics: SocketAddr,
}

impl Controller {
    /// Statuses that it wrote to the control plane so far.
    async fn statuses(&self) -> anyhow::Result<u64> {
        let metrics = process::metrics(self.metrics).await?;
        Ok(counter(&metrics, STATUSES, |_| true).unwrap_or_default())
    }
}

/// The ports of the simulator, which it writes when it has started.
#[derive(Deserialize)]
struct Ports {
    control: u16,
}

async fn start_simulator(
    bench: &Bench<'_>,
    settings: Settings,
) -> anyhow::Result<(Process, FleetControl)> {
    let credentials = if settings.production {
        "certificate"
    } else {
        "token"
    };
    let arguments = [
        "fleet".to_owned(),
        format!("--runtimes={}", settings.runtimes),
        format!("--credentials={credentials}"),
    ];
    let harness = &bench.programs.harness;
    let mut process = Process::start_with_pipes("fleet", bench.cores.load, harness, &arguments)?;
    let ports: Ports = process.receive().await?;
    Ok((process, FleetControl::new(ports.control)))
}

/// Sources that differ from those of every other version in all three.
fn sources(version: u32, settings: Settings) -> anyhow::Result<Sources> {
    let mut sources = Sources::of_version(version)?;
    if settings.production {
        for _ in 1..BUNDLE {
            sources.bundle += &Sources::of_version(version)?.bundle;
        }
    }
    Ok(sources)
}

const STATUSES: &str = "rt_bootstrapper_controller_status_updates_total";
/// Kubeconfigs that are read from the simulator at once.
const AT_ONCE: usize = 32;
/// Certificates in the trust bundle of a landscape.
const BUNDLE: usize = 40;
/// The API server of the control plane collects no garbage below this size. With the defaults it collects several times in
/// one scenario with 5,000 Runtimes, each time one and a half of the two cores for seconds.
const HEAP: &str = "8GiB";
/// Longer than a runtime that waits for its Deployment is left alone.
const STILL: Duration = Duration::from_secs(8);
/// 10,000 runtimes have 30,000 statuses, of which 100 are written per second.
const LONGEST: Duration = Duration::from_mins(10);
