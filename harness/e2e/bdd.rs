//! The features on real clusters: start what a folder of them needs once, run them, take it down.
//!
//! Invariant: a skipped, undefined or failed step fails the run, and landscapes are taken down whatever happened, a
//! signal included. The folders are played at once, each with its own world and clusters, and shown one after the
//! other; one that a filter leaves nothing of starts nothing.
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
use clusters::cluster::ProviderChoice;
use clusters::progress::Progress;
use clusters::run::interruptible;
use clusters::setup::Setup;
use clusters::workspace;
use cucumber::WriterExt as _;
use cucumber::cli::Opts;
use cucumber::codegen::WorldInventory;
use cucumber::event::ScenarioFinished;
use cucumber::writer::{self, Coloring, Stats as _};
use e2e::turns::{Turn, Turns};
use e2e::watching;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::sync::Mutex;

#[derive(Debug, Default, Clone, clap::Args)]
struct Own {
    /// Leave clusters and registry running; the next run takes them.
    #[arg(long)]
    keep: bool,
    /// Image that runs the clusters of this run; without it, what the set-up found to work here.
    #[arg(long, value_enum)]
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
    let setup = Setup::load()?.with_choice(options.custom.cluster)?;
    progress.say(&format!("clusters run on {}", setup.provider));
    let played = Playing {
        progress,
        setup,
        options,
        turns: Turns::to(std::io::stdout()),
        starting: Mutex::new(()),
    };
    // The longest one first. One that does not come up fails the run, and the others are played all the same.
    let watching = played.folder::<watching::World>(WATCHING).await;
    outcome([watching?])
}

/// Whether all scenarios that were run passed. A folder without a run is `None` and counts neither way.
///
/// # Errors
/// When nothing was run at all.
fn outcome(folders: [Option<bool>; 1]) -> anyhow::Result<bool> {
    let mut run = folders.into_iter().flatten().peekable();
    anyhow::ensure!(
        run.peek().is_some(),
        "no scenario matches the filters: nothing was run"
    );
    Ok(run.all(|passed| passed))
}

/// What all folders are played with.
struct Playing {
    progress: Progress,
    setup: Setup,
    options: Options,
    turns: Turns,
    /// Set up one after the other, for they share images; played all at once, for they mostly wait.
    starting: Mutex<()>,
}

impl Playing {
    /// Starts what the scenarios of a folder run on, runs them, and takes it down. `None` when the filters leave no
    /// scenario of the folder, else whether all of them passed.
    async fn folder<W: Played>(&self, folder: &str) -> anyhow::Result<Option<bool>> {
        let starting = self.starting.lock().await;
        if !is_wanted(folder, &self.options)? {
            return Ok(None);
        }
        let keep = self.options.custom.keep;
        let stage = Arc::new(W::start(&self.progress, &self.setup, keep).await?);
        let turn = self.turns.next();
        drop(starting);
        W::run_on(Some(Arc::clone(&stage)));
        let good = Box::pin(features::<W>(folder, self.options.clone(), turn)).await;
        W::run_on(None);
        let stage = Arc::into_inner(stage).context("a scenario still runs")?;
        W::stop(stage).await?;
        good
    }
}

/// A world, the stage that its scenarios share, and what it does around each of them.
trait Played: cucumber::World + WorldInventory + Debug {
    type Stage: 'static;
    /// How many scenarios are played at once.
    const AT_ONCE: usize;

    fn start<'a>(
        progress: &'a Progress,
        setup: &'a Setup,
        keep: bool,
    ) -> LocalBoxFuture<'a, anyhow::Result<Self::Stage>>;
    fn stop(stage: Self::Stage) -> LocalBoxFuture<'static, anyhow::Result<()>>;
    fn run_on(stage: Option<Arc<Self::Stage>>);
    fn entitle(&mut self, title: &str);
    fn end<'a>(
        &'a mut self,
        feature: &'a str,
        failed: bool,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>>;
}

/// Every world has all this by itself; the trait only gathers it.
macro_rules! played {
    ($world:ty, $stage:ty, $at_once:expr) => {
        impl Played for $world {
            type Stage = $stage;
            const AT_ONCE: usize = $at_once;

            fn start<'a>(
                progress: &'a Progress,
                setup: &'a Setup,
                keep: bool,
            ) -> LocalBoxFuture<'a, anyhow::Result<Self::Stage>> {
                <$stage>::start(progress, setup, keep).boxed_local()
            }

            fn stop(stage: Self::Stage) -> LocalBoxFuture<'static, anyhow::Result<()>> {
                stage.stop().boxed_local()
            }

            fn run_on(stage: Option<Arc<Self::Stage>>) {
                <$world>::run_on(stage);
            }

            fn entitle(&mut self, title: &str) {
                <$world>::entitle(self, title);
            }

            fn end<'a>(
                &'a mut self,
                feature: &'a str,
                failed: bool,
            ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
                <$world>::end(self, feature, failed).boxed_local()
            }
        }
    };
}

// All scenarios of a folder run on one thread.
played!(watching::World, watching::Stage, 4);

async fn features<W: Played>(
    folder: &str,
    options: Options,
    turn: Turn,
) -> anyhow::Result<Option<bool>> {
    let file = workspace::state().join(format!("junit-{folder}.xml"));
    // A name or a tag is looked for in every folder and need not be in each.
    let filtered = options.re_filter.is_some() || options.tags_filter.is_some();
    let junit = std::fs::File::create(&file).with_context(|| file.display().to_string())?;
    let writer = W::cucumber::<PathBuf>()
        .max_concurrent_scenarios(W::AT_ONCE)
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
            writer::Basic::new(turn, Coloring::Auto, 0)
                .summarized()
                .tee::<W, _>(writer::JUnit::for_tee(junit, 0).normalized()),
        )
        .fail_on_skipped()
        .with_cli(options)
        .run(path(folder))
        .await;
    let ran = writer.passed_steps() > 0 || writer.execution_has_failed();
    anyhow::ensure!(filtered || ran, "features/{folder}: no scenario was run");
    Ok(ran.then(|| !writer.execution_has_failed()))
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
        let named = FOLDERS.iter().any(|known| glob.contains(known));
        anyhow::ensure!(
            named,
            "--input {glob}: it has to name a folder of features/, one of {FOLDERS:?}"
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

const WATCHING: &str = "watching";
const FOLDERS: [&str; 1] = [WATCHING];
/// 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;
