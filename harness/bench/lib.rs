//! Benchmarks of the product, and a simulator of many runtimes.
//!
//! Three benches (`admission`, `fanout`, `events`) share the load generator, the statistics, the report and the CPU
//! accounting. They run on one machine over loopback with fixed counts, so a bench ends by itself, and what it started
//! ends with it. Absolute numbers vary with load from other VMs, so required bounds are on ratios, counts or generous
//! limits.

mod admission;
mod environment;
mod events;
mod fanout;
pub mod fleet;
mod load;
mod process;
mod report;
mod statistics;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use clusters::progress::Progress;

use self::environment::{Bench, describe, run_pinned};
use self::report::{Options, Report, Table};

/// What to measure.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// The webhook compared with a baseline server: CPU per review, latency, memory, API requests.
    Admission(AdmissionArgs),
    /// The controller with thousands of simulated runtimes: convergence, requests, CPU, memory.
    Fanout(fanout::FanoutArgs),
    /// The watcher and the listener: latency, cost, capacity, loss after kills and an outage.
    Events(events::EventsArgs),
    /// An operator with the listener, as a process of `bench events`.
    #[command(hide = true)]
    Operator(events::OperatorArgs),
}

/// How to measure admission.
#[derive(Debug, Clone, Args)]
pub struct AdmissionArgs {
    #[command(flatten)]
    options: Options,
}

/// The result of a bench.
#[derive(Debug)]
pub struct Outcome {
    /// Text for the terminal.
    pub text: String,
    /// Exit code of the process.
    pub code: ExitCode,
}

/// Runs a bench.
///
/// # Errors
/// When a program cannot be built or started, responds incorrectly, or ends too early.
pub async fn run(progress: &Progress, command: &BenchCommand) -> anyhow::Result<Outcome> {
    let options = match command {
        BenchCommand::Admission(arguments) => &arguments.options,
        BenchCommand::Fanout(arguments) => &arguments.options,
        BenchCommand::Events(arguments) => &arguments.options,
        BenchCommand::Operator(arguments) => {
            let (text, code) = (events::operate(arguments).await?, ExitCode::SUCCESS);
            return Ok(Outcome { text, code });
        }
    };
    if options.core.is_none() {
        return run_pinned(progress, options).await;
    }
    let bench = Bench::new(progress, options)?;
    let mut report = Report::default();
    for part in parts(command) {
        let section = part.section();
        let environment = describe(bench.effort, &section).await?;
        let table = measure(&bench, command, part).await?;
        report.add((&section, &environment), bench.effort, &table)?;
    }
    Ok(report.finish(options.check))
}

/// A part of a bench, which has a section of the page.
#[derive(Debug, Clone, Copy)]
enum Part {
    Admission,
    Fanout(fanout::Part),
    Events(events::Part),
}

impl Part {
    fn section(self) -> String {
        match self {
            Self::Admission => "admission".to_owned(),
            Self::Fanout(part) => format!("fanout {}", name(&part)),
            Self::Events(part) => format!("events {}", name(&part)),
        }
    }
}

/// The chosen parts.
fn parts(command: &BenchCommand) -> Vec<Part> {
    match command {
        BenchCommand::Admission(_) => vec![Part::Admission],
        BenchCommand::Fanout(arguments) => {
            let parts = chosen(
                &arguments.parts,
                arguments.options.quick,
                &[fanout::Part::Changes],
            );
            parts.into_iter().map(Part::Fanout).collect()
        }
        BenchCommand::Events(arguments) => {
            let parts = chosen(&arguments.parts, false, &[]);
            parts.into_iter().map(Part::Events).collect()
        }
        BenchCommand::Operator(_) => Vec::new(),
    }
}

/// The parts that were named, or else those of a quick run, or else all.
fn chosen<P: ValueEnum>(named: &[P], quick: bool, quick_parts: &[P]) -> Vec<P> {
    match named {
        [] if quick => quick_parts.to_vec(),
        [] => P::value_variants().to_vec(),
        _ => named.to_vec(),
    }
}

/// The name of a part on the command line.
fn name(part: &impl ValueEnum) -> String {
    let value = part.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

async fn measure(bench: &Bench<'_>, command: &BenchCommand, part: Part) -> anyhow::Result<Table> {
    match (command, part) {
        (BenchCommand::Fanout(arguments), Part::Fanout(part)) => {
            fanout::measure(bench, arguments, part).await
        }
        (BenchCommand::Events(arguments), Part::Events(part)) => {
            events::measure(bench, arguments, part).await
        }
        _ => admission::measure(bench).await,
    }
}

/// The sections of the page: one for each part of each bench.
#[cfg(test)]
fn sections() -> Vec<String> {
    let fanout = fanout::Part::value_variants()
        .iter()
        .map(|it| Part::Fanout(*it));
    let events = events::Part::value_variants()
        .iter()
        .map(|it| Part::Events(*it));
    let parts = fanout.chain(events).chain([Part::Admission]);
    parts.map(Part::section).collect()
}
