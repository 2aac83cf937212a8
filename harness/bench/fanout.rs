//! `harness bench fanout`: how long a change on the control plane takes to reach thousands of runtimes.
//!
//! The controller is the product's release binary on one core; the fleet ([`crate::fleet`]) is on another one, with a
//! round trip between them; the control plane is a real API server, and shares both. Invariants: fleet and control
//! plane are filled before anything is timed; a change counts as arrived when the runtime holds what was sent; the line
//! of today's way is a model and says so.

mod build;
mod controller;
mod curve;
mod plot;
mod report;
mod scenarios;
mod stage;
mod today;

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use self::build::Programs;
use self::scenarios::Play;
use self::stage::Stage;
use self::today::Today;
use super::parts::Choice;
use super::{Outcome, parts};
use clusters::progress::Progress;
use clusters::workspace;

/// How to measure the fan-out.
#[derive(Debug, Clone, Args)]
pub struct FanoutArgs {
    #[command(flatten)]
    choice: Choice<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// Scenarios that go on from each other; each part begins with an empty control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Cold start and changes.
    Changes,
    /// Runtimes that do not answer, and kubeconfigs that are no longer good.
    Trouble,
    /// Many runtimes.
    Large,
    /// SIGKILL again and again.
    Kills,
}

/// How much of everything.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Sizes {
    /// Runtimes of the parts `changes` and `trouble`.
    #[arg(long, default_value_t = 5000)]
    runtimes: usize,
    /// Runtimes of part `large`.
    #[arg(long, default_value_t = 10_000)]
    large: usize,
    /// One round trip between controller and runtimes, in milliseconds.
    #[arg(long, default_value_t = 100)]
    round_trip: u64,
    /// How often the controller is killed in the middle of a pass.
    #[arg(long, default_value_t = 100)]
    kills: usize,
    /// Runtimes of part `kills`: many times as many as are connected to at once, or every kill would hit the same moment.
    #[arg(long, default_value_t = 1000)]
    kill_runtimes: usize,
}

impl Sizes {
    fn latency(self) -> Duration {
        Duration::from_millis(self.round_trip)
    }

    fn runtimes(self, part: Part) -> usize {
        match part {
            Part::Changes | Part::Trouble => self.runtimes,
            Part::Large => self.large,
            Part::Kills => self.kill_runtimes,
        }
    }
}

/// Runs the bench.
pub(super) async fn run(progress: &Progress, arguments: &FanoutArgs) -> anyhow::Result<Outcome> {
    let choice = &arguments.choice;
    let programs = if choice.built {
        Programs::built()?.with_product(choice.product.clone())
    } else {
        Programs::build(progress).await?
    };
    let sizes = arguments.sizes;
    let measure = async |part| Box::pin(measure(progress, &programs, sizes, part)).await;
    let today = Today::with_round_trip(sizes.latency()).curve(sizes.runtimes);
    let figures = parts::measure(BENCH, choice, measure)
        .await?
        .beside(report::today(sizes.runtimes, &today));
    if !choice.quick {
        let plot = report::plot(figures.rows(), (sizes.runtimes, &today));
        let file = workspace::root().join(PLOT);
        std::fs::write(file, plot).context(PLOT)?;
    }
    figures.end(choice)
}

async fn measure(
    progress: &Progress,
    programs: &Programs,
    sizes: Sizes,
    part: Part,
) -> anyhow::Result<Vec<report::Outcome>> {
    let runtimes = sizes.runtimes(part);
    let mut stage = Stage::start(progress, programs, runtimes, sizes.latency()).await?;
    progress
        .show("fill the control plane", stage.fill(runtimes))
        .await?;
    let mut play = Play {
        started: stage.now().await?,
        cpu_before: Duration::ZERO,
        controller: stage.controller.start()?,
        progress,
        stage,
        sizes,
        outcomes: Vec::new(),
    };
    let ran = play.run(part).await;
    let Play {
        stage,
        mut controller,
        outcomes,
        ..
    } = play;
    controller.kill().await?;
    stage.end().await?;
    ran?;
    Ok(outcomes)
}

const BENCH: &str = "fanout";
const PLOT: &str = "docs/fanout.svg";
