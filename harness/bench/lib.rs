//! Benchmarks of the product, and the simulator of many runtimes.
//!
//! Three benches (`admission`, `fanout`, `events`) share the load generator, the report and the CPU accounting. Everything
//! runs on one machine over loopback; the counts are fixed, so a bench ends by itself, and what it started ends with it.
//! Absolute numbers vary with load from other VMs, so required bounds are on ratios, counts or generous limits.

mod admission;
mod environment;
mod events;
mod fanout;
pub mod fleet;
mod http;
mod load;
mod pki;
mod process;
mod report;
mod statistics;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use self::environment::{Bench, Environment, run_pinned};
use self::report::{Options, Report};
use clusters::progress::Progress;

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
    Operator,
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
        BenchCommand::Operator => {
            events::operate().await?;
            let (text, code) = (String::new(), ExitCode::SUCCESS);
            return Ok(Outcome { text, code });
        }
    };
    if options.cores.is_empty() {
        return run_pinned(progress, options).await;
    }
    measure(progress, command, options).await
}

async fn measure(
    progress: &Progress,
    command: &BenchCommand,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let bench = Bench::new(progress, options)?;
    let mut report = Report::default();
    match command {
        BenchCommand::Admission(_) => {
            let environment = environment(&bench, "admission", "").await?;
            report.add(
                "admission",
                &environment,
                &admission::measure(&bench).await?,
            )?;
        }
        BenchCommand::Fanout(arguments) => {
            for part in chosen(&arguments.parts, arguments.default_parts()) {
                let environment = environment(&bench, "fanout", &name(&part)).await?;
                let table = fanout::measure(&bench, arguments, part).await?;
                report.add(&format!("fanout {}", name(&part)), &environment, &table)?;
            }
        }
        BenchCommand::Events(arguments) => {
            for part in chosen(&arguments.parts, events::Part::value_variants()) {
                let environment = environment(&bench, "events", &name(&part)).await?;
                let table = events::measure(&bench, arguments, part).await?;
                report.add(&format!("events {}", name(&part)), &environment, &table)?;
            }
        }
        BenchCommand::Operator => {}
    }
    Ok(report.finish(options))
}

async fn environment(bench: &Bench<'_>, name: &str, part: &str) -> anyhow::Result<Environment> {
    let parts = if part.is_empty() {
        String::new()
    } else {
        format!(" --parts {part}")
    };
    let command = format!("cargo harness bench {name}{parts}");
    Environment::now(bench.effort, command).await
}

/// The parts that were named, or else the default ones.
fn chosen<P: Copy>(named: &[P], default: &[P]) -> Vec<P> {
    if named.is_empty() { default } else { named }.to_vec()
}

/// The name of a part on the command line.
fn name(part: &impl ValueEnum) -> String {
    let value = part.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The sections of the page: one for each part of each bench.
#[cfg(test)]
fn sections() -> Vec<String> {
    let fanout = fanout::Part::value_variants()
        .iter()
        .map(|part| format!("fanout {}", name(part)));
    let events = events::Part::value_variants()
        .iter()
        .map(|part| format!("events {}", name(part)));
    fanout
        .chain(events)
        .chain(["admission".to_owned()])
        .collect()
}
