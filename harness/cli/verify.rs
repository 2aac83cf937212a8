//! `cargo verify`: the set-up, then every test of the workspace.
//!
//! Invariant: cargo's output passes through and its exit code is kept, so that a failure reads as if cargo had been
//! called by hand. `cargo test --workspace` includes the features on clusters and the doc-tests.

use std::process::{ExitCode, ExitStatus};

use anyhow::Context as _;
use futures::FutureExt as _;
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
    // The last link of a release build leaves a core idle for minutes.
    let mut compile = tests(choice);
    compile.arg("--no-run");
    let set_up = async { anyhow::Ok(setup::run_with_product(progress, choice).await?) };
    // Tests that do not compile are told of below, with all of cargo's words; a machine that cannot be set up at once.
    let compiled = progress.run("compile the tests", &mut compile).map(Ok);
    let (setup, _compiled) = tokio::try_join!(set_up, compiled)?;
    progress.say(&format!("clusters run on {}", setup.provider));
    let status = tests(choice)
        .status()
        .await
        .context("cargo cannot be run")?;
    Ok(exit_code(status))
}

/// All of the workspace, suites on clusters included.
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
const LEAKED: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
