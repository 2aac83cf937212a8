//! `cargo harness self-check`: seeds defects into the product one after the other, and checks that a test fails for each. Each check
//! must first pass without a defect, because a check that fails for another reason would catch every defect.
//!
//! A defect is an edit of one file (`harness/self_check/defects.yaml`) and the cheapest check that finds it: a filter of one
//! crate's tests, or scenarios of a suite on clusters. The edit is made in this checkout, which must have no other changes, and
//! is reverted afterwards. The next run reverts an edit that an interrupted run left. Results are stored in
//! `target/self-check`, so that an interrupted run continues where it ended, if the commit is the same.
#![expect(clippy::print_stdout, reason = "output of a command line")]

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::timeout;

use clusters::workspace::{git, root};

/// Time limit of a check. The longest check compiles a suite and starts its clusters.
const TIME_LIMIT: Duration = Duration::from_mins(20);

/// Largest number of tests that the table names for each defect.
const NAMED_TESTS: usize = 2;

/// Selection of defects.
#[derive(Debug, clap::Args)]
pub(crate) struct SelfCheckArgs {
    /// Regular expression for names of defects.
    #[arg(short = 'n', long)]
    name: Option<regex::Regex>,
    /// Skip the defects that need clusters.
    #[arg(long)]
    without_clusters: bool,
    /// Ignore the results of earlier runs.
    #[arg(long)]
    again: bool,
}

/// A seeded defect.
#[derive(Deserialize)]
struct Defect {
    name: String,
    file: PathBuf,
    replace: String,
    with: String,
    /// Arguments of cargo.
    check: Vec<String>,
}

/// Result for a defect.
#[derive(Serialize, Deserialize)]
struct Outcome {
    caught: bool,
    tests: Vec<String>,
    seconds: u64,
}

/// Results on one commit.
#[derive(Default, Serialize, Deserialize)]
struct Results {
    commit: String,
    /// Checks that passed without a defect.
    passed: BTreeSet<Vec<String>>,
    /// Results for defects, by name.
    defects: BTreeMap<String, Outcome>,
}

/// Whether a check passed, and the names of tests and scenarios that failed.
type CheckResult = (bool, Vec<String>);

/// Returns the defects of the file.
fn defects() -> anyhow::Result<Vec<Defect>> {
    let text = include_str!("../self_check/defects.yaml");
    Ok(serde_saphyr::from_str(text)?)
}

impl Defect {
    /// Returns the content of the file with the defect, and without.
    fn edited(&self) -> anyhow::Result<(String, String)> {
        let before = fs::read_to_string(root().join(&self.file))?;
        let times = before.matches(&self.replace).count();
        let is_edit = self.with != self.replace && !self.replace.is_empty();
        ensure!(
            times == 1 && is_edit && !self.check.is_empty(),
            "defect {:?}: {} has its text {times} times, expected once",
            self.name,
            self.file.display()
        );
        Ok((before.replacen(&self.replace, &self.with, 1), before))
    }

    fn needs_clusters(&self) -> bool {
        let of_clusters = ["e2e", "e2e/clusters"];
        self.check.iter().any(|it| of_clusters.contains(&&**it))
    }

    /// Runs the check, with the defect or without it.
    async fn run(&self, is_seeded: bool) -> anyhow::Result<CheckResult> {
        if !is_seeded {
            return run_check(&self.check).await;
        }
        let (edited, before) = self.edited()?;
        let original = backup().join(&self.file);
        fs::create_dir_all(original.parent().context("a file has a folder")?)?;
        fs::write(&original, before)?;
        fs::write(root().join(&self.file), edited)?;
        let regressions = root().join("src/proptest-regressions");
        let had_regressions = regressions.exists();
        let result = run_check(&self.check).await;
        restore()?;
        // Property tests store the failures that they find.
        if !had_regressions && regressions.exists() {
            fs::remove_dir_all(regressions)?;
        }
        result.with_context(|| format!("defect {:?}", self.name))
    }
}

/// Runs cargo with arguments.
async fn run_check(arguments: &[String]) -> anyhow::Result<CheckResult> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).current_dir(root());
    cargo.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TIME_LIMIT, cargo.output()).await;
    let output = output.with_context(|| format!("no end within {TIME_LIMIT:?}"))??;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let log = root().join("target/self-check/last.log");
    fs::create_dir_all(log.parent().context("a file has a folder")?)?;
    fs::write(log, &*text)?;
    let ran = ["test result: ", "scenario (", "scenarios ("];
    let has_run = ran.iter().any(|it| text.contains(it));
    ensure!(has_run, "the check did not run:\n{text}");
    Ok((output.status.success(), failed_tests(&text)))
}

/// Runs the checks of defects without a result, and saves each result. A check runs without a defect first, unless it has passed.
async fn check_all(
    defects: impl Iterator<Item = &Defect>,
    results: &mut Results,
    run: impl AsyncFn(&Defect, bool) -> anyhow::Result<CheckResult>,
    save: impl Fn(&Results) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for defect in defects {
        let Defect { name, check, .. } = defect;
        if results.defects.contains_key(name) {
            continue;
        }
        if !results.passed.contains(check) {
            let shown = check.join(" ");
            println!("without a defect: {shown}");
            let (passed, failed) = run(defect, false).await?;
            ensure!(passed, "{shown}: fails without a defect: {failed:?}");
            results.passed.insert(check.clone());
            save(results)?;
        }
        println!("seeding: {name}");
        let begin = Instant::now();
        let (passed, tests) = run(defect, true).await?;
        let outcome = Outcome {
            caught: !passed && !tests.is_empty(),
            tests,
            seconds: begin.elapsed().as_secs(),
        };
        results.defects.insert(name.clone(), outcome);
        save(results)?;
    }
    Ok(())
}

/// Returns the names of tests and scenarios that failed.
fn failed_tests(output: &str) -> Vec<String> {
    let mut failed = Vec::new();
    let mut scenario = "";
    for line in output.lines().map(str::trim) {
        let title = ["Scenario: ", "Scenario Outline: "];
        let title = title.iter().find_map(|it| line.strip_prefix(it));
        if let Some(title) = title {
            scenario = title;
        } else if line.starts_with('✘') && !scenario.is_empty() {
            failed.push(std::mem::take(&mut scenario).to_owned());
        } else if let Some(test) = line
            .strip_prefix("test ")
            .and_then(|it| it.strip_suffix(" ... FAILED"))
        {
            failed.push(test.to_owned());
        } else if line.contains(SECRETS) {
            failed.push("the search of a stopped cluster for content of Secrets".to_owned());
        }
    }
    failed
}

/// Error of a suite if a stopped cluster shows data of a Secret. It does not belong to one scenario.
const SECRETS: &str = "content of a Secret is shown in";

/// Returns the folder with the originals of files that have a defect.
fn backup() -> PathBuf {
    root().join("target/self-check/original")
}

/// Reverts the edits of this run, or of an interrupted run.
fn restore() -> anyhow::Result<()> {
    let mut folders = vec![backup()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = root().join(path.strip_prefix(backup())?);
            // Cargo compares modification times, so the file is written and not moved.
            fs::write(file, fs::read(&path)?)?;
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Returns the stored results, if they are of this commit.
fn load(path: &Path, commit: &str) -> Results {
    let text = fs::read_to_string(path).unwrap_or_default();
    let results = serde_json::from_str(&text).ok();
    let of_commit = results.filter(|it: &Results| it.commit == commit);
    of_commit.unwrap_or_default()
}

/// Seeds the defects, and prints which test found which defect. The exit code is 1 if a defect was not found.
pub(crate) async fn run(arguments: SelfCheckArgs) -> anyhow::Result<ExitCode> {
    restore()?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]).await?;
    ensure!(
        changes.is_empty(),
        "the checkout has changes; commit them first:\n{changes}"
    );
    let commit = git(&["rev-parse", "--short", "HEAD"]).await?;
    let path = root().join("target/self-check/results.json");
    let mut results = if arguments.again {
        Results::default()
    } else {
        load(&path, &commit)
    };
    results.commit = commit;
    let defects = defects()?;
    let selected = defects.iter().filter(|defect| {
        let by_name = arguments.name.as_ref();
        let is_selected = by_name.is_none_or(|it| it.is_match(&defect.name));
        let is_skipped = arguments.without_clusters && defect.needs_clusters();
        is_selected && !is_skipped
    });
    let run = async |defect: &Defect, is_seeded| defect.run(is_seeded).await;
    let save = |results: &Results| Ok(fs::write(&path, serde_json::to_string(results)?)?);
    check_all(selected, &mut results, run, save).await?;
    println!("{}", table(&defects, &results));
    Ok(ExitCode::from(exit_code(&defects, &results)))
}

/// Returns 1 if a defect was not caught, in this run or in an earlier one on the same commit, and 0 otherwise.
fn exit_code(defects: &[Defect], results: &Results) -> u8 {
    let mut found = defects
        .iter()
        .filter_map(|it| results.defects.get(&it.name));
    u8::from(!found.all(|it| it.caught))
}

fn table(defects: &[Defect], results: &Results) -> String {
    let mut text = format!(
        "`cargo harness self-check` on {}, commit {}.\n\n| defect | check | caught by | s |\n|---|---|---|---|\n",
        jiff::Zoned::now().date(),
        results.commit
    );
    for Defect { name, check, .. } in defects {
        let Some(result) = results.defects.get(name) else {
            continue;
        };
        let named = result.tests.len().min(NAMED_TESTS);
        let (mut shown, more) = (result.tests[..named].join("; "), result.tests.len() - named);
        if !result.caught {
            "**not caught**".clone_into(&mut shown);
        } else if more > 0 {
            let _ = write!(shown, "; and {more} more");
        }
        let (check, seconds) = (check.join(" "), result.seconds);
        let _ = writeln!(text, "| {name} | `{check}` | {shown} | {seconds} |");
    }
    text
}
