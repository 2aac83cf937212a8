//! `cargo harness`: sets a machine up, and runs clusters, tests, the demo and benchmarks. It prints errors with their causes.
//!
//! The exit code is 0, 1 after a failure, 2 for wrong usage, or that of cargo if the command runs cargo.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "output of a command line"
)]

mod conformance;
mod demo;
mod self_check;
mod verify;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::conformance::ConformanceArgs;
use crate::self_check::SelfCheckArgs;
use crate::verify::E2eArgs;
use bench::BenchCommand;
use clusters::cluster::ProviderChoice;
use clusters::images;
use clusters::run;
use clusters::setup;

/// Allocator of the product: the listener that `bench events` measures runs in this program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// End-to-end tests, demo and benchmarks of runtime-bootstrapper.
#[derive(Debug, Parser)]
#[command(name = "harness")]
enum Command {
    /// Install, start and build the dependencies of clusters.
    Setup(Choice),
    /// Manage clusters that stay until they are removed.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Build the release binary and check its size limit.
    ReleaseSize,
    /// Set up, then run all tests of the workspace, with clusters.
    ///
    /// It takes no arguments for cargo or the tests, because it runs three groups of tests side by side, and the suites among
    /// them are chosen by other arguments than unit tests. Use `cargo test --workspace --features e2e/clusters -- NAME` for
    /// tests with this name, and `cargo harness e2e` for scenarios.
    Verify(Choice),
    /// Set up, then run one suite of features on clusters.
    E2e(E2eArgs),
    /// Set up, then show the documented flow on clusters: a Runtime is created, and the Pod of a module runs there.
    Demo {
        #[command(flatten)]
        choice: Choice,
        /// Leave cluster and registry running for inspection; the next demo uses them.
        #[arg(long)]
        keep: bool,
    },
    /// Measure the product: admission, fan-out, events.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Check clusters against a scenario file: local clusters, which are started, or those of kubeconfigs.
    Conformance(ConformanceArgs),
    /// Seed defects into the product, one after the other, and check that a test finds each.
    SelfCheck(SelfCheckArgs),
    /// Print data about landscapes (`scenarios/`).
    #[command(subcommand)]
    Landscape(LandscapeCommand),
}

#[derive(Debug, Subcommand)]
enum LandscapeCommand {
    /// Print the JSON schema of scenario files: `scenarios/schema.json`.
    Schema,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Remove all kept clusters and the registry.
    Down,
}

#[derive(Debug, Args)]
struct Choice {
    /// Image that runs the clusters of this command; the default is the choice of the set-up.
    #[arg(long, value_enum)]
    cluster: Option<ProviderChoice>,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Logs of the product's crates are off, because benchmarks run the listener in this process, with faults.
    let own = ["bench", "clusters", "e2e", "testkit"].map(|it| (it, LevelFilter::WARN));
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    log.finish().with(Targets::new().with_targets(own)).init();
    let done = match Command::parse() {
        // This command handles the interrupt itself, because it must remove its objects on clusters that are not local.
        Command::Conformance(arguments) if arguments.is_foreign() => {
            Box::pin(conformance::run(arguments)).await
        }
        command => run::interruptible(Box::pin(dispatch(command))).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Setup(choice) => {
            let setup = setup::run_with_product(choice.cluster).await?;
            println!("ready: clusters run on {}", setup.provider);
        }
        Command::Cluster(ClusterCommand::Down) => {
            let removed = run::forget_kept().await?;
            if removed.is_empty() {
                println!("nothing is kept");
            }
            for name in removed {
                println!("removed {name}");
            }
        }
        Command::ReleaseSize => {
            let binary = images::binary(images::Profile::Release).await?;
            let bytes = std::fs::metadata(binary)?.len();
            let bound = images::LARGEST_RELEASE;
            println!("release binary: {bytes} bytes, at most {bound} allowed");
            return Ok(ExitCode::from(u8::from(bytes > bound)));
        }
        Command::Demo { choice, keep } => {
            Box::pin(demo::run(choice.cluster, keep)).await?;
        }
        Command::Bench(command) => {
            let (text, code) = Box::pin(bench::run(&command)).await?;
            println!("{text}");
            return Ok(code);
        }
        Command::Landscape(LandscapeCommand::Schema) => print!("{}", ::conformance::schema()),
        Command::Conformance(arguments) => return Box::pin(conformance::run(arguments)).await,
        Command::SelfCheck(arguments) => return self_check::run(arguments).await,
        Command::E2e(arguments) => return verify::run_suite(arguments).await,
        Command::Verify(choice) => return verify::run(choice.cluster).await,
    }
    Ok(ExitCode::SUCCESS)
}
