//! `cargo harness e2e SUITE`: the set-up, then the cargo target of one suite with the filters of cucumber.
//!
//! It selects all packages of the workspace, as `cargo verify` does, so that nothing is compiled twice.

use std::process::ExitCode;

use anyhow::Context as _;
use clusters::cluster::ProviderChoice;
use clusters::progress::Progress;
use clusters::setup;

use crate::verify;

/// What runs.
#[derive(Debug, clap::Args)]
pub struct E2eArgs {
    /// Suite: a cargo test target of the crate e2e.
    #[arg(value_enum)]
    suite: Suite,
    /// Regular expression of scenario titles.
    #[arg(short = 'n', long)]
    name: Option<String>,
    /// Tag expression, such as `@node and not @slow`.
    #[arg(short = 't', long, conflicts_with = "name")]
    tags: Option<String>,
    /// Glob of feature files, relative to the workspace.
    #[arg(short = 'i', long)]
    input: Option<String>,
    /// Leave clusters and registry running; the next run uses them (`cargo harness cluster down` removes them).
    #[arg(long)]
    keep: bool,
    /// Image that runs the clusters; without it, what the set-up chose.
    #[arg(long, value_enum)]
    cluster: Option<ProviderChoice>,
}

/// A suite.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Suite {
    /// features/admission
    Admission,
    /// features/synchronization
    Synchronization,
    /// features/watching
    Watching,
}

impl Suite {
    fn target(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Synchronization => "synchronization",
            Self::Watching => "watching",
        }
    }
}

/// Sets up and runs the suite.
///
/// # Errors
/// When the set-up fails or cargo cannot be run.
pub async fn run(progress: &Progress, arguments: E2eArgs) -> anyhow::Result<ExitCode> {
    setup::run(progress, arguments.cluster).await?;
    let mut cargo = verify::cargo(arguments.cluster);
    cargo.args([
        "test",
        "--quiet",
        "--workspace",
        "--features",
        verify::CLUSTERS,
    ]);
    cargo.args(["--test", arguments.suite.target(), "--"]);
    let filters = [
        ("--name", arguments.name),
        ("--tags", arguments.tags),
        ("--input", arguments.input),
    ];
    for (option, value) in filters {
        cargo.args(value.map(|value| format!("{option}={value}")));
    }
    cargo.args(arguments.keep.then_some("--keep"));
    let status = cargo.status().await.context("cargo cannot be run")?;
    Ok(verify::exit_code(status))
}
