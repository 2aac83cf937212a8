//! The features on real clusters: start what a folder of them needs once, run them, take it down.
//!
//! Invariant: a skipped, undefined or failed step fails the run, and landscapes are taken down whatever happened, a
//! signal included. The folders come one after the other, each with its own world; one that a filter leaves nothing of
//! starts nothing.
//! Arguments are cucumber's own (`-n`, `-t`, `-i`, `-c`), and two of ours: `--keep` and `--cluster`.
#![expect(
    clippy::print_stderr,
    reason = "this file talks to the person at the terminal"
)]

use std::fmt::Debug;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use cucumber::WriterExt as _;
use cucumber::cli::Opts;
use cucumber::codegen::WorldInventory;
use cucumber::event::ScenarioFinished;
use cucumber::writer::{self, Stats as _};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use harness::cluster::ProviderChoice;
use harness::progress::Progress;
use harness::run::interruptible;
use harness::setup::Setup;
use harness::world::{Landscape, World};
use harness::{kcp, workspace};

#[derive(Debug, Default, Clone, clap::Args)]
struct Own {
    /// Leave clusters and registry running; the next run takes them.
    #[arg(long)]
    keep: bool,
    /// What runs the clusters: `k3s`, `kube`, or the path of a kubeconfig.
    #[arg(long, value_name = "k3s|kube|FILE")]
    cluster: Option<ProviderChoice>,
}

type Options = Opts<cucumber::parser::basic::Cli, cucumber::runner::basic::Cli, WriterCli, Own>;
type WriterCli = cucumber::cli::Compose<writer::basic::Cli, writer::junit::Cli>;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parsed();
    match interruptible(Box::pin(run(options))).await {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        Err(interrupted) => {
            eprintln!("{interrupted}");
            ExitCode::from(INTERRUPTED)
        }
    }
}

async fn run(options: Options) -> anyhow::Result<bool> {
    let progress = Progress::new();
    let setup = Setup::load()?.with_choice(options.custom.cluster.as_ref())?;
    progress.say(&format!("clusters run on {}", setup.provider));
    let mut good = true;
    if is_wanted(ADMISSION, &options)? {
        good &= Box::pin(admission(&progress, &setup, &options)).await?;
    }
    if is_wanted(SYNCHRONIZATION, &options)? {
        if setup.provider.is_existing() {
            progress.say("synchronization needs three clusters of its own: left out");
        } else {
            good &= Box::pin(synchronization(&progress, &setup, &options)).await?;
        }
    }
    Ok(good)
}

async fn admission(progress: &Progress, setup: &Setup, options: &Options) -> anyhow::Result<bool> {
    let start = Landscape::start(progress, setup, options.custom.keep);
    let landscape = Arc::new(Box::pin(start).await?);
    World::run_on(Some(Arc::clone(&landscape)));
    let good = features::<World>(ADMISSION, options.clone()).await;
    World::run_on(None);
    let landscape = Arc::into_inner(landscape).context("a scenario still runs")?;
    landscape.stop().await?;
    good
}

async fn synchronization(
    progress: &Progress,
    setup: &Setup,
    options: &Options,
) -> anyhow::Result<bool> {
    let start = kcp::Stage::start(progress, setup, options.custom.keep);
    let stage = Arc::new(Box::pin(start).await?);
    kcp::World::run_on(Some(Arc::clone(&stage)));
    let good = features::<kcp::World>(SYNCHRONIZATION, options.clone()).await;
    kcp::World::run_on(None);
    let stage = Arc::into_inner(stage).context("a scenario still runs")?;
    Box::pin(stage.stop()).await?;
    good
}

/// What a world does around a scenario.
trait Played: cucumber::World + WorldInventory + Debug {
    fn entitle(&mut self, title: &str);
    fn end<'a>(
        &'a mut self,
        feature: &'a str,
        failed: bool,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>>;
}

impl Played for World {
    fn entitle(&mut self, title: &str) {
        Self::entitle(self, title);
    }

    fn end<'a>(
        &'a mut self,
        feature: &'a str,
        failed: bool,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Self::end(self, feature, failed).boxed_local()
    }
}

impl Played for kcp::World {
    fn entitle(&mut self, title: &str) {
        Self::entitle(self, title);
    }

    fn end<'a>(
        &'a mut self,
        feature: &'a str,
        failed: bool,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Self::end(self, feature, failed).boxed_local()
    }
}

async fn features<W: Played>(folder: &str, options: Options) -> anyhow::Result<bool> {
    let file = workspace::state().join(format!("junit-{folder}.xml"));
    let junit = std::fs::File::create(&file).with_context(|| file.display().to_string())?;
    let writer = W::cucumber::<PathBuf>()
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
                .tee::<W, _>(writer::JUnit::for_tee(junit, 0).normalized()),
        )
        .fail_on_skipped()
        .with_cli(options)
        .run(path(folder))
        .await;
    Ok(!writer.execution_has_failed())
}

/// Whether the filters of the command line leave any scenario of a folder.
fn is_wanted(folder: &str, options: &Options) -> anyhow::Result<bool> {
    // Cucumber keeps the glob to itself.
    let arguments: Vec<String> = std::env::args().collect();
    let is_key = |argument: &String| argument == "--input" || argument == "-i";
    let key = arguments.iter().position(is_key);
    let glob = match key {
        Some(at) => arguments.get(at + 1).map(String::as_str),
        None => arguments.iter().find_map(|it| it.strip_prefix("--input=")),
    };
    if let Some(glob) = glob {
        let named = [ADMISSION, SYNCHRONIZATION]
            .iter()
            .any(|known| glob.contains(known));
        anyhow::ensure!(
            named,
            "--input {glob}: it has to name the folder, features/{ADMISSION} or features/{SYNCHRONIZATION}"
        );
        return Ok(glob.contains(folder));
    }
    let Some(names) = &options.re_filter else {
        return Ok(true);
    };
    Ok(titles(&path(folder))?
        .iter()
        // A title with placeholders is known only when its examples are in it.
        .any(|title| title.contains('<') || names.is_match(title)))
}

fn titles(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut titles = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let text = std::fs::read_to_string(entry?.path())?;
        let lines = text.lines().filter_map(|line| {
            let (keyword, title) = line.trim().split_once(": ")?;
            keyword.starts_with("Scenario").then(|| title.to_owned())
        });
        titles.extend(lines);
    }
    Ok(titles)
}

fn path(folder: &str) -> PathBuf {
    workspace::root().join("features").join(folder)
}

/// Cucumber shows the panics of steps, and nobody those of tasks.
fn report(panic: &PanicHookInfo<'_>) {
    if tokio::task::try_id().is_some() {
        eprintln!("{panic}");
    }
}

const ADMISSION: &str = "admission";
const SYNCHRONIZATION: &str = "synchronization";
/// All scenarios run on one thread, and on one API server.
const CONCURRENCY: usize = 4;
/// 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;
