//! `harness bench fanout`: how long a change on the control plane takes to reach thousands of runtimes.
//!
//! The controller is the product's binary on one core. The simulated runtimes ([`crate::fleet`]) are part of this process
//! on the other core, with a round trip between them; the control plane is a real API server and gets what both leave. A
//! runtime has a change when it stores the content that was sent.

mod rounds;
mod scenarios;
mod testbed;

use clap::{Args, ValueEnum};

use self::testbed::Settings;
use crate::environment::Bench;
use crate::report::{Options, Table};

/// How to measure the fan-out.
#[derive(Debug, Clone, Args)]
pub struct FanoutArgs {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Parts to measure; all by default, `changes` in a quick run.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) parts: Vec<Part>,
    /// Runtimes of all parts but `large` and `kills`, which have the double and a fifth of them; 200 in a quick run.
    #[arg(long)]
    runtimes: Option<usize>,
    /// How often the controller is killed during a change; a tenth of it in a quick run.
    #[arg(long, default_value_t = 100)]
    kills: u32,
}

/// Scenarios that follow one another; each part starts with an empty control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Cold start and changes.
    Changes,
    /// The same with the settings of a landscape, as far as one machine can have them.
    Production,
    /// Runtimes that do not answer, and kubeconfigs that are no longer valid.
    Faults,
    /// Twice as many runtimes.
    Large,
    /// SIGKILL during changes.
    Kills,
}

pub(crate) async fn measure(
    bench: &Bench,
    arguments: &FanoutArgs,
    part: Part,
) -> anyhow::Result<Table> {
    let default = bench.effort.choose(5_000, 200);
    let runtimes = arguments.runtimes.unwrap_or(default);
    let settings = Settings {
        runtimes: match part {
            Part::Large => runtimes * 2,
            // Many more than are connected to at once, or every kill would hit the same moment.
            Part::Kills if !bench.effort.quick => runtimes / 5,
            _ => runtimes,
        },
        production: part == Part::Production,
    };
    let kills = usize::try_from(bench.effort.count(arguments.kills))?;
    Box::pin(scenarios::measure(bench, settings, part, kills)).await
}
