//! The features on a real cluster: start what the run needs once, run them, take it down.
//!
//! Invariant: a skipped, undefined or failed step fails the run, and the landscape is taken down whatever happened.
//! Arguments are cucumber's own (`-n`, `-t`, `-c`), and two of ours: `--keep` and `--cluster`.
#![expect(
    clippy::print_stderr,
    reason = "this file talks to the person at the terminal"
)]

use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use cucumber::cli::Opts;
use cucumber::event::ScenarioFinished;
use cucumber::writer::{self, Stats as _};
use cucumber::{World as _, WriterExt as _};
use futures::FutureExt as _;
use harness::cluster::ProviderChoice;
use harness::progress::Progress;
use harness::setup::Setup;
use harness::workspace;
use harness::world::{Landscape, World};

#[derive(Debug, Default, Clone, clap::Args)]
struct Own {
    /// Leave cluster and registry running; the next run takes them.
    #[arg(long)]
    keep: bool,
    /// What runs the cluster: `k3s`, `kube`, or the path of a kubeconfig.
    #[arg(long, value_name = "k3s|kube|FILE")]
    cluster: Option<ProviderChoice>,
}

type Options = Opts<cucumber::parser::basic::Cli, cucumber::runner::basic::Cli, WriterCli, Own>;
type WriterCli = cucumber::cli::Compose<writer::basic::Cli, writer::junit::Cli>;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parsed();
    match run(options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<bool> {
    let progress = Progress::new();
    let setup = Setup::load()?.with_choice(options.custom.cluster.as_ref())?;
    progress.say(&format!("clusters run on {}", setup.provider));
    let start = Landscape::start(&progress, &setup, options.custom.keep);
    let landscape = Arc::new(Box::pin(start).await?);
    World::run_on(Some(Arc::clone(&landscape)));
    let good = features(options).await;
    World::run_on(None);
    let landscape = Arc::into_inner(landscape).context("a scenario still runs")?;
    landscape.stop().await?;
    good
}

async fn features(options: Options) -> anyhow::Result<bool> {
    let file = workspace::state().join("junit.xml");
    let junit = std::fs::File::create(&file).with_context(|| file.display().to_string())?;
    let writer = World::cucumber::<std::path::PathBuf>()
        .max_concurrent_scenarios(CONCURRENCY)
        .before(|_, _, scenario, world| {
            // Cucumber puts an empty hook in place when it begins.
            std::panic::set_hook(Box::new(report));
            world.entitle(&scenario.name);
            futures::future::ready(()).boxed_local()
        })
        .after(|feature, _, _, finished, world| {
            let failed = !matches!(finished, ScenarioFinished::StepPassed);
            async move {
                let Some(world) = world else { return };
                if let Err(error) = world.end(&feature.name, failed).await {
                    eprintln!("after {world:?}: {error:#}");
                    std::panic::resume_unwind(Box::new(format!("{error:#}")));
                }
            }
            .boxed_local()
        })
        .with_writer(
            writer::Basic::stdout()
                .summarized()
                .tee::<World, _>(writer::JUnit::for_tee(junit, 0).normalized()),
        )
        .fail_on_skipped()
        .with_cli(options)
        .run(workspace::root().join("features"))
        .await;
    Ok(!writer.execution_has_failed())
}

/// Cucumber shows the panics of steps, and nobody those of tasks.
fn report(panic: &PanicHookInfo<'_>) {
    if tokio::task::try_id().is_some() {
        eprintln!("{panic}");
    }
}

/// All scenarios run on one thread, and on one API server.
const CONCURRENCY: usize = 4;
