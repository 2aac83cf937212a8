//! `harness bench fanout`: how long a change on the control plane takes to reach thousands of runtimes.
//!
//! The controller is the product's binary on one core. The simulated runtimes ([`crate::fleet`]) are part of this process
//! on the other core, with a round trip between them; the control plane is a real API server and gets what both leave. A
//! runtime has a change when it stores the content that was sent.

mod rounds;
mod scenarios;
mod testbed;

use clap::ValueEnum;

use self::testbed::Settings;
use crate::environment::Bench;
use crate::report::Table;

/// Scenarios that follow one another; each part starts with an empty control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
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

pub(crate) async fn measure(bench: &Bench, part: Part) -> anyhow::Result<Table> {
    let settings = Settings {
        runtimes: match (bench.effort.quick, part) {
            (true, Part::Large) => 400,
            (true, _) => 200,
            (false, Part::Large) => 10_000,
            // Many more than are connected to at once, or every kill would hit the same moment.
            (false, Part::Kills) => 1_000,
            (false, _) => 5_000,
        },
        production: part == Part::Production,
    };
    Box::pin(scenarios::measure(bench, settings, part)).await
}
