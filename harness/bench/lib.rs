//! Benchmarks of the product, and a simulator of many runtimes.
//!
//! Four benches (`admission`, `policy`, `fanout`, `events`) share the load generator, the statistics, the report and the CPU
//! accounting. They run on one machine over loopback with fixed counts. Absolute numbers vary with load from other VMs, so
//! required bounds are for ratios, counts or generous limits.

mod admission;
mod environment;
mod events;
mod fanout;
mod fleet;
mod load;
mod process;
mod report;
mod statistics;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use self::environment::{Bench, run_pinned};
use self::report::{Options, PartsArgs, Report};

/// Selection of a bench.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// Compare the webhook with a baseline server: CPU per review, latency, memory, API requests.
    Admission(Options),
    /// Measure the fallback policy in a real API server: time per creation of a Pod.
    Policy(Options),
    /// Measure the controller with thousands of simulated runtimes: convergence, requests, CPU, memory. A quick run measures
    /// `changes` unless parts are named.
    Fanout(PartsArgs<fanout::Part>),
    /// Measure the watcher and the listener: latency, cost, capacity, loss after kills and an outage.
    Events(PartsArgs<events::Part>),
    /// Run an operator with the listener, as a process of `bench events`.
    #[command(hide = true)]
    Operator(events::OperatorArgs),
    /// Run hostile clients of a watcher, as a process of `bench events`.
    #[command(hide = true)]
    Flood(events::FloodArgs),
}

/// Text for the terminal, and the exit code of the process.
pub type Outcome = (String, ExitCode);

/// Runs a bench.
///
/// # Errors
///
/// A program cannot be built or started, responds incorrectly, or ends too early.
pub async fn run(command: &BenchCommand) -> anyhow::Result<Outcome> {
    let options = match command {
        BenchCommand::Admission(options) | BenchCommand::Policy(options) => options,
        BenchCommand::Fanout(arguments) => &arguments.options,
        BenchCommand::Events(arguments) => &arguments.options,
        BenchCommand::Operator(arguments) => {
            return Ok((events::operate(arguments).await?, ExitCode::SUCCESS));
        }
        BenchCommand::Flood(arguments) => return events::flood(arguments).await,
    };
    if options.core.is_none() {
        return run_pinned(options).await;
    }
    let bench = Bench::new(options)?;
    let mut report = Report::default();
    match command {
        BenchCommand::Fanout(arguments) => {
            let quick = bench.effort.quick.then_some(fanout::Part::Changes);
            for part in chosen(&arguments.parts, quick) {
                let (section, measured) = (section("fanout", &part), fanout::measure(&bench, part));
                report.add(&bench, &section, measured).await?;
            }
        }
        BenchCommand::Events(arguments) => {
            for part in chosen(&arguments.parts, None) {
                let (section, measured) = (section("events", &part), events::measure(&bench, part));
                report.add(&bench, &section, measured).await?;
            }
        }
        BenchCommand::Policy(_) => {
            let measured = Box::pin(admission::policy::measure(&bench));
            report.add(&bench, "policy", measured).await?;
        }
        _ => {
            let measured = admission::measure(&bench);
            report.add(&bench, "admission", measured).await?;
        }
    }
    Ok(report.finish(options.check))
}

/// Returns the named parts; without names, the part of a quick run, or all parts.
fn chosen<P: ValueEnum>(named: &[P], quick: Option<P>) -> Vec<P> {
    match (named, quick) {
        ([], Some(part)) => vec![part],
        ([], None) => P::value_variants().to_vec(),
        _ => named.to_vec(),
    }
}

/// Returns the name of the section of docs/benchmarks.md with the table of a part.
fn section(bench: &str, part: &impl ValueEnum) -> String {
    format!("{bench} {}", clusters::name_of(part))
}
