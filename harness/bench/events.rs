//! `harness bench events`: what a change on a runtime costs there, and whether KCP learns of it whatever happens.
//!
//! The subject (the product's watcher, or a listener) is a process of its own on one core; API servers, gateway, operator
//! and senders are this program on the other, as a release build ([`hand_over`]). Beside the product: its own mode
//! `notify: sync`, and a model of the public watcher (`public`). Invariants: everything stays on loopback; a wrong answer
//! is an error, not a figure; an object's final state is known when an event of it arrives after its last answered
//! review.

mod admission;
mod authority;
mod capacity;
mod delivery;
mod gateway;
mod kcp;
mod kills;
mod model;
mod outage;
mod public;
mod report;
mod reviews;
mod roles;
mod senders;
mod stage;
mod stream;
mod watcher;
mod wire;

use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use tokio::process::Command;

use self::authority::Authority;
use self::roles::Role;
use self::stage::Stage;
use super::machine::Cores;
use super::parts::Choice;
use super::{Outcome, parts, programs};
use clusters::progress::Progress;

/// How to measure events.
#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    #[command(flatten)]
    choice: Choice<Part>,
    /// How often the watcher is killed.
    #[arg(long, default_value_t = 1000)]
    kills: u32,
    /// The subject's core and ours: this is the release build, on ours.
    #[arg(long, hide = true, value_delimiter = ',')]
    cores: Vec<u32>,
    /// Play a part in a process of its own.
    #[arg(long, hide = true, value_enum)]
    role: Option<Role>,
}

/// What is measured on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// What a review waits for.
    Admission,
    /// From the review to the operator.
    Delivery,
    /// What a listener carries.
    Listener,
    /// SIGKILL again and again; a silent watcher.
    Kills,
    /// An hour without KCP.
    Outage,
}

impl Part {
    async fn measure(self, stage: &Stage<'_>) -> anyhow::Result<Vec<report::Row>> {
        match self {
            Self::Admission => Box::pin(admission::measure(stage)).await,
            Self::Delivery => Box::pin(delivery::measure(stage)).await,
            Self::Listener => Box::pin(capacity::measure(stage)).await,
            Self::Kills => Box::pin(kills::measure(stage)).await,
            Self::Outage => Box::pin(outage::measure(stage)).await,
        }
    }
}

/// Runs the bench.
pub(super) async fn run(progress: &Progress, arguments: &EventsArgs) -> anyhow::Result<Outcome> {
    if let Some(role) = arguments.role {
        role.play().await?;
        return Ok(Outcome {
            text: String::new(),
            code: ExitCode::SUCCESS,
        });
    }
    match arguments.cores[..] {
        [] => hand_over(progress, arguments).await,
        [subject, generator] => {
            let cores = Cores { subject, generator };
            bench(progress, arguments, cores).await
        }
        _ => bail!("two cores are needed"),
    }
}

/// Runs this command once more as a release build and on one core: a gateway of a debug build, or one that wanders onto
/// the subject's core, would be measured itself.
async fn hand_over(progress: &Progress, arguments: &EventsArgs) -> anyhow::Result<Outcome> {
    let harness = if arguments.choice.built {
        programs::built_harness()
    } else {
        clusters::images::binary(progress, clusters::images::Profile::Release).await?;
        programs::harness(progress).await?
    };
    let Cores { subject, generator } = Cores::ours()?;
    let mut command = Command::new("taskset");
    command
        .args(["-c", &generator.to_string()])
        .arg(harness)
        .args(std::env::args_os().skip(1))
        .arg(format!("--cores={subject},{generator}"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let ran = command.output().await.context("taskset (util-linux)")?;
    let code = ran.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Outcome {
        text: String::from_utf8_lossy(&ran.stdout).trim_end().to_owned(),
        code: code.map_or(ExitCode::FAILURE, ExitCode::from),
    })
}

async fn bench(
    progress: &Progress,
    arguments: &EventsArgs,
    cores: Cores,
) -> anyhow::Result<Outcome> {
    let choice = &arguments.choice;
    let product = choice.product.clone();
    let stage = Stage {
        progress,
        product: product.unwrap_or_else(|| programs::Programs::built().product),
        harness: std::env::current_exe()?,
        cores,
        authority: Authority::new()?,
        quick: choice.quick,
        kills: arguments.kills,
    };
    let measure = async |part: Part| part.measure(&stage).await;
    parts::measure(BENCH, choice, measure).await?.end(choice)
}

const BENCH: &str = "events";
