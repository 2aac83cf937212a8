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

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use self::build::Programs;
use self::report::{Figures, Measured};
use self::scenarios::Play;
use self::stage::Stage;
use self::today::Today;
use super::machine::Circumstances;
use super::{Outcome, page};
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
    /// Measure this binary of the product.
    #[arg(long, value_name = "FILE", requires = "built")]
    product: Option<PathBuf>,
    /// Only look: nothing is kept, and nothing written into docs/.
    #[arg(long)]
    quick: bool,
    /// Measure these parts alone; the others of the page are what was measured last.
    #[arg(long, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
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

impl Part {
    const ALL: [Self; 4] = [Self::Changes, Self::Trouble, Self::Large, Self::Kills];

    fn name(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Trouble => "trouble",
            Self::Large => "large",
            Self::Kills => "kills",
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
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
    let programs = if arguments.built {
        Programs::built()?.with_product(arguments.product.clone())
    } else {
        Programs::build(progress).await?
    };
    let sizes = arguments.sizes;
    let mut parts = Vec::new();
    for part in Part::ALL {
        if !arguments.parts.contains(&part) {
            parts.extend(page::kept(BENCH, part).filter(|_| !arguments.quick));
            continue;
        }
        let measured = Box::pin(measure(progress, &programs, sizes, part)).await?;
        if !arguments.quick {
            page::keep(BENCH, part, &measured)?;
        }
        parts.push(measured);
    }
    let figures = Figures {
        parts,
        today: (
            sizes.runtimes,
            Today::with_round_trip(sizes.latency()).curve(sizes.runtimes),
        ),
    };
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
    part: Part,
) -> anyhow::Result<Measured> {
    let circumstances = Circumstances::now().await?.to_string();
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
    Ok(Measured {
        circumstances,
        command: format!("cargo harness bench fanout --parts {part}"),
        outcomes,
    })
}

fn write(figures: &Figures) -> anyhow::Result<()> {
    page::put(BENCH, &figures.markdown())?;
    let plot = workspace::root().join("docs/fanout.svg");
    std::fs::write(plot, figures.plot()).context("docs/fanout.svg")
}

const BENCH: &str = "fanout";
