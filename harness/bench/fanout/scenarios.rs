//! The scenarios in their order: each leaves runtimes and control plane converged for the next.
//!
//! The simulator's counters are reset before a scenario, so writes and reads are its own.

use std::ops::Range;
use std::time::Duration;

use anyhow::ensure;
use testkit::until::holds;

use super::Part;
use super::curve::{Curve, chart};
use super::testbed::{Change, Controller, Settings, Testbed};
use crate::environment::Bench;
use crate::fleet::{Conditions, Faults, Reach, Selection, Totals};
use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, number};

/// Measures a part with so many kills.
pub(super) async fn measure(
    bench: &Bench<'_>,
    settings: Settings,
    part: Part,
    kills: usize,
) -> anyhow::Result<Table> {
    let testbed = Testbed::start(bench, settings).await?;
    let mut scenarios = Scenarios {
        started: testbed.now().await?,
        cpu_before: [Duration::ZERO, testbed.simulator.cpu()?],
        controller: testbed.start_controller()?,
        bench,
        testbed,
        kills,
        rows: Vec::new(),
        curves: Vec::new(),
    };
    let ran = scenarios.run(part).await;
    let Scenarios {
        testbed,
        mut controller,
        rows,
        curves,
        ..
    } = scenarios;
    controller.process.kill().await?;
    testbed.end().await?;
    ran?;
    let mut table = Table::new(&COLUMNS, rows);
    table.appendix = chart(&curves);
    Ok(table)
}

struct Scenarios<'a, 'b> {
    bench: &'a Bench<'b>,
    testbed: Testbed,
    controller: Controller,
    kills: usize,
    rows: Vec<Row>,
    curves: Vec<(String, Curve)>,
    /// When the first controller was started, on the simulator's clock.
    started: Duration,
    /// CPU time of controller and simulator when the counters were reset.
    cpu_before: [Duration; 2],
}

impl Scenarios<'_, '_> {
    async fn run(&mut self, part: Part) -> anyhow::Result<()> {
        let all = "three sources changed";
        match part {
            Part::Changes | Part::Large | Part::Production => {
                self.cold_start().await?;
                self.changed(Change::AllThree, all).await?;
                self.changed(Change::PullSecret, "pull Secret changed")
                    .await?;
                self.restart_without_change().await
            }
            Part::Faults => {
                self.converge().await?;
                let healthy = self.changed(Change::AllThree, all).await?;
                self.some_unreachable(&healthy).await?;
                self.settle().await?;
                self.rotated().await
            }
            Part::Kills => {
                self.converge().await?;
                self.killed().await
            }
        }
    }

    /// The controller was started with everything still to do.
    async fn cold_start(&mut self) -> anyhow::Result<()> {
        let name = "cold start";
        let since = (self.started, 0);
        let curve = self.watch(name, Change::AllThree, since).await?;
        let p99 = self.p99(&curve, 30);
        self.record(name, Some(curve), 20, vec![p99]).await?;
        self.settle().await
    }

    /// A cold start that another part reports.
    async fn converge(&mut self) -> anyhow::Result<()> {
        self.watch("cold start", Change::AllThree, (self.started, 0))
            .await?;
        self.settle().await
    }

    async fn changed(&mut self, change: Change, name: &str) -> anyhow::Result<Curve> {
        self.reset().await?;
        let since = self.testbed.change(change).await?;
        let curve = self.watch(name, change, (since, 0)).await?;
        let seconds = if change == Change::PullSecret { 15 } else { 30 };
        let p99 = self.p99(&curve, seconds);
        self.record(name, Some(curve.clone()), 13, vec![p99])
            .await?;
        self.settle().await?;
        Ok(curve)
    }

    /// A new process finds everything as it should be.
    async fn restart_without_change(&mut self) -> anyhow::Result<()> {
        self.reset().await?;
        self.controller.process.kill().await?;
        self.start()?;
        let fleet = &self.testbed.fleet;
        let span = self.bench.effort.choose(QUIET, QUIET / 3);
        let quiet = holds("no writes", span, || async {
            let counts = fleet.totals().await?.counts;
            ensure!(counts.writes == 0, "{} writes", counts.writes);
            anyhow::Ok(())
        });
        let quiet = self
            .bench
            .progress
            .show("restart without a change", quiet)
            .await
            .is_ok();
        let handshakes = fleet.totals().await?.counts.handshakes;
        let visited = handshakes >= self.testbed.settings.runtimes as u64;
        let bounds = vec![
            Bound::required("0 writes", quiet),
            Bound::required("every runtime visited", visited),
        ];
        self.record("restart without a change", None, 13, bounds)
            .await
    }

    /// One percent is silent and one percent never answers; the others must not notice.
    async fn some_unreachable(&mut self, healthy: &Curve) -> anyhow::Result<()> {
        let share = self.one_percent();
        let good = self.testbed.settings.conditions();
        let silent = Conditions {
            reach: Reach::Silent,
            ..good.clone()
        };
        let faults = Faults {
            stalled: 1000,
            ..Faults::default()
        };
        let stalled = Conditions {
            faults,
            ..good.clone()
        };
        let fleet = self.testbed.fleet.clone();
        fleet.set(numbers(0..share), silent).await?;
        fleet.set(numbers(share..2 * share), stalled).await?;
        self.reset().await?;
        let since = self.testbed.change(Change::AllThree).await?;
        let name = "three changed, 1 % silent and 1 % stalled";
        let curve = self
            .watch(name, Change::AllThree, (since, 2 * share))
            .await?;
        let percent = self.bench.effort.choose(5, 200);
        let near = is_near(&curve, healthy, percent);
        let near = Bound::required(format!("p99 of the others + < {percent} %"), near);
        self.record(name, Some(curve), 13, vec![near]).await?;
        fleet.set(Selection::All, good).await?;
        self.watch("the others follow", Change::AllThree, (since, 0))
            .await?;
        Ok(())
    }

    async fn rotated(&mut self) -> anyhow::Result<()> {
        self.reset().await?;
        let rotate = self.testbed.rotate();
        self.bench
            .progress
            .show("rotate all kubeconfigs", rotate)
            .await?;
        let since = self.testbed.change(Change::AllThree).await?;
        let name = "three changed, all kubeconfigs rotated";
        let curve = self.watch(name, Change::AllThree, (since, 0)).await?;
        let p99 = self.p99(&curve, 30);
        self.record(name, Some(curve), 20, vec![p99]).await
    }

    /// SIGKILL at points that are spread over a change, while some kubeconfigs lead to another cluster.
    async fn killed(&mut self) -> anyhow::Result<()> {
        let wrong = self.one_percent();
        let identity = Some("another-cluster".to_owned());
        let other = Conditions {
            identity,
            ..self.testbed.settings.conditions()
        };
        self.testbed.fleet.set(numbers(0..wrong), other).await?;
        let right = self.testbed.settings.runtimes - wrong;
        let mut slowest: Option<Curve> = None;
        let (mut violations, mut during, kills) = (Violations::default(), 0, self.kills);
        for number in 1..=kills {
            self.reset().await?;
            let since = self.testbed.change(Change::AllThree).await?;
            // Multiples of the golden ratio are spread evenly.
            let point = right * (number * 618 % 1000) / 1000;
            self.testbed.reached(since, point).await?;
            self.controller.process.kill().await?;
            let reached = self.testbed.arrived(since).await?;
            during += usize::from(reached > 0 && reached < right);
            let before = self.testbed.fleet.totals().await?.counts.handshakes;
            self.start()?;
            let name = format!("kill {number} of {kills}");
            let curve = self.watch(&name, Change::AllThree, (since, wrong)).await?;
            // Requests that were open when the controller was killed may have completed the change.
            self.testbed.visited_again(before).await?;
            violations.add(&self.testbed.fleet.totals().await?);
            if slowest.as_ref().and_then(Curve::last) < curve.last() {
                slowest = Some(curve);
            }
        }
        let mut bounds = violations.bounds();
        let text = format!("{during} of {kills} during the writes");
        let enough = self.bench.effort.choose(9, 2);
        bounds.push(Bound::required(text, during * 10 >= kills * enough));
        let name = format!("SIGKILL during a change, slowest of {kills}");
        self.record(&name, slowest, 30, bounds).await
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let settled = self.testbed.settled(&mut self.controller);
        self.bench.progress.show("no more writes", settled).await
    }

    async fn reset(&mut self) -> anyhow::Result<()> {
        self.cpu_before = [
            self.controller.process.cpu()?,
            self.testbed.simulator.cpu()?,
        ];
        self.testbed.fleet.reset_counters().await
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
    fn p99(&self, curve: &Curve, seconds: u64) -> Bound {
        let settings = self.testbed.settings;
        let larger = settings.runtimes > 5_000 || settings.production;
        let full = if larger { 60 } else { seconds };
        let seconds = self.bench.effort.choose(full, 15);
        let p99 = curve.quantile(990);
        let met = p99.is_some_and(|time| time <= Duration::from_secs(seconds));
        Bound::required(format!("p99 ≤ {seconds} s"), met)
    }

    fn one_percent(&self) -> usize {
        (self.testbed.settings.runtimes / 100).max(1)
    }

    /// Adds a row; each runtime may be sent so many requests.
    async fn record(
        &mut self,
        name: &str,
        curve: Option<Curve>,
        requests: u32,
        bounds: Vec<Bound>,
    ) -> anyhow::Result<()> {
        let runtimes = self.testbed.settings.runtimes;
        let totals = self.testbed.fleet.totals().await?;
        let counts = totals.counts;
        let reads = counts.gets + counts.lists + counts.questions;
        let each = |count: u64| number(count) / number(runtimes.max(1));
        let processes = [&self.controller.process, &self.testbed.simulator];
        let since = |index: usize| {
            let used = processes[index]
                .cpu()?
                .saturating_sub(self.cpu_before[index]);
            anyhow::Ok(used.as_secs_f64())
        };
        let cpu = since(0)?;
        let ratio = cpu / since(1)?;
        let (memory, most) = (processes[0].memory("VmRSS")?, processes[0].memory("VmHWM")?);
        let times = curve
            .as_ref()
            .map_or(["–"; 3].map(str::to_owned), Curve::cells);
        let counted = [
            format!("{:.2}", each(counts.writes)),
            format!("{:.2}", each(reads)),
            format!("{:.2}", each(counts.handshakes)),
            totals.most_in_flight.to_string(),
            format!("{cpu:.1}"),
            format!("{ratio:.2}"),
            format!("{memory:.1} / {most:.1}"),
        ];
        let named = [name.to_owned(), runtimes.to_string()];
        let sent = Estimate::exact(each(counts.writes + reads));
        let row = Row::new(named.into_iter().chain(times).chain(counted));
        let row = bounds.into_iter().fold(row, Row::bound);
        let mut row = row.bound(Bound::at_most(sent, f64::from(requests), " requests each"));
        // The speed of the machine cancels out.
        let cpu_bound = Bound::at_most(Estimate::exact(ratio), 1.5, " × simulator");
        row = row.bound(self.bench.effort.choose(None, Some(cpu_bound)));
        if runtimes <= 5_000 {
            row = row.bound(Bound::at_most(Estimate::exact(most), 64.0, " MiB"));
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
    strays: u64,
    /// Requests with the credentials of another runtime.
    unauthorized: u64,
}

impl Violations {
    fn add(&mut self, totals: &Totals) {
        self.redundant = self.redundant.max(totals.most_idle_applies);
        self.strays += totals.counts.foreign_writes;
        self.unauthorized += totals.counts.unauthorized;
    }

    fn bounds(&self) -> Vec<Bound> {
        let Self {
            redundant,
            strays,
            unauthorized,
        } = *self;
        vec![
            Bound::required(format!("≤ 1 redundant apply ({redundant})"), redundant <= 1),
            Bound::required(
                format!("0 writes to another cluster ({strays})"),
                strays == 0,
            ),
            Bound::required(
                format!("0 requests with other credentials ({unauthorized})"),
                unauthorized == 0,
            ),
        ]
    }
}

fn numbers(range: Range<usize>) -> Selection {
    Selection::Numbers(range.collect())
}

/// Whether the 99th percentile is later by less than so many percent.
fn is_near(curve: &Curve, healthy: &Curve, percent: u32) -> bool {
    let both = curve.quantile(990).zip(healthy.quantile(990));
    both.is_some_and(|(time, healthy)| time * 100 < healthy * (100 + percent))
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
    use super::*;
    use crate::fleet::Counts;

    #[test]
    fn two_redundant_applies_or_one_stray_write_is_a_violation() {
        let none = |idle, foreign_writes, unauthorized| {
            let mut violations = Violations::default();
            let counts = Counts {
                foreign_writes,
                unauthorized,
                ..Counts::default()
            };
            violations.add(&Totals {
                counts,
                most_idle_applies: idle,
                ..Totals::default()
            });
            let rows = violations
                .bounds()
                .into_iter()
                .map(|bound| Row::new(["a"]).bound(bound))
                .collect();
            Table::new(&["a"], rows).meets_its_bounds()
        };
        assert!(none(1, 0, 0));
        assert!(!none(2, 0, 0));
        assert!(!none(0, 1, 0));
        assert!(!none(0, 0, 1));
    }

    #[test]
    fn five_percent_later_is_too_late() {
        let curve = |millis: u64| Curve::new(vec![Duration::from_millis(millis)], 1);
        assert!(is_near(&curve(10_499), &curve(10_000), 5));
        assert!(!is_near(&curve(10_500), &curve(10_000), 5));
        assert!(!is_near(&Curve::new(vec![], 1), &curve(10_000), 5));
    }
}
