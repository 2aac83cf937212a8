//! `cargo verify`: the set-up, then every test of the workspace.
//!
//! The suites on clusters wait more than they compute, so they run beside each other and beside all other tests. The output
//! of the other tests passes through; that of each suite goes to a log file, and is printed whole when all have ended.
#![expect(clippy::print_stdout, reason = "the output of the suites")]

use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};

use anyhow::Context as _;
use tokio::process::Command;

use clusters::cluster::ProviderChoice;
use clusters::progress::Progress;
use clusters::setup;
use clusters::workspace;

/// Sets up and tests.
///
/// # Errors
/// When the set-up fails or cargo cannot be run.
pub async fn run(progress: &Progress, choice: Option<ProviderChoice>) -> anyhow::Result<ExitCode> {
    let mut compile = tests(choice);
    compile.arg("--no-run");
    let mut compile_suites = tests(choice);
    compile_suites.arg("--no-run");
    compile_suites.args(SUITES.iter().flat_map(|suite| ["--test", suite]));
    let set_up = async { anyhow::Ok(setup::run_with_product(progress, choice).await?) };
    let compiled = async {
        // The runs below report what does not compile; a machine that cannot be set up is reported at once.
        let _ = progress.run("compile the tests", &mut compile).await;
        let _ = progress
            .run("compile the suites", &mut compile_suites)
            .await;
        Ok(())
    };
    let (setup, _compiled) = tokio::try_join!(set_up, compiled)?;
    progress.say(&format!("clusters run on {}", setup.provider));
    let suites = SUITES.map(|suite| run_suite(choice, suite));
    let mut others = tests(choice);
    let (others, suites) = tokio::join!(others.status(), futures::future::join_all(suites));
    let mut passed = others.context("cargo cannot be run")?.success();
    for (suite, status) in SUITES.into_iter().zip(suites) {
        println!("     Running suite {suite}");
        std::io::copy(&mut File::open(log(suite))?, &mut std::io::stdout())?;
        passed &= status?.success();
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs one suite, with its output in its log file.
async fn run_suite(choice: Option<ProviderChoice>, suite: &str) -> anyhow::Result<ExitStatus> {
    std::fs::create_dir_all(workspace::logs())?;
    let out = File::create(log(suite))?;
    let mut cargo = tests(choice);
    cargo.args(["--test", suite]);
    cargo
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    cargo.status().await.context("cargo cannot be run")
}

fn log(suite: &str) -> PathBuf {
    workspace::logs().join(format!("suite-{suite}.log"))
}

/// Tests of the whole workspace; the suites on clusters run where they are named.
fn tests(choice: Option<ProviderChoice>) -> Command {
    let mut cargo = cargo(choice);
    cargo.args([
        "test",
        "--workspace",
        "--features",
        CLUSTERS,
        "--no-fail-fast",
    ]);
    cargo
}

/// The exit code of cargo as one of this process.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Cargo in the workspace; its tests run their clusters on `choice`.
pub(crate) fn cargo(choice: Option<ProviderChoice>) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace::root())
        .envs(choice.map(|choice| (setup::CLUSTER, choice.as_str())));
    // What `cargo run` told us is not true of the packages that are tested, and build scripts watch it.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| LEAKED.iter().any(|prefix| name.starts_with(prefix)))
        {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// The feature without which cargo leaves out the suites on clusters.
pub(crate) const CLUSTERS: &str = "e2e/clusters";
/// Suites on clusters, the longest first: targets of the crate e2e.
const SUITES: [&str; 3] = ["synchronization", "admission", "watching"];
const LEAKED: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
