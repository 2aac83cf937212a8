//! `cargo harness self-check`: seeds defects into the product one after the other, and checks that a test fails for each.
//!
//! A defect is an edit of one file (`harness/self_check/defects.yaml`) and the cheapest check that finds it: a filter of one
//! crate's tests, or scenarios of a suite on clusters. The edit is made in this checkout, which must have no other changes, and
//! is reverted afterwards. The next run reverts an edit that an interrupted run left. Results are stored in
//! `target/self-check`, so that an interrupted run continues where it ended, if the commit is the same.
#![expect(clippy::print_stdout, reason = "output of a command line")]

use std::collections::BTreeMap;
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

/// Results for defects on one commit, by name.
#[derive(Default, Serialize, Deserialize)]
struct Results {
    commit: String,
    defects: BTreeMap<String, Outcome>,
}

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
        self.check.iter().any(|it| it == "e2e")
    }

    async fn seed(&self) -> anyhow::Result<Outcome> {
        let (edited, before) = self.edited()?;
        let original = backup().join(&self.file);
        fs::create_dir_all(original.parent().context("a file has a folder")?)?;
        fs::write(&original, before)?;
        fs::write(root().join(&self.file), edited)?;
        let begin = Instant::now();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(&self.check).current_dir(root());
        cargo.stdin(Stdio::null()).kill_on_drop(true);
        let regressions = root().join("src/proptest-regressions");
        let had_regressions = regressions.exists();
        let output = timeout(TIME_LIMIT, cargo.output()).await;
        restore()?;
        // Property tests store the failures that they find.
        if !had_regressions && regressions.exists() {
            fs::remove_dir_all(regressions)?;
        }
        let output = output.with_context(|| format!("no end within {TIME_LIMIT:?}"))??;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        fs::write(root().join("target/self-check/last.log"), &*text)?;
        let tests = failed_tests(&text);
        let ran = ["test result: ", "scenario (", "scenarios ("];
        let (ran, name) = (ran.iter().any(|it| text.contains(it)), &self.name);
        ensure!(ran, "defect {name:?}: its check did not run:\n{text}");
        Ok(Outcome {
            caught: !output.status.success() && !tests.is_empty(),
            tests,
            seconds: begin.elapsed().as_secs(),
        })
    }
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
    for defect in &defects {
        let by_name = arguments.name.as_ref();
        let is_selected = by_name.is_none_or(|it| it.is_match(&defect.name));
        let is_skipped = arguments.without_clusters && defect.needs_clusters();
        if !is_selected || is_skipped || results.defects.contains_key(&defect.name) {
            continue;
        }
        println!("seeding: {}", defect.name);
        let outcome = defect.seed().await?;
        results.defects.insert(defect.name.clone(), outcome);
        fs::write(&path, serde_json::to_string(&results)?)?;
    }
    println!("{}", table(&defects, &results));
    let found = defects
        .iter()
        .filter_map(|it| results.defects.get(&it.name));
    let is_all = found.into_iter().all(|it| it.caught);
    Ok(ExitCode::from(u8::from(!is_all)))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_defect_can_be_seeded() {
        let defects = defects().unwrap();
        let names: BTreeSet<&str> = defects.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names.len(), defects.len(), "names are unique");
        for defect in &defects {
            defect.edited().unwrap();
        }
    }

    #[test]
    fn failures_of_tests_and_scenarios_are_named() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\n  Scenario: One\n   ✔  Given x\n  Scenario: Two\n   ✘  Then y\n✘  Then y";
        assert_eq!(failed_tests(output), ["a::c", "Two"]);
    }
}
