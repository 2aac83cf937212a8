//! `cargo verify` runs the set-up, then every test of the workspace. `cargo harness e2e SUITE` runs the set-up, then one suite.
//!
//! The suites on clusters wait more than they compute. So `cargo verify` runs three commands in parallel, the longest first:
//! each suite, and all other tests. More would slow each other down, and tests that measure time would fail. The output of the
//! other tests is printed directly. The output of each suite is written to a log file, and printed when all have ended. Both
//! commands select all packages of the workspace, so that nothing is compiled twice.
#![expect(clippy::print_stdout, reason = "the output of the suites")]

use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _};
use tokio::process::Command;

use clusters::cluster::ProviderChoice;
use clusters::images;
use clusters::progress;
use clusters::setup;
use clusters::workspace;

/// Selection of scenarios.
#[derive(Debug, clap::Args)]
pub(crate) struct E2eArgs {
    /// Suite: a folder of features/ and a cargo test target of the crate e2e.
    #[arg(value_parser = SUITES)]
    suite: String,
    /// Regular expression of scenario titles.
    #[arg(short = 'n', long)]
    name: Option<String>,
    /// Tag expression, such as `@node and not @slow`.
    #[arg(short = 't', long)]
    tags: Option<String>,
    /// Glob of feature files, relative to the workspace.
    #[arg(short = 'i', long)]
    input: Option<String>,
    /// Leave clusters and registry running; the next run uses them (`cargo harness cluster down` removes them).
    #[arg(long)]
    keep: bool,
    /// Image that runs the clusters; the default is the choice of the set-up.
    #[arg(long, value_enum)]
    cluster: Option<ProviderChoice>,
}

pub(crate) async fn run_suite(arguments: E2eArgs) -> anyhow::Result<ExitCode> {
    setup::run(arguments.cluster).await?;
    let mut cargo = tests(arguments.cluster);
    cargo.args(["--quiet", "--test", &arguments.suite, "--"]);
    for (option, value) in [
        ("--name", arguments.name),
        ("--tags", arguments.tags),
        ("--input", arguments.input),
    ] {
        cargo.args(value.map(|value| format!("{option}={value}")));
    }
    cargo.args(arguments.keep.then_some("--keep"));
    let status = cargo.status().await.context("cargo cannot be run")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

pub(crate) async fn run(choice: Option<ProviderChoice>) -> anyhow::Result<ExitCode> {
    let (mut compile, mut compile_suites) = (tests(choice), tests(choice));
    compile.arg("--no-run");
    compile_suites.arg("--no-run");
    compile_suites.args(SUITES.iter().flat_map(|suite| ["--test", suite]));
    let set_up = async { anyhow::Ok(setup::run_with_product(choice).await?) };
    let compiled = async {
        // The runs below report compile errors; a failure of the set-up is reported at once.
        let _ = progress::run("compile the tests", &mut compile).await;
        let title = "compile the suites";
        let _ = progress::run(title, &mut compile_suites).await;
        Ok(())
    };
    let (setup, _compiled) = tokio::try_join!(set_up, compiled)?;
    progress::say(&format!("clusters run on {}", setup.provider));
    // The images are built before the tests, because compilers would delay tests that measure time. The suites that need an
    // image report a failed build.
    let _ = images::cert_manager().await;
    let _ = images::istiod().await;
    let queue = stream::iter(QUEUE).map(async |tests| (tests, run_queued(choice, tests).await));
    let ended: Vec<(Option<&str>, _)> = queue.buffer_unordered(PARALLEL).collect().await;
    for suite in ended.iter().filter_map(|(suite, _)| *suite) {
        println!("     Running suite {suite}");
        std::io::copy(&mut File::open(log(suite))?, &mut std::io::stdout())?;
    }
    let mut passed = true;
    for (_, status) in ended {
        passed &= status?.success();
    }
    Ok(ExitCode::from(u8::from(!passed)))
}

/// Runs a suite, or all other tests.
async fn run_queued(
    choice: Option<ProviderChoice>,
    suite: Option<&str>,
) -> anyhow::Result<ExitStatus> {
    if let Some(suite) = suite {
        return log_suite(choice, suite).await;
    }
    let mut others = tests(choice);
    // It chooses scenarios of the suites. Unit tests of that choice would read it, too.
    others.env_remove("CUCUMBER_FILTER_TAGS");
    others.status().await.context("cargo cannot be run")
}

/// Runs one suite, with its output in its log file.
async fn log_suite(choice: Option<ProviderChoice>, suite: &str) -> anyhow::Result<ExitStatus> {
    std::fs::create_dir_all(workspace::logs())?;
    let out = File::create(log(suite))?;
    let mut cargo = tests(choice);
    cargo.args(["--test", suite]).stdin(Stdio::null());
    cargo.stdout(out.try_clone()?).stderr(out);
    cargo.status().await.context("cargo cannot be run")
}

fn log(suite: &str) -> PathBuf {
    workspace::logs().join(format!("suite-{suite}.log"))
}

/// Returns the command for tests of the whole workspace, with clusters on `choice`. Suites on clusters are tests that the
/// caller names.
fn tests(choice: Option<ProviderChoice>) -> Command {
    let mut cargo = workspace::cargo();
    let arguments = "test --workspace --features e2e/clusters --no-fail-fast";
    cargo.args(arguments.split(' '));
    cargo.envs(choice.map(|choice| (setup::CLUSTER, clusters::name_of(&choice))));
    cargo
}

/// Suites on clusters: targets of the crate e2e that cargo skips without its feature `clusters`.
const SUITES: [&str; 5] = [
    "flow",
    "admission",
    "synchronization",
    "conformance",
    "watching",
];
/// The suites and the other tests, which are `None`, by decreasing duration.
const QUEUE: [Option<&str>; 6] = [
    Some(SUITES[0]),
    Some(SUITES[1]),
    None,
    Some(SUITES[2]),
    Some(SUITES[3]),
    Some(SUITES[4]),
];
/// Number of parallel commands.
const PARALLEL: usize = 3;
