//! What a fan-out needs around the controller: a real control plane, the fleet, and the means to change and to see.
//!
//! Invariant: the control plane is a real API server, the fleet a process of its own on a core of its own; both are
//! filled before anything is timed.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::runtimes::MODE_DIRECT;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::build::Programs;
use super::controller::{Controller, Program};
use super::curve::Curve;
use crate::fleet::control::FleetControl;
use crate::fleet::{Arrival, Selection, content_of};
use crate::machine::Cores;
use crate::process::Process;
use clusters::cluster::{Cluster, ClusterOptions, write_kubeconfig};
use clusters::control_plane::{ControlPlane, Member, Sources};
use clusters::progress::Progress;
use clusters::run::Run;
use clusters::setup::Setup;
use testkit::Place;
use testkit::until::{holds, until};

/// Everything but the controller.
pub(super) struct Stage {
    run: Run,
    cluster: Cluster,
    control_plane: ControlPlane,
    _fleet: Process,
    pub(super) fleet: FleetControl,
    pub(super) controller: Program,
    /// How many of the fleet's runtimes the control plane knows.
    pub(super) known: usize,
    sources: Sources,
    /// Goes up with every change.
    version: u32,
}

/// Which of the sources change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The pull Secret.
    Secret,
    /// All three.
    Three,
}

impl Stage {
    /// Starts control plane and fleet; the fleet has room for `largest` runtimes, the control plane knows none yet.
    pub(super) async fn start(
        progress: &Progress,
        programs: &Programs,
        largest: usize,
        latency: Duration,
    ) -> anyhow::Result<Self> {
        let cores = Cores::ours()?;
        let setup = Setup::load()?;
        let run = Run::begin(false).await?;
        let options = ClusterOptions::new("kcp")
            .without_node()
            .with_env("GOGC", "off")
            .with_env("GOMEMLIMIT", HEAP);
        let start = Cluster::start(&run, &setup.provider, &options);
        let cluster = progress.show("start the control plane", start).await?;
        cluster.apply(&programs.crds().await?).await?;
        let control_plane = ControlPlane::prepare(cluster.client(), Some(MODE_DIRECT)).await?;
        let (fleet, control) = start_fleet(programs, cores, largest, latency).await?;
        let direct = cluster.direct_kubeconfig().await?.to_string();
        let stage = Self {
            run,
            control_plane,
            _fleet: fleet,
            fleet: control,
            controller: Program {
                binary: programs.product.clone(),
                core: cores.subject,
                kubeconfig: write_kubeconfig("kcp-direct", &direct)?,
            },
            cluster,
            known: 0,
            sources: Sources::of_version(0)?,
            version: 0,
        };
        stage.control_plane.put_sources(&stage.sources).await?;
        Ok(stage)
    }

    /// Ends everything.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        Ok(self.run.end().await?)
    }

    /// Makes so many runtimes known to the control plane.
    pub(super) async fn fill(&mut self, runtimes: usize) -> anyhow::Result<()> {
        let members = self.members(self.known..runtimes).await?;
        self.control_plane.fill(&members).await?;
        self.known = runtimes;
        Ok(())
    }

    /// Rotates the credentials of all known runtimes, and tells the control plane.
    pub(super) async fn rotate(&self) -> anyhow::Result<()> {
        self.fleet.rotate(&Selection::All).await?;
        let members = self.members(0..self.known).await?;
        self.control_plane.renew(&members).await
    }

    async fn members(&self, numbers: std::ops::Range<usize>) -> anyhow::Result<Vec<Member>> {
        let member = async |number| {
            let kubeconfig = self.fleet.kubeconfig(number).await?;
            anyhow::Ok(Member { number, kubeconfig })
        };
        stream::iter(numbers)
            .map(member)
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Changes sources on the control plane; gives the moment, on the fleet's clock.
    pub(super) async fn change(&mut self, change: Change) -> anyhow::Result<Duration> {
        self.version += 1;
        let next = Sources::of_version(self.version)?;
        self.sources = match change {
            Change::Three => next,
            Change::Secret => Sources {
                password: next.password,
                ..self.sources.clone()
            },
        };
        let moment = self.now().await?;
        self.control_plane.put_sources(&self.sources).await?;
        Ok(moment)
    }

    /// Now, on the fleet's clock.
    pub(super) async fn now(&self) -> anyhow::Result<Duration> {
        Ok(self.fleet.totals().await?.now)
    }

    /// Waits until all known runtimes but some have what changed after a moment, and says when each got it.
    pub(super) async fn converged(
        &self,
        change: Change,
        since: Duration,
        but: usize,
    ) -> anyhow::Result<Curve> {
        let expected = self.known - but;
        for arrival in self.arrivals(change, since)? {
            let what = format!("{} of {expected} runtimes", arrival.place.name);
            until(&what, LONGEST, || async {
                let arrived = self.fleet.arrived(&arrival).await?;
                ensure!(arrived >= expected, "{arrived}");
                anyhow::Ok(())
            })
            .await?;
        }
        self.curve(change, since, expected).await
    }

    async fn curve(
        &self,
        change: Change,
        since: Duration,
        expected: usize,
    ) -> anyhow::Result<Curve> {
        let mut last = vec![Some(Duration::ZERO); self.known];
        for arrival in self.arrivals(change, since)? {
            let entries = self.fleet.entries(&arrival.place).await?;
            for (last, entry) in last.iter_mut().zip(&entries) {
                let right = entry.content.as_ref() == Some(&arrival.content);
                let arrived = entry.changed.checked_sub(since).filter(|_| right);
                *last = last.zip(arrived).map(|(one, two)| one.max(two));
            }
        }
        Ok(Curve::new(last.into_iter().flatten().collect(), expected))
    }

    /// What a change must reach, with which content. The ConfigMap carries the version of all contents, so it changes
    /// with each of them, and before it has the webhook goes on with what it had.
    fn arrivals(&self, change: Change, since: Duration) -> anyhow::Result<Vec<Arrival>> {
        let sent = self.sources.objects();
        let arrival = |place: Place| {
            let same = |it: &&Value| it["metadata"]["name"] == place.name.as_str();
            let wanted = sent.iter().find(same).context("a source of that name")?;
            Ok(Arrival {
                content: content_of(wanted),
                place,
                since,
            })
        };
        places(change).into_iter().map(arrival).collect()
    }

    /// Waits until a change has reached so many runtimes.
    pub(super) async fn reached(&self, since: Duration, expected: usize) -> anyhow::Result<()> {
        let arrived = until("a pass has come so far", LONGEST, || async {
            let arrived = self.arrived(since).await?;
            ensure!(arrived >= expected, "{arrived} of {expected}");
            anyhow::Ok(())
        });
        Ok(arrived.await?)
    }

    /// How many runtimes the first object of a change has reached.
    pub(super) async fn arrived(&self, since: Duration) -> anyhow::Result<usize> {
        let arrival = &self.arrivals(Change::Three, since)?[0];
        self.fleet.arrived(arrival).await
    }

    /// Waits until every known runtime was connected to once more, after so many times, and no request is under way.
    pub(super) async fn looked_at(&self, before: u64) -> anyhow::Result<()> {
        let wanted = before + self.known as u64;
        until("every runtime is looked at again", LONGEST, || async {
            let totals = self.fleet.totals().await?;
            let handshakes = totals.counts.handshakes;
            ensure!(handshakes >= wanted, "{handshakes} of {wanted} handshakes");
            ensure!(totals.in_flight == 0, "{} requests", totals.in_flight);
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Waits until the controller is ready, and nothing is written any more on runtimes and control plane.
    pub(super) async fn settled(&self, controller: &mut Controller) -> anyhow::Result<()> {
        controller.ready().await?;
        let controller = &*controller;
        let written = || async {
            let totals = self.fleet.totals().await?;
            anyhow::Ok((totals.counts.writes, controller.statuses().await?))
        };
        until("nothing is written any more", LONGEST, || async {
            let before = written().await?;
            let still = holds("nothing is written", STILL, || async {
                let now = written().await?;
                ensure!(now == before, "{now:?} after {before:?}");
                anyhow::Ok(())
            });
            anyhow::Ok(still.await?)
        })
        .await?;
        Ok(())
    }
}

fn places(change: Change) -> Vec<Place> {
    let [secret, bundle, configuration] = Sources::places();
    match change {
        Change::Secret => vec![secret, configuration],
        Change::Three => vec![secret, configuration, bundle],
    }
}

async fn start_fleet(
    programs: &Programs,
    cores: Cores,
    runtimes: usize,
    latency: Duration,
) -> anyhow::Result<(Process, FleetControl)> {
    let flags = [
        "fleet".to_owned(),
        format!("--runtimes={runtimes}"),
        format!("--latency={}", latency.as_millis()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut process = Process::converse("fleet", cores.generator, &programs.harness, &flags)?;
    let said: Value = serde_json::from_str(&process.hear().await?)?;
    let port = said["control"]
        .as_u64()
        .context("the fleet did not say its port")?;
    Ok((process, FleetControl::new(u16::try_from(port)?)))
}

/// More would only queue.
const AT_ONCE: usize = 32;
/// Up to which size of its memory the control plane's program collects no garbage. By default the API server of 5,000
/// Runtimes collects several times in one scenario, and takes one and a half of the two cores for seconds; a control
/// plane of this size has cores of its own.
const HEAP: &str = "8GiB";
/// Longer than a runtime that waits for its Deployment is left alone.
const STILL: Duration = Duration::from_secs(8);
/// No scenario takes so long: 10,000 runtimes have 30,000 statuses, of which 100 are written in a second.
const LONGEST: Duration = Duration::from_mins(10);
