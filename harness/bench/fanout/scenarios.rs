//! The scenarios in their order. After each, runtimes and control plane are converged for the next one.
//!
//! Every round has its own testbed, so the control plane is empty at its start. The simulator's counters are reset before a
//! scenario, so that they count only its writes and reads.

use std::time::Duration;

use anyhow::ensure;
use clusters::progress;
use testkit::until::holds;

use super::testbed::{Change, Settings, Testbed};
use super::{Part, Sample, table};
use crate::environment::Bench;
use crate::fleet::Fault;
use crate::process::{Account, Process};
use crate::report::{Bound, Table};
use crate::statistics::{number, quantile};

/// Measures a part. Each kill is a round; other scenarios have [`ROUNDS`].
pub(super) async fn measure(
    bench: &Bench,
    settings: Settings,
    part: Part,
) -> anyhow::Result<Table> {
    let rounds = match part {
        Part::Kills => 1,
        _ => bench.effort.choose(ROUNDS, 1),
    };
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let testbed = Testbed::start(bench, settings).await?;
        let simulator = Account::of(std::process::id());
        let mut scenarios = Scenarios {
            cpu_before: [0.0, simulator.cpu()?],
            simulator,
            controller: testbed.start_controller()?,
            bench,
            testbed,
            samples: Vec::new(),
        };
        let ran = scenarios.run(part).await;
        scenarios.controller.kill().await?;
        scenarios.testbed.end().await?;
        ran?;
        samples.extend(scenarios.samples);
    }
    table(&samples, settings.runtimes)
}

struct Scenarios<'a> {
    bench: &'a Bench,
    testbed: Testbed<'a>,
    controller: Process,
    /// CPU account of this process, which is mainly the simulator while the controller works.
    simulator: Account,
    samples: Vec<Sample>,
    /// CPU time of controller and simulator at the last reset of the counters.
    cpu_before: [f64; 2],
}

impl Scenarios<'_> {
    async fn run(&mut self, part: Part) -> anyhow::Result<()> {
        let all = "three sources changed";
        let start = self.watch("cold start", 0).await?;
        if matches!(
            part,
            Part::Changes | Part::Large | Part::Production | Part::Watchers
        ) {
            // With Watchers, each runtime gets two components.
            let p99 = self.p99(&start, if part == Part::Watchers { 60.0 } else { 30.0 });
            let requests = self.requests(20, 120);
            self.record("cold start", Some(start), requests, vec![p99])?;
        }
        self.testbed.settled(&mut self.controller).await?;
        match part {
            Part::Changes | Part::Large | Part::Production => {
                self.changed(Change::AllThree, all, 30.0).await?;
                let name = "pull Secret changed";
                self.changed(Change::PullSecret, name, 15.0).await?;
                self.restart_without_change().await
            }
            Part::Faults => {
                let healthy = self.changed(Change::AllThree, all, 30.0).await?;
                self.some_unreachable(&healthy).await?;
                self.testbed.settled(&mut self.controller).await?;
                self.rotated().await
            }
            Part::Kills => self.killed().await,
            Part::Watchers => {
                self.rerouted().await?;
                self.changed(Change::Watcher, "Watcher changed", 30.0)
                    .await?;
                let name = "CA rotated: the new one is trusted";
                self.changed(Change::Authority, name, 30.0).await?;
                let name = "CA rotated: all certificates issued";
                self.changed(Change::Certificates, name, 60.0).await?;
                self.restart_without_change().await
            }
        }
    }

    /// Changes the route of a Watcher many times, which changes nothing on the runtimes.
    async fn rerouted(&mut self) -> anyhow::Result<()> {
        self.reset()?;
        let mut times = Vec::new();
        for _ in 0..self.bench.effort.choose(100, 10) {
            times.push(self.testbed.reroute().await?);
        }
        let limit = Bound::at_most(quantile(&times, 0.99), 1.0, " s (p99)");
        let writes = self.testbed.fleet.counts().writes == 0;
        let bounds = vec![limit, Bound::required("0 writes on runtimes", writes)];
        self.record(
            "VirtualService of a changed Watcher",
            Some(times),
            1,
            bounds,
        )
    }

    async fn changed(
        &mut self,
        change: Change,
        name: &str,
        seconds: f64,
    ) -> anyhow::Result<Vec<f64>> {
        self.reset()?;
        let requests = self.requests(13, 20);
        let curve = self.change(change, name, (seconds, requests)).await?;
        self.testbed.settled(&mut self.controller).await?;
        Ok(curve)
    }

    /// Measures a change, with limits for its 99th percentile in seconds and for the requests to each runtime.
    async fn change(
        &mut self,
        change: Change,
        name: &str,
        (seconds, requests): (f64, u32),
    ) -> anyhow::Result<Vec<f64>> {
        self.testbed.change(change).await?;
        let curve = self.watch(name, 0).await?;
        let p99 = self.p99(&curve, seconds);
        self.record(name, Some(curve.clone()), requests, vec![p99])?;
        Ok(curve)
    }

    /// Restarts the controller; the new process must not write.
    async fn restart_without_change(&mut self) -> anyhow::Result<()> {
        self.reset()?;
        self.controller.kill().await?;
        let on_kcp = self.testbed.writes_on_kcp().await?;
        self.start()?;
        let name = "restart without a change";
        let visited = self.testbed.visited_again(0).await.is_ok();
        let span = self.bench.effort.choose(QUIET, QUIET / 3);
        let quiet = holds("no writes", span, || async {
            let writes = self.testbed.fleet.counts().writes;
            ensure!(writes == 0, "{writes} writes");
            Ok(())
        });
        let quiet = quiet.await.is_ok();
        let on_kcp = self.testbed.writes_on_kcp().await? - on_kcp;
        let bounds = vec![
            Bound::required("0 writes", quiet),
            Bound::required(format!("{on_kcp} writes on KCP (0)"), on_kcp == 0),
            Bound::required("every runtime visited", visited),
        ];
        let requests = self.requests(13, 35);
        self.record(name, None, requests, bounds)
    }

    /// Returns the limit of requests to each runtime: for `direct`, or for all controllers.
    fn requests(&self, of_direct: u32, of_all: u32) -> u32 {
        if self.testbed.settings.watchers {
            of_all
        } else {
            of_direct
        }
    }

    /// Measures a change with unreachable runtimes, which must not delay the others.
    async fn some_unreachable(&mut self, healthy: &[f64]) -> anyhow::Result<()> {
        let share = self.one_percent();
        let good = self.testbed.settings.conditions();
        let (mut silent, mut stalled) = (good.clone(), good.clone());
        silent.silent = true;
        stalled.faults = vec![(Fault::Stalled, 1000)];
        self.testbed.fleet.set(0..share, &silent);
        self.testbed.fleet.set(share..2 * share, &stalled);
        self.reset()?;
        self.testbed.change(Change::AllThree).await?;
        let name = "three changed, 1 % silent and 1 % stalled";
        let curve = self.watch(name, 2 * share).await?;
        let percent = self.bench.effort.choose(5.0, 200.0);
        let near = quantile(&curve, 0.99) < quantile(healthy, 0.99) * (1.0 + percent / 100.0);
        let near = Bound::required(format!("p99 of the others + < {percent} %"), near);
        self.record(name, Some(curve), 13, vec![near])?;
        let all = 0..self.testbed.settings.runtimes;
        self.testbed.fleet.set(all, &good);
        self.watch("the others follow", 0).await.map(drop)
    }

    async fn rotated(&mut self) -> anyhow::Result<()> {
        self.reset()?;
        self.testbed.rotate().await?;
        let name = "three changed, all kubeconfigs rotated";
        let changed = self.change(Change::AllThree, name, (30.0, 20));
        changed.await.map(drop)
    }

    /// Kills the controller with SIGKILL at times that are spread over a change, while some kubeconfigs name another cluster.
    async fn killed(&mut self) -> anyhow::Result<()> {
        let kills = self.bench.effort.choose(100, 10);
        let wrong = self.one_percent();
        let mut other = self.testbed.settings.conditions();
        other.identity = Some("another-cluster".to_owned());
        self.testbed.fleet.set(0..wrong, &other);
        let right = self.testbed.settings.runtimes - wrong;
        let mut during = 0;
        for number in 1..=kills {
            self.reset()?;
            self.testbed.change(Change::AllThree).await?;
            // Multiples of the golden ratio are evenly distributed.
            let point = right * (number * 618 % 1000) / 1000;
            self.testbed.reached(point).await?;
            self.controller.kill().await?;
            let reached = self.testbed.arrived();
            during += usize::from(reached > 0 && reached < right);
            let before = self.testbed.fleet.counts().handshakes;
            self.start()?;
            let name = format!("kill {number} of {kills}");
            let curve = self.watch(&name, wrong).await?;
            // Requests that were in flight at the kill may have completed the change.
            self.testbed.visited_again(before).await?;
            let fleet = &self.testbed.fleet;
            let (redundant, counts) = (fleet.most_redundant_applies(), fleet.counts());
            let bounds = vec![
                Bound::required("≤ 1 redundant apply", redundant <= 1),
                Bound::required("0 writes to another cluster", counts.foreign_writes == 0),
                Bound::required(
                    "0 requests with other credentials",
                    counts.unauthorized == 0,
                ),
            ];
            let name = format!("SIGKILL during a change, {kills} times");
            self.record(&name, Some(curve), 30, bounds)?;
        }
        let enough = during * 10 >= kills * self.bench.effort.choose(9, 2);
        let text = format!("{during} of {kills} during the writes");
        for sample in &mut self.samples {
            sample.bounds.push(Bound::required(&text, enough));
        }
        Ok(())
    }

    fn reset(&mut self) -> anyhow::Result<()> {
        self.cpu_before = self.cpu()?;
        self.testbed.fleet.reset_counters();
        Ok(())
    }

    /// Returns the CPU time of controller and simulator in seconds.
    fn cpu(&self) -> anyhow::Result<[f64; 2]> {
        Ok([self.controller.cpu()?, self.simulator.cpu()?])
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.controller = self.testbed.start_controller()?;
        self.cpu_before[0] = 0.0;
        Ok(())
    }

    async fn watch(&mut self, name: &str, excluded: usize) -> anyhow::Result<Vec<f64>> {
        let converged = self.testbed.converged(excluded);
        let curve = progress::show(name, converged).await;
        self.controller.check_running()?;
        curve
    }

    /// Returns the bound on the 99th percentile in seconds. It is a minute for more than 5,000 runtimes, for production
    /// settings, and for a quick run.
    fn p99(&self, curve: &[f64], seconds: f64) -> Bound {
        let settings = self.testbed.settings;
        let larger = settings.runtimes > 5_000 || settings.production;
        let full = if larger { 60.0 } else { seconds };
        let limit = self.bench.effort.choose(full, 60.0);
        Bound::at_most(quantile(curve, 0.99), limit, " s (p99)")
    }

    fn one_percent(&self) -> usize {
        (self.testbed.settings.runtimes / 100).max(1)
    }

    /// Adds a round of a scenario; `requests` is the limit for each runtime.
    fn record(
        &mut self,
        name: &str,
        curve: Option<Vec<f64>>,
        requests: u32,
        mut bounds: Vec<Bound>,
    ) -> anyhow::Result<()> {
        let settings = self.testbed.settings;
        let counts = self.testbed.fleet.counts();
        let each = |count: u64| number(count) / number(settings.runtimes.max(1));
        let (now, before) = (self.cpu()?, self.cpu_before);
        let [cpu, simulator] = [0, 1].map(|it| now[it] - before[it]);
        let memory = |field| self.controller.memory(field);
        let (memory, peak) = (memory("VmRSS")?, memory("VmHWM")?);
        let sent = each(counts.writes + counts.reads);
        bounds.push(Bound::at_most(sent, f64::from(requests), " requests each"));
        // The speed of the machine cancels out in the ratio.
        let cpu_bound = Bound::at_most(cpu / simulator, 2.0, " × simulator");
        bounds.extend(self.bench.effort.choose(None, Some(cpu_bound)));
        if settings.runtimes <= 5_000 {
            let limit = if settings.watchers { 80.0 } else { 64.0 };
            let bound = Bound::at_most(peak, limit, " MiB");
            // In production settings the bound is only a target, because a root store and a TLS configuration per runtime need
            // more memory.
            let is_target = settings.production;
            bounds.push(if is_target { bound.target() } else { bound });
        }
        self.samples.push(Sample {
            scenario: name.to_owned(),
            curve,
            values: [
                each(counts.writes),
                each(counts.reads),
                each(counts.handshakes),
                number(counts.most_in_flight),
                cpu,
                cpu / simulator,
                memory,
                peak,
            ],
            bounds,
        });
        Ok(())
    }
}

const ROUNDS: u32 = 3;
/// Longer than a reconcile of all runtimes.
const QUIET: Duration = Duration::from_secs(45);
