//! Runs the scenarios of a suite with cucumber and its own command line (`-n`, `-t`, `-i`, `-c`), plus `--keep`.
//!
//! The features are read and filtered before an environment is started. So a filter without a match is an error, and an
//! environment can start only the parts that the selected scenarios need. Steps that are skipped or undefined fail. Nothing is
//! retried.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, ensure};
use clap::builder::Resettable;
use clap::{CommandFactory as _, FromArgMatches as _};
use cucumber::cli::{Compose, Opts};
use cucumber::event::ScenarioFinished;
use cucumber::gherkin::{Feature, Scenario as Example, StepType};
use cucumber::tag::Ext as _;
use cucumber::writer::{self, Coloring, Stats as _};
use cucumber::{Parser as _, World as _, WriterExt as _, parser, runner};
use futures::{FutureExt as _, TryStreamExt as _};

use crate::scenario::{Environment, Scenario};
#[cfg(feature = "clusters")]
use clusters::setup::Setup;

/// Scenarios that run in environments of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Name of the suite, of its JUnit file and of its folder of diagnostics.
    pub name: &'static str,
    /// Folder below `features`.
    pub folder: &'static str,
    /// Number of scenarios that run in parallel.
    pub at_once: usize,
    /// Whether scenarios with these tags belong to the suite.
    pub selects: fn(&BTreeSet<String>) -> bool,
}

impl Suite {
    /// Returns a suite of all scenarios of a folder.
    pub const fn new(folder: &'static str, at_once: usize) -> Self {
        Self {
            name: folder,
            folder,
            at_once,
            selects: |_| true,
        }
    }
}

/// Options in addition to those of cucumber.
#[derive(Debug, Default, Clone, clap::Args)]
pub struct Own {
    /// Leave clusters and registry running; the next run uses them.
    #[arg(long)]
    pub keep: bool,
}

/// The command line of a suite.
pub type Options = Opts<
    parser::basic::Cli,
    runner::basic::Cli,
    Compose<writer::basic::Cli, writer::junit::Cli>,
    Own,
>;

/// The scenarios of a suite after the filters of the command line.
#[derive(Debug, Default)]
pub struct Selection {
    features: Vec<Feature>,
    /// Number of scenarios; each example of an outline is one.
    pub scenarios: usize,
}

/// Provider of an environment for every scenario.
pub trait Environments: 'static {
    /// Whether all scenarios use the same environment. Then none runs after a failed clean-up, which could change its result.
    const ARE_SHARED: bool = true;

    /// Returns the environment for the next scenario, whose `Given` steps describe the required state.
    fn next(&self, given: Vec<String>) -> impl Future<Output = Result<Arc<dyn Environment>>>;

    /// Removes all started objects that are not kept, after the last scenario.
    fn stop(self) -> impl Future<Output = Result<()>>;
}

/// Reads a command line. The tag expression of cucumber conflicts with the expression of titles; here a scenario must match both.
pub fn parse<T: Into<OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<Options, clap::Error> {
    let command = Options::command();
    let command = command.mut_arg("tags", |it| it.conflicts_with(Resettable::Reset));
    Options::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// Returns the scenarios of a suite that the command line selects.
///
/// Scenarios with the tag `long` take minutes. They are selected if the tag expression names the tag, or if they are all that
/// the expression of titles matches, whatever their tags.
pub async fn select(suite: &Suite, options: &Options) -> Result<Selection> {
    let folder = root().join("features").join(suite.folder);
    let parsed = parser::Basic::new().parse(folder, options.parser.clone());
    let (by_name, by_tags) = (&options.re_filter, &options.tags_filter);
    let mut features: Vec<Feature> = parsed.try_collect().await?;
    for path in features.iter_mut().filter_map(|it| it.path.as_mut()) {
        // Cucumber prints the path of a failure, and removes the slash in front of an absolute one.
        *path = path.strip_prefix(root()).unwrap_or(&*path).to_owned();
    }
    retain(&mut features, |tags, example| {
        (suite.selects)(tags) && by_name.as_ref().is_none_or(|it| it.is_match(&example.name))
    });
    let names_long = |it: &_| format!("{it:?}").contains("\"long\"");
    if !by_tags.as_ref().is_some_and(names_long) {
        let mut shorter = features.clone();
        retain(&mut shorter, |tags, _| !tags.contains("long"));
        if by_name.is_none() || !shorter.is_empty() {
            features = shorter;
        }
    }
    retain(&mut features, |tags, _| {
        by_tags.as_ref().is_none_or(|it| it.eval(tags))
    });
    let selection = Selection {
        scenarios: features.iter().map(|it| it.scenarios.len()).sum(),
        features,
    };
    let (name, is_any) = (suite.name, selection.scenarios > 0);
    ensure!(is_any, "suite {name}: no scenario matches the command line");
    Ok(selection)
}

/// Keeps the scenarios for which `is_wanted` holds, which gets their tags and those of the feature, and features that have such.
fn retain(features: &mut Vec<Feature>, is_wanted: impl Fn(&BTreeSet<String>, &Example) -> bool) {
    features.retain_mut(|feature| {
        let of_feature = &feature.tags;
        feature.scenarios.retain(|example| {
            let tags = of_feature.iter().chain(&example.tags).cloned().collect();
            is_wanted(&tags, example)
        });
        !feature.scenarios.is_empty()
    });
}

/// Runs the selection and returns whether all scenarios passed. Results are written to `out` and to a JUnit file.
pub async fn run<E: Environments>(
    suite: &Suite,
    options: Options,
    selection: Selection,
    environments: Rc<E>,
    out: impl Write + 'static,
) -> Result<bool> {
    let file = state().join(format!("junit-{}.xml", suite.name));
    std::fs::create_dir_all(state())?;
    let junit = std::fs::File::create(&file).with_context(|| file.display().to_string())?;
    let (out, junit) = (FailuresOfSteps(out), FailuresOfSteps(junit));
    let name = suite.name;
    let not_clean = Arc::new(OnceLock::<String>::new());
    let ended = Arc::clone(&not_clean);
    let writer = Scenario::cucumber::<PathBuf>()
        .with_parser(Parsed(selection.features))
        .max_concurrent_scenarios(suite.at_once)
        .before(move |feature, _, example, scenario| {
            // Cucumber sets an empty panic hook at its start.
            std::panic::set_hook(Box::new(report));
            let (environments, ended) = (Rc::clone(&environments), Arc::clone(&ended));
            let background = feature.background.iter().flat_map(|it| &it.steps);
            let given = background.chain(&example.steps);
            let given = given.filter(|step| step.ty == StepType::Given);
            let given = given.map(|step| step.value.clone()).collect();
            async move {
                if let Some(title) = ended.get() {
                    fail(format!("not run: the clean-up of {title:?} failed"));
                }
                match environments.next(given).await {
                    Ok(environment) => scenario.shared = Some(environment),
                    Err(error) => fail(format!("no environment: {error:#}")),
                }
            }
            .boxed_local()
        })
        .after(move |feature, _, example, finished, scenario| {
            let failed = !matches!(finished, ScenarioFinished::StepPassed);
            let not_clean = Arc::clone(&not_clean);
            async move {
                let Some(scenario) = scenario else { return };
                if failed && let Ok(environment) = scenario.environment() {
                    diagnose(&*environment, diagnostics(name, feature, example)).await;
                }
                let is_shared = E::ARE_SHARED && scenario.own.is_none();
                let errors = scenario.end().await;
                if !errors.is_empty() {
                    if is_shared {
                        not_clean.get_or_init(|| example.name.clone());
                    }
                    fail(format!("clean-up: {}", errors.join("\n")));
                }
            }
            .boxed_local()
        })
        .with_writer(
            writer::Basic::new(out, Coloring::Auto, 0)
                .summarized()
                .repeat_failed()
                .tee::<Scenario, _>(writer::JUnit::for_tee(junit, 0).normalized()),
        )
        .fail_on_skipped()
        .with_cli(options)
        .run(PathBuf::new())
        .await;
    Ok(!writer.execution_has_failed())
}

/// Runs a suite on clusters with the command line of the process: the implementation of `fn main` in its cargo target.
///
/// `start` starts the environment that the selected scenarios need. SIGINT and SIGTERM end the run and remove its objects.
#[cfg(feature = "clusters")]
pub async fn main<E: Environments>(
    suite: Suite,
    start: impl AsyncFnOnce(&Setup, &Selection, bool) -> Result<E>,
) -> std::process::ExitCode {
    use std::process::ExitCode;
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    log.with_max_level(tracing::Level::INFO).init();
    // Cargo starts tests in the folder of their package, but a path after `-i` is relative to the workspace.
    let moved = std::env::set_current_dir(root());
    let options = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let whole = async {
        moved?;
        let selection = select(&suite, &options).await?;
        let setup = Setup::load()?;
        clusters::progress::say(&format!("clusters run on {}", setup.provider));
        let environments = Rc::new(start(&setup, &selection, options.custom.keep).await?);
        let ran = Rc::clone(&environments);
        let passed = run(&suite, options, selection, ran, std::io::stdout()).await;
        let environments = Rc::into_inner(environments).context("a scenario still runs")?;
        environments.stop().await?;
        Ok(ExitCode::from(u8::from(!passed?)))
    };
    let done = clusters::run::interruptible(Box::pin(whole)).await;
    done.unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        ExitCode::FAILURE
    })
}

/// Features that were read before.
struct Parsed(Vec<Feature>);

impl cucumber::Parser<PathBuf> for Parsed {
    type Cli = parser::basic::Cli;
    type Output = futures::stream::Iter<std::vec::IntoIter<parser::Result<Feature>>>;

    fn parse(self, _: PathBuf, _: Self::Cli) -> Self::Output {
        futures::stream::iter(self.0.into_iter().map(Ok).collect::<Vec<_>>())
    }
}

/// Removes what cucumber writes in front of the error of each failed step: that the step panicked. A step of this crate returns
/// its error, and cucumber panics with it.
struct FailuresOfSteps<W>(W);

/// What [`FailuresOfSteps`] removes.
const PANICKED: &str = "Step panicked. Captured output: ";

impl<W: Write> Write for FailuresOfSteps<W> {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let plain = String::from_utf8_lossy(text).replace(PANICKED, "");
        self.0.write_all(plain.as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Fails a hook; cucumber reports the payload.
fn fail(text: String) {
    std::panic::resume_unwind(Box::new(text));
}

/// Prints panics of tasks. Cucumber prints only panics of steps.
fn report(panic: &PanicHookInfo<'_>) {
    if tokio::task::try_id().is_some() {
        tracing::error!(%panic, "a task panicked");
    }
}

/// Writes diagnostics of a failure into an emptied folder.
#[cfg(feature = "clusters")]
async fn diagnose(environment: &dyn Environment, folder: PathBuf) {
    let shown = folder.display().to_string();
    match clusters::evidence::Evidence::in_folder(folder) {
        Err(error) => tracing::warn!(%error, folder = shown, "no diagnostics"),
        Ok(evidence) => {
            environment.diagnose(&evidence).await;
            tracing::info!(folder = shown, "diagnostics written");
        }
    }
}

/// In-process suites have no diagnostics.
#[cfg(not(feature = "clusters"))]
async fn diagnose(_: &dyn Environment, _: PathBuf) {}

/// Returns the folder of one example. It contains the line, because examples can have the same title.
fn diagnostics(suite: &str, feature: &Feature, example: &Example) -> PathBuf {
    let file = feature.path.as_deref().and_then(Path::file_stem);
    let file = file.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let letters = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let title: String = example.name.chars().map(letters).take(80).collect();
    let example = format!("{title}-line-{}", example.position.line);
    let folder = state().join("evidence").join(suite);
    folder.join(file).join(example)
}

/// Returns the folder of the root `Cargo.toml`.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Returns the folder of results.
pub fn state() -> PathBuf {
    root().join("target/harness")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Suite = Suite::new("admission", 1);

    async fn selected(arguments: &[&str]) -> Result<Selection> {
        let arguments = ["suite"].iter().chain(arguments);
        select(&ALL, &parse(arguments)?).await
    }

    #[tokio::test]
    async fn long_scenarios_run_only_by_their_tag_or_by_a_title_that_no_other_has() {
        let count = async |arguments: &[&str]| selected(arguments).await.unwrap().scenarios;
        let long = count(&["-t", "@long"]).await;
        assert!(long > 0);
        let serial = count(&["-t", "@serial"]).await;
        assert_eq!(serial, count(&["-t", "@serial and not @long"]).await);
        let all = count(&["-n", "."]).await;
        assert_eq!(all, count(&[]).await);
        assert_eq!(all + long, count(&["-t", "@long or not @long"]).await);
        assert!(count(&["-n", "100 times"]).await > 0);
        let titles = "^Image replace.me/a is rewritten|rolled out 10 times";
        assert_eq!(count(&["-n", titles]).await, 1);
        // The tags exclude the shorter one, which does not start the other one.
        assert!(selected(&["-n", titles, "-t", "@serial"]).await.is_err());
    }

    #[tokio::test]
    async fn title_and_tags_must_both_match() {
        let count = async |arguments: &[&str]| selected(arguments).await.unwrap().scenarios;
        let by_title = count(&["-n", "unchanged"]).await;
        let both = ["", "not "].map(|it| format!("{it}@cluster"));
        let with = count(&["-n", "unchanged", "-t", &both[0]]).await;
        let without = count(&["-n", "unchanged", "-t", &both[1]]).await;
        assert!(with > 0 && without > 0);
        assert_eq!(with + without, by_title);
    }

    #[tokio::test]
    async fn name_or_tag_that_matches_nothing_is_an_error() {
        for arguments in [["-n", "no such title"], ["-t", "@no-such-tag"]] {
            let error = selected(&arguments).await.unwrap_err().to_string();
            assert!(error.contains("no scenario matches"), "{error}");
        }
    }

    #[tokio::test]
    async fn name_selects_examples_by_their_own_title() {
        let one = selected(&["-n", "^Image replace.me/a is rewritten"]).await;
        assert_eq!(one.unwrap().scenarios, 1);
    }

    #[tokio::test]
    async fn paths_of_features_are_relative_to_the_workspace() {
        let all = selected(&[]).await.unwrap().features;
        let is_relative = |it: &&Path| it.starts_with("features/admission");
        let paths = all.iter().filter_map(|it| it.path.as_deref());
        assert_eq!(paths.filter(is_relative).count(), all.len());
    }
}
