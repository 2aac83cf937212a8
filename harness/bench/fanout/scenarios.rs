//! The scenarios, in their order: each leaves fleet and control plane converged for the next.
//!
//! Counters are reset before a scenario and read after it,
//! so writes and reads are its own.

use std::time::Duration;

use anyhow::ensure;

use super::controller::Controller;
use super::curve::Curve;
use super::report::{Bound, Outcome};
use super::stage::{Change, Stage};
use super::{Part, Sizes};
use crate::fleet::{Conditions, Faults, Reach, Selection, Totals};
use clusters::progress::Progress;
use testkit::until::holds;

/// A stage with a controller on it.
pub(super) struct Play<'a> {
    pub(super) progress: &'a Progress,
    pub(super) stage: Stage,
    pub(super) controller: Controller,
    pub(super) sizes: Sizes,
    pub(super) outcomes: Vec<Outcome>,
    /// When the first controller was started, on the fleet's clock.
    pub(super) started: Duration,
    /// What the controller had used when counting began.
    pub(super) cpu_before: Duration,
}

impl Play<'_> {
    /// Those of a part.
    pub(super) async fn run(&mut self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Changes => self.changes().await,
            Part::Trouble => {
                self.converge().await?;
                self.trouble().await
            }
            Part::Kills => {
                self.converge().await?;
                self.killed().await
            }
            Part::Large => {
                self.cold(LARGE_P99).await?;
                self.settle().await?;
                self.changed(Change::Three, "three sources changed", LARGE_P99)
                    .await?;
                self.settle().await?;
                self.changed(Change::Secret, "one Secret changed", LARGE_P99)
                    .await?;
                self.settle().await?;
                self.nothing().await
            }
        }
    }

    async fn changes(&mut self) -> anyhow::Result<()> {
        self.cold(P99).await?;
        self.settle().await?;
        self.changed(Change::Three, "three sources changed", P99)
            .await?;
        self.settle().await?;
        self.changed(Change::Secret, "one Secret changed", SECRET_P99)
            .await?;
        self.settle().await?;
        self.nothing().await
    }

    async fn trouble(&mut self) -> anyhow::Result<()> {
        let healthy = self
            .changed(Change::Three, "three changed, all are well", P99)
            .await?;
        self.settle().await?;
        self.troubled(&healthy).await?;
        self.settle().await?;
        self.rotated().await
    }

    /// The cold start, of which another part tells.
    async fn converge(&mut self) -> anyhow::Result<()> {
        self.watch("cold start", Change::Three, self.started)
            .await?;
        self.settle().await
    }

    /// The controller was started at the fleet's beginning, with everything still to do.
    async fn cold(&mut self, limit: Duration) -> anyhow::Result<()> {
        let curve = self
            .watch("cold start", Change::Three, self.started)
            .await?;
        let bounds = self.and_memory(vec![Bound::p99(&curve, limit)])?;
        self.record("cold start", Some(curve), bounds).await
    }

    async fn changed(
        &mut self,
        change: Change,
        name: &str,
        limit: Duration,
    ) -> anyhow::Result<Curve> {
        self.begin().await?;
        let since = self.stage.change(change).await?;
        let curve = self.watch(name, change, since).await?;
        let bounds = self.and_memory(vec![Bound::p99(&curve, limit)])?;
        self.record(name, Some(curve.clone()), bounds).await?;
        Ok(curve)
    }

    /// A new process finds everything as it should be.
    async fn nothing(&mut self) -> anyhow::Result<()> {
        self.begin().await?;
        self.restart().await?;
        let fleet = &self.stage.fleet;
        let quiet = holds("nothing is written", QUIET, || async {
            let counts = fleet.totals().await?.counts;
            ensure!(counts.writes == 0, "{} writes", counts.writes);
            anyhow::Ok(())
        });
        let quiet = self.progress.show("nothing changed", quiet).await.is_ok();
        let looked = fleet.totals().await?.counts.handshakes >= self.stage.known as u64;
        let bounds = self.and_memory(vec![
            Bound::new("0 writes", quiet),
            Bound::new("every runtime is looked at", looked),
        ])?;
        self.record("restart, nothing changed", None, bounds).await
    }

    /// Some are dead and some never answer; the others must not notice.
    async fn troubled(&mut self, healthy: &Curve) -> anyhow::Result<()> {
        let share = self.one_percent();
        let good = self.good();
        let silent = Conditions {
            reach: Reach::Silent,
            ..good.clone()
        };
        let stuck = Conditions {
            faults: Faults {
                stalled: 1000,
                ..Faults::default()
            },
            ..good.clone()
        };
        let fleet = self.stage.fleet.clone();
        fleet.set(numbers(0..share), silent).await?;
        fleet.set(numbers(share..2 * share), stuck).await?;
        self.begin().await?;
        let since = self.stage.change(Change::Three).await?;
        let name = "three changed, 1 % dead and 1 % stalled";
        let curve = self
            .watch_but(name, Change::Three, (since, 2 * share))
            .await?;
        let near = is_near(&curve, healthy);
        let bounds = self.and_memory(vec![Bound::new("p99 of the others + < 5 %", near)])?;
        self.record(name, Some(curve), bounds).await?;
        fleet.set(Selection::All, good).await?;
        self.watch("the others are back", Change::Three, since)
            .await?;
        Ok(())
    }

    async fn rotated(&mut self) -> anyhow::Result<()> {
        self.begin().await?;
        let rotate = self.stage.rotate();
        self.progress.show("rotate all kubeconfigs", rotate).await?;
        let since = self.stage.change(Change::Three).await?;
        let name = "three changed, all kubeconfigs rotated";
        let curve = self.watch(name, Change::Three, since).await?;
        let bounds = self.and_memory(vec![Bound::p99(&curve, P99)])?;
        self.record(name, Some(curve), bounds).await
    }

    /// SIGKILL at points that are spread over a pass, while some kubeconfigs lead to clusters that they should not.
    async fn killed(&mut self) -> anyhow::Result<()> {
        let astray = self.one_percent();
        let another = Conditions {
            identity: Some("another-cluster".to_owned()),
            ..self.good()
        };
        self.stage.fleet.set(numbers(0..astray), another).await?;
        let right = self.stage.known - astray;
        let mut slowest: Option<Curve> = None;
        let (mut wrong, mut amid) = (Wrong::default(), 0);
        for number in 1..=self.sizes.kills {
            self.begin().await?;
            let since = self.stage.change(Change::Three).await?;
            // Multiples of the golden section never come close to each other.
            self.stage
                .reached(since, right * (number * 618 % 1000) / 1000)
                .await?;
            self.controller.kill().await?;
            let reached = self.stage.arrived(since).await?;
            amid += usize::from(reached > 0 && reached < right);
            let before = self.stage.fleet.totals().await?.counts.handshakes;
            self.start()?;
            let name = format!("killed {number} of {}", self.sizes.kills);
            let curve = self
                .watch_but(&name, Change::Three, (since, astray))
                .await?;
            // What was on its way may have arrived without the new process, which has then still to prove itself.
            self.stage.looked_at(before).await?;
            wrong.add(&self.stage.fleet.totals().await?);
            if slowest.as_ref().and_then(Curve::last) < curve.last() {
                slowest = Some(curve);
            }
        }
        let mut bounds = wrong.bounds();
        let kills = self.sizes.kills;
        let text = format!("{amid} of {kills} amid the writes");
        bounds.push(Bound::new(text, amid * 10 >= kills * 9));
        let name = format!("SIGKILL in a pass, slowest of {}", self.sizes.kills);
        self.record(&name, slowest, bounds).await
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let settled = self.stage.settled(&mut self.controller);
        self.progress.show("nothing is left to do", settled).await
    }

    /// Counts from here on.
    async fn begin(&mut self) -> anyhow::Result<()> {
        self.cpu_before = self.controller.cpu()?;
        self.stage.fleet.reset_counters().await
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        self.controller.kill().await?;
        self.start()
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.controller = self.stage.controller.start()?;
        self.cpu_before = Duration::ZERO;
        Ok(())
    }

    async fn watch(
        &mut self,
        name: &str,
        change: Change,
        since: Duration,
    ) -> anyhow::Result<Curve> {
        self.watch_but(name, change, (since, 0)).await
    }

    async fn watch_but(
        &mut self,
        name: &str,
        change: Change,
        (since, but): (Duration, usize),
    ) -> anyhow::Result<Curve> {
        let converged = self.stage.converged(change, since, but);
        let curve = self.progress.show(name, converged).await;
        self.controller.is_running()?;
        curve
    }

    /// And the bound on memory, which there is up to 5,000 runtimes.
    fn and_memory(&self, mut bounds: Vec<Bound>) -> anyhow::Result<Vec<Bound>> {
        if self.stage.known <= BOUND_IN_MEMORY {
            let (_, most) = self.controller.memory()?;
            bounds.push(Bound::new("RSS ≤ 64 MiB", most <= 64 * 1024));
        }
        Ok(bounds)
    }

    fn one_percent(&self) -> usize {
        (self.stage.known / 100).max(1)
    }

    /// What a runtime is like that nothing is wrong with.
    fn good(&self) -> Conditions {
        Conditions {
            latency: self.sizes.latency(),
            ..Conditions::default()
        }
    }

    async fn record(
        &mut self,
        name: &str,
        curve: Option<Curve>,
        bounds: Vec<Bound>,
    ) -> anyhow::Result<()> {
        self.outcomes.push(Outcome {
            name: name.to_owned(),
            runtimes: self.stage.known,
            totals: self.stage.fleet.totals().await?,
            cpu: self.controller.cpu()?.saturating_sub(self.cpu_before),
            memory: self.controller.memory()?,
            drawn: curve.is_some() && !name.starts_with("SIGKILL"),
            curve,
            bounds,
        });
        Ok(())
    }
}

/// What must not happen however often the controller is killed.
#[derive(Default)]
struct Wrong {
    /// Applies without need, of the object that had most of them.
    redundant: u32,
    /// Writes to clusters that a kubeconfig should not lead to.
    strays: u64,
    /// Requests with another runtime's credentials.
    strangers: u64,
}

impl Wrong {
    fn add(&mut self, totals: &Totals) {
        self.redundant = self.redundant.max(totals.most_idle_applies);
        self.strays += totals.counts.foreign_writes;
        self.strangers += totals.counts.unauthorized;
    }

    fn bounds(&self) -> Vec<Bound> {
        let Self {
            redundant,
            strays,
            strangers,
        } = *self;
        vec![
            Bound::new(format!("≤ 1 redundant apply ({redundant})"), redundant <= 1),
            Bound::new(format!("0 writes gone astray ({strays})"), strays == 0),
            Bound::new(
                format!("0 requests with another's credentials ({strangers})"),
                strangers == 0,
            ),
        ]
    }
}

fn numbers(range: std::ops::Range<usize>) -> Selection {
    Selection::Numbers(range.collect())
}

/// Whether 99 % had it at most a twentieth later.
fn is_near(curve: &Curve, healthy: &Curve) -> bool {
    let both = curve.quantile(990).zip(healthy.quantile(990));
    both.is_some_and(|(time, healthy)| time * 20 < healthy * 21)
}

const P99: Duration = Duration::from_secs(30);
const SECRET_P99: Duration = Duration::from_secs(15);
const LARGE_P99: Duration = Duration::from_mins(1);
const BOUND_IN_MEMORY: usize = 5000;
/// Longer than a pass over all of them takes.
const QUIET: Duration = Duration::from_secs(45);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Counts;

    #[test]
    fn one_needless_apply_too_many_or_one_astray_is_a_failure() {
        let met = |idle, foreign_writes, unauthorized| {
            let mut wrong = Wrong::default();
            let counts = Counts {
                foreign_writes,
                unauthorized,
                ..Counts::default()
            };
            wrong.add(&Totals {
                counts,
                most_idle_applies: idle,
                ..Totals::default()
            });
            wrong.bounds().iter().all(|it| it.met)
        };
        assert!(met(1, 0, 0));
        assert!(!met(2, 0, 0));
        assert!(!met(0, 1, 0));
        assert!(!met(0, 0, 1));
    }

    #[test]
    fn a_twentieth_later_is_too_late() {
        let curve = |millis: u64| Curve::new(vec![Duration::from_millis(millis)], 1);
        assert!(is_near(&curve(10_499), &curve(10_000)));
        assert!(!is_near(&curve(10_500), &curve(10_000)));
        assert!(!is_near(&Curve::new(vec![], 1), &curve(10_000)));
    }
}
