//! Benches: what the product costs, beside the least that could do its job, in one run on one machine.
//!
//! Invariants: what is measured is the release build with the flags of the image; a wrong answer is not timed; counts
//! are fixed and everything stays on the loopback interface, so a bench ends by itself (`admission` within ten
//! minutes) and what it started ends with it. Absolute figures drift with the neighbours of a machine: bounds are on
//! ratios within one run.

mod answers;
mod apiserver;
mod calls;
mod events;
mod fanout;
pub mod fleet;
mod generator;
mod machine;
mod page;
mod parts;
mod process;
mod programs;
mod report;
mod reviews;
mod rounds;
mod statistics;
mod subjects;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::answers::Case;
use self::calls::Calls;
use self::machine::{Circumstances, Cores};
use self::programs::Programs;
use self::report::Figures;
use self::rounds::{Effort, Stage, open_rate};
use self::subjects::Subjects;
use clusters::progress::Progress;

/// What to measure.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// The webhook against a no-op with the same TLS stack: CPU a review, latency, memory, API calls.
    Admission(AdmissionArgs),
    /// The controller with thousands of simulated runtimes: convergence, requests, CPU, memory.
    Fanout(fanout::FanoutArgs),
    /// The watcher and the listener: latency in every state of KCP, rates, kills and an outage.
    Events(events::EventsArgs),
}

/// How to measure admission.
#[derive(Debug, Clone, Args)]
pub struct AdmissionArgs {
    /// Exit with 1 if a bound that must hold does not.
    #[arg(long)]
    check: bool,
    /// A tenth of the requests, for a look; docs/benchmarks.md stays as it is.
    #[arg(long)]
    quick: bool,
    /// Measure what was built last, and do not ask cargo whether it is of these sources.
    #[arg(long)]
    built: bool,
}

/// A bench that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// For the terminal.
    pub text: String,
    /// Of the process.
    pub code: ExitCode,
}

impl Outcome {
    /// Of figures that are good enough, or not.
    fn new(text: String, good: bool) -> Self {
        let code = if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
        Self { text, code }
    }
}

/// Runs a bench.
///
/// # Errors
/// When something does not build or start, answers wrongly, or ends too early.
pub async fn run(progress: &Progress, command: &BenchCommand) -> anyhow::Result<Outcome> {
    let arguments = match command {
        BenchCommand::Admission(arguments) => arguments,
        BenchCommand::Fanout(arguments) => return fanout::run(progress, arguments).await,
        BenchCommand::Events(arguments) => return events::run(progress, arguments).await,
    };
    let circumstances = Circumstances::now().await?;
    let programs = if arguments.built {
        Programs::built()
    } else {
        Programs::build(progress).await?
    };
    let cores = Cores::ours()?;
    let start = Subjects::start(&programs, cores);
    let subjects = progress.show("start webhook and no-op", start).await?;
    let stage = Stage {
        load: &programs.load,
        cores,
        subjects: &subjects,
        effort: if arguments.quick {
            Effort::QUICK
        } else {
            Effort::FULL
        },
    };
    let mut figures = measure(progress, &stage, circumstances).await?;
    if arguments.built {
        figures.command.push_str(" --built");
    }
    subjects.end().await?;
    if !arguments.quick {
        page::put("admission", &figures.markdown())?;
    }
    let good = !arguments.check || figures.hold();
    Ok(Outcome::new(figures.shown(), good))
}

async fn measure(
    progress: &Progress,
    stage: &Stage<'_>,
    circumstances: Circumstances,
) -> anyhow::Result<Figures> {
    let subjects = stage.subjects;
    let cases = answers::cases(subjects).await?;
    let before = Calls::now(subjects).await?;
    let mut capacities = Vec::new();
    for case in &cases {
        let title = format!("CPU and rate: {}", case.name());
        let comparison = progress.show(&title, stage.capacity(case)).await?;
        capacities.push((case.size, case.kind, case.name(), comparison));
    }
    let latencies = latencies(progress, stage, &cases).await?;
    let peak = |subject: &subjects::Subject| subject.process.memory("VmHWM");
    Ok(Figures {
        circumstances,
        command: "cargo harness bench admission".to_owned(),
        capacities,
        latencies,
        idle: (subjects.noop.idle, subjects.webhook.idle),
        peak: (peak(&subjects.noop)?, peak(&subjects.webhook)?),
        calls: Calls::now(subjects).await?.since(before),
    })
}

async fn latencies(
    progress: &Progress,
    stage: &Stage<'_>,
    cases: &[Case],
) -> anyhow::Result<
    Vec<(
        reviews::Size,
        String,
        u32,
        (rounds::Latency, rounds::Latency),
    )>,
> {
    let mut latencies = Vec::new();
    for (case, rate) in cases
        .iter()
        .filter_map(|case| Some((case, open_rate(case)?)))
    {
        let title = format!("latency at {rate}/s: {}", case.name());
        let both = progress.show(&title, stage.latency(case, rate)).await?;
        latencies.push((case.size, case.name(), rate, both));
    }
    Ok(latencies)
}
