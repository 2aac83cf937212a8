//! The scenarios in their order: each leaves runtimes and control plane converged for the next.
//!
//! The simulator's counters are reset before a scenario, so writes and reads are its own.

use std::time::Duration;

use anyhow::ensure;
use testkit::until::holds;

use super::Part;
use super::testbed::{Change, Controller, Settings, Testbed};
use crate::environment::Bench;
use crate::fleet::{Counts, Fleet, Reach};
use crate::process::Account;
use crate::report::{Bound, Row, Table};
use crate::statistics::{Curve, Estimate, chart, number};

/// Measures a part with this number of kills.
pub(super) async fn measure(
    bench: &Bench<'_>,
    settings: Settings,
    part: Part,
    kills: usize,
) -> anyhow::Result<Table> {
    let testbed = Testbed::start(bench, settings).await?;
    let simulator = Account::of(std::process::id());
    let mut scenarios = Scenarios {
        started: testbed.fleet.now(),
        cpu_before: [Duration::ZERO, simulator.cpu()?],
        simulator,
        controller: testbed.start_controller()?,
        bench,
        testbed,
        rows: Vec::new(),
        curves: Vec::new(),
    };
    let ran = scenarios.run(part, kills).await;
    scenarios.controller.process.kill().await?;
    scenarios.testbed.end().await?;
    ran?;
    let mut table = Table::new(&COLUMNS, scenarios.rows);
    table.appendix = chart(&scenarios.curves);
    Ok(table)
}

struct Scenarios<'a, 'b> {
    bench: &'a Bench<'b>,
    testbed: Testbed,
    controller: Controller,
    /// This process, which is little more than the simulator while the controller works.
    simulator: Account,
    rows: Vec<Row>,
    curves: Vec<(String, Curve)>,
    /// When the first controller was started, on the simulator's clock.
    started: Duration,
    /// CPU time of controller and simulator when the counters were reset.
    cpu_before: [Duration; 2],
}

impl Scenarios<'_, '_> {
    async fn run(&mut self, part: Part, kills: usize) -> anyhow::Result<()> {
        let all = "three sources changed";
        let start = self
            .watch("cold start", Change::AllThree, (self.started, 0))
            .await?;
        if matches!(part, Part::Changes | Part::Large | Part::Production) {
            let p99 = self.p99(&start, 30.0);
            self.record("cold start", Some(start), 20, vec![p99])?;
        }
        self.settle().await?;
        match part {
            Part::Changes | Part::Large | Part::Production => {
                self.changed(Change::AllThree, all).await?;
                self.changed(Change::PullSecret, "pull Secret changed")
                    .await?;
                self.restart_without_change().await
            }
            Part::Faults => {
                let healthy = self.changed(Change::AllThree, all).await?;
                self.some_unreachable(&healthy).await?;
                self.settle().await?;
                self.rotated().await
            }
            Part::Kills => self.killed(kills).await,
        }
    }

    async fn changed(&mut self, change: Change, name: &str) -> anyhow::Result<Curve> {
        self.reset()?;
        let since = self.testbed.change(change).await?;
        let curve = self.watch(name, change, (since, 0)).await?;
        let seconds = if change == Change::PullSecret {
            15.0
        } else {
            30.0
        };
        let p99 = self.p99(&curve, seconds);
        self.record(name, Some(curve.clone()), 13, vec![p99])?;
        self.settle().await?;
        Ok(curve)
    }

    /// A new process finds everything as it should be.
    async fn restart_without_change(&mut self) -> anyhow::Result<()> {
        self.reset()?;
        self.controller.process.kill().await?;
        self.start()?;
        let name = "restart without a change";
        let visiting = self.testbed.visited_again(0);
        let visited = self.bench.progress.show(name, visiting).await.is_ok();
        let fleet = &self.testbed.fleet;
        let span = self.bench.effort.choose(QUIET, QUIET / 3);
        let quiet = holds("no writes", span, || async {
            let writes = fleet.counts().writes;
            ensure!(writes == 0, "{writes} writes");
            Ok(())
        });
        let quiet = quiet.await.is_ok();
        let bounds = vec![
            Bound::required("0 writes", quiet),
            Bound::required("every runtime visited", visited),
        ];
        self.record(name, None, 13, bounds)
    }

    /// One percent is silent and one percent never responds; the others must not be delayed.
    async fn some_unreachable(&mut self, healthy: &Curve) -> anyhow::Result<()> {
        let share = self.one_percent();
        let good = self.testbed.settings.conditions();
        let (mut silent, mut stalled) = (good.clone(), good.clone());
        silent.reach = Reach::Silent;
        stalled.faults.stalled = 1000;
        self.testbed.fleet.set(0..share, &silent);
        self.testbed.fleet.set(share..2 * share, &stalled);
        self.reset()?;
        let since = self.testbed.change(Change::AllThree).await?;
        let name = "three changed, 1 % silent and 1 % stalled";
        let curve = self
            .watch(name, Change::AllThree, (since, 2 * share))
            .await?;
        let percent = self.bench.effort.choose(5.0, 200.0);
        let near = is_near(&curve, healthy, percent);
        let near = Bound::required(format!("p99 of the others + < {percent} %"), near);
        self.record(name, Some(curve), 13, vec![near])?;
        let all = 0..self.testbed.settings.runtimes;
        self.testbed.fleet.set(all, &good);
        self.watch("the others follow", Change::AllThree, (since, 0))
            .await?;
        Ok(())
    }

    async fn rotated(&mut self) -> anyhow::Result<()> {
        self.reset()?;
        let rotate = self.testbed.rotate();
        self.bench
            .progress
            .show("rotate all kubeconfigs", rotate)
            .await?;
        let since = self.testbed.change(Change::AllThree).await?;
        let name = "three changed, all kubeconfigs rotated";
        let curve = self.watch(name, Change::AllThree, (since, 0)).await?;
        let p99 = self.p99(&curve, 30.0);
        self.record(name, Some(curve), 20, vec![p99])
    }

    /// SIGKILL at points that are spread over a change, while some kubeconfigs lead to another cluster.
    async fn killed(&mut self, kills: usize) -> anyhow::Result<()> {
        let wrong = self.one_percent();
        let mut other = self.testbed.settings.conditions();
        other.identity = Some("another-cluster".to_owned());
        self.testbed.fleet.set(0..wrong, &other);
        let right = self.testbed.settings.runtimes - wrong;
        let mut slowest: Option<Curve> = None;
        let (mut violations, mut during) = (Violations::default(), 0);
        for number in 1..=kills {
            self.reset()?;
            let since = self.testbed.change(Change::AllThree).await?;
            // Multiples of the golden ratio are spread evenly.
            let point = right * (number * 618 % 1000) / 1000;
            self.testbed.reached(since, point).await?;
            self.controller.process.kill().await?;
            let reached = self.testbed.arrived(since);
            during += usize::from(reached > 0 && reached < right);
            let before = self.testbed.fleet.counts().handshakes;
            self.start()?;
            let name = format!("kill {number} of {kills}");
            let curve = self.watch(&name, Change::AllThree, (since, wrong)).await?;
            // Requests that were open when the controller was killed may have completed the change.
            self.testbed.visited_again(before).await?;
            violations.add(&self.testbed.fleet);
            if slowest
                .as_ref()
                .is_none_or(|it| it.quantile(1.0) < curve.quantile(1.0))
            {
                slowest = Some(curve);
            }
        }
        let mut bounds = violations.bounds();
        let text = format!("{during} of {kills} during the writes");
        let enough = self.bench.effort.choose(9, 2);
        bounds.push(Bound::required(text, during * 10 >= kills * enough));
        let name = format!("SIGKILL during a change, slowest of {kills}");
        self.record(&name, slowest, 30, bounds)
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let settled = self.testbed.settled(&mut self.controller);
        self.bench.progress.show("no more writes", settled).await
    }

    fn reset(&mut self) -> anyhow::Result<()> {
        self.cpu_before = self.cpu()?;
        self.testbed.fleet.reset_counters();
        Ok(())
    }

    /// CPU time of controller and simulator.
    fn cpu(&self) -> anyhow::Result<[Duration; 2]> {
        Ok([self.controller.process.cpu()?, self.simulator.cpu()?])
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.controller = self.testbed.start_controller()?;
        self.cpu_before[0] = Duration::ZERO;
        Ok(())
    }

    async fn watch(
        &mut self,
        name: &str,
        change: Change,
        (since, excluded): (Duration, usize),
    ) -> anyhow::Result<Curve> {
        let converged = self.testbed.converged(change, since, excluded);
        let curve = self.bench.progress.show(name, converged).await;
        self.controller.process.check_running()?;
        curve
    }

    /// The bound on the 99th percentile, in seconds; a minute for more than 5,000 runtimes and production settings.
    fn p99(&self, curve: &Curve, seconds: f64) -> Bound {
        let settings = self.testbed.settings;
        let larger = settings.runtimes > 5_000 || settings.production;
        let full = if larger { 60.0 } else { seconds };
        let p99 = Estimate::exact(curve.quantile(0.99));
        Bound::at_most(p99, self.bench.effort.choose(full, 60.0), " s (p99)")
    }

    fn one_percent(&self) -> usize {
        (self.testbed.settings.runtimes / 100).max(1)
    }

    /// Adds a row; `requests` is the limit for each runtime.
    fn record(
        &mut self,
        name: &str,
        curve: Option<Curve>,
        requests: u32,
        bounds: Vec<Bound>,
    ) -> anyhow::Result<()> {
        let runtimes = self.testbed.settings.runtimes;
        let counts = self.testbed.fleet.counts();
        let each = |count: u64| number(count) / number(runtimes.max(1));
        let (now, before) = (self.cpu()?, self.cpu_before);
        let [cpu, simulator] = [0, 1].map(|it| now[it].saturating_sub(before[it]).as_secs_f64());
        let (ratio, process) = (cpu / simulator, &self.controller.process);
        let (memory, most) = (process.memory("VmRSS")?, process.memory("VmHWM")?);
        let times = curve
            .as_ref()
            .map_or(["–"; 3].map(str::to_owned), Curve::cells);
        let counted = [
            format!("{:.2}", each(counts.writes)),
            format!("{:.2}", each(counts.reads)),
            format!("{:.2}", each(counts.handshakes)),
            counts.most_in_flight.to_string(),
            format!("{cpu:.1}"),
            format!("{ratio:.2}"),
            format!("{memory:.1} / {most:.1}"),
        ];
        let named = [name.to_owned(), runtimes.to_string()];
        let sent = Estimate::exact(each(counts.writes + counts.reads));
        let row = Row::new(named.into_iter().chain(times).chain(counted));
        let row = bounds.into_iter().fold(row, Row::bound);
        let mut row = row.bound(Bound::at_most(sent, f64::from(requests), " requests each"));
        // The speed of the machine cancels out.
        let cpu_bound = Bound::at_most(Estimate::exact(ratio), 2.0, " × simulator");
        row = row.bound(self.bench.effort.choose(None, Some(cpu_bound)));
        if runtimes <= 5_000 {
            let bound = Bound::at_most(Estimate::exact(most), 64.0, " MiB");
            // A root store and a TLS configuration per runtime take memory that no bound has been set for.
            let is_target = self.testbed.settings.production;
            row = row.bound(if is_target { bound.target() } else { bound });
        }
        self.rows.push(row);
        self.curves
            .extend(curve.map(|curve| (name.to_owned(), curve)));
        Ok(())
    }
}

/// What must not happen however often the controller is killed.
#[derive(Default)]
struct Violations {
    /// Applies that changed nothing, of the object with most of them.
    redundant: u32,
    /// Writes to clusters that are not the runtime's.
    foreign: u64,
    /// Requests with the credentials of another runtime.
    unauthorized: u64,
}

impl Violations {
    fn add(&mut self, fleet: &Fleet) {
        let Counts {
            foreign_writes,
            unauthorized,
            ..
        } = fleet.counts();
        self.redundant = self.redundant.max(fleet.most_redundant_applies());
        self.foreign += foreign_writes;
        self.unauthorized += unauthorized;
    }

    fn bounds(&self) -> Vec<Bound> {
        let bound = |text: &str, count: u64, most| {
            Bound::required(format!("{text} ({count})"), count <= most)
        };
        vec![
            bound("≤ 1 redundant apply", self.redundant.into(), 1),
            bound("0 writes to another cluster", self.foreign, 0),
            bound("0 requests with other credentials", self.unauthorized, 0),
        ]
    }
}

/// Whether the 99th percentile is later by less than this percentage.
fn is_near(curve: &Curve, healthy: &Curve, percent: f64) -> bool {
    curve.quantile(0.99) < healthy.quantile(0.99) * (1.0 + percent / 100.0)
}

const COLUMNS: [&str; 12] = [
    "scenario",
    "runtimes",
    "p50 s",
    "p99 s",
    "last s",
    "writes each",
    "reads each",
    "handshakes each",
    "most in flight",
    "CPU s",
    "CPU ÷ simulator",
    "RSS MiB end / peak",
];
/// Longer than a reconcile of all runtimes takes.
const QUIET: Duration = Duration::from_secs(45);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one_redundant_apply(1, 0, 0, true)]
    #[case::two_redundant_applies(2, 0, 0, false)]
    #[case::foreign_write(0, 1, 0, false)]
    #[case::wrong_credentials(0, 0, 1, false)]
    fn bounds_of_kills_allow_one_redundant_apply_only(
        #[case] redundant: u32,
        #[case] foreign: u64,
        #[case] unauthorized: u64,
        #[case] met: bool,
    ) {
        let violations = Violations {
            redundant,
            foreign,
            unauthorized,
        };
        let row = violations
            .bounds()
            .into_iter()
            .fold(Row::new(["a"]), Row::bound);
        assert_eq!(Table::new(&["a"], vec![row]).meets_its_bounds(), met);
    }

    #[test]
    fn five_percent_later_is_too_late() {
        let curve = |millis: u64| Curve::new([Some(Duration::from_millis(millis))]);
        assert!(is_near(&curve(10_499), &curve(10_000), 5.0));
        assert!(!is_near(&curve(10_501), &curve(10_000), 5.0));
        assert!(!is_near(&Curve::new([None]), &curve(10_000), 5.0));
    }
}
