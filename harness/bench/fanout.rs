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

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use self::build::Programs;
use self::report::Figures;
use self::scenarios::Play;
use self::stage::Stage;
use self::today::Today;
use super::Outcome;
use super::machine::Circumstances;
use crate::progress::Progress;
use crate::workspace;

/// How to measure the fan-out.
#[derive(Debug, Clone, Args)]
pub struct FanoutArgs {
    /// Exit with 1 if a bound that must hold does not.
    #[arg(long)]
    check: bool,
    /// Measure what was built last, and do not ask cargo whether it is of these sources.
    #[arg(long)]
    built: bool,
    /// Only look: nothing is written into docs/.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    sizes: Sizes,
}

/// How much of everything.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Sizes {
    /// Runtimes of all scenarios but the last.
    #[arg(long, default_value_t = 5000)]
    runtimes: usize,
    /// Runtimes of the last scenario; not more than the others: it is left out.
    #[arg(long, default_value_t = 10_000)]
    large: usize,
    /// One round trip between controller and runtimes, in milliseconds.
    #[arg(long, default_value_t = 100)]
    round_trip: u64,
    /// How often the controller is killed in the middle of a pass.
    #[arg(long, default_value_t = 20)]
    kills: usize,
}

impl Sizes {
    fn latency(self) -> Duration {
        Duration::from_millis(self.round_trip)
    }
}

/// Runs the bench.
pub(super) async fn run(progress: &Progress, arguments: &FanoutArgs) -> anyhow::Result<Outcome> {
    let circumstances = Circumstances::now().await?;
    let programs = if arguments.built {
        Programs::built()
    } else {
        Programs::build(progress).await?
    };
    let sizes = arguments.sizes;
    let figures = Box::pin(measure(progress, &programs, sizes, circumstances)).await?;
    if !arguments.quick {
        write(&figures)?;
    }
    let good = !arguments.check || figures.hold();
    Ok(Outcome {
        text: figures.shown(),
        code: if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    })
}

async fn measure(
    progress: &Progress,
    programs: &Programs,
    sizes: Sizes,
    circumstances: Circumstances,
) -> anyhow::Result<Figures> {
    let largest = sizes.runtimes.max(sizes.large);
    let mut stage = Stage::start(progress, programs, largest, sizes.latency()).await?;
    progress
        .show("fill the control plane", stage.fill(sizes.runtimes))
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
    let ran = play.run().await;
    let Play {
        stage,
        mut controller,
        outcomes,
        ..
    } = play;
    controller.kill().await?;
    stage.end().await?;
    ran?;
    let today = Today::with_round_trip(sizes.latency());
    Ok(Figures {
        circumstances,
        command: "cargo harness bench fanout".to_owned(),
        outcomes,
        today: (sizes.runtimes, today.curve(sizes.runtimes)),
    })
}

fn write(figures: &Figures) -> anyhow::Result<()> {
    let page = workspace::root().join("docs/benchmarks.md");
    let text = std::fs::read_to_string(&page).context("docs/benchmarks.md")?;
    std::fs::write(&page, figures.written_into(&text)?).context("docs/benchmarks.md")?;
    let plot = workspace::root().join("docs/fanout.svg");
    std::fs::write(plot, figures.plot()).context("docs/fanout.svg")
}
