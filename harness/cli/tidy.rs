//! Repository checks that no compiler and no released tool does. See docs/architecture.md, "Invariants".
//!
//! They need neither a cluster nor the network: they read the checkout and the output of `cargo`.
#![expect(
    clippy::unwrap_used,
    reason = "a test target of its own: what cannot be read fails the test"
)]

#[path = "tidy/imports.rs"]
mod imports;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use clusters::workspace::root;
pub(crate) use e2e::landscape::shown;
use regex::Regex;
use serde_json::Value;

/// Returns the files of the checkout (tracked files, and new ones that are not ignored) with this suffix.
pub(crate) fn files(ending: &str) -> Vec<PathBuf> {
    let listed = output(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    );
    let listed = listed.lines().filter(|line| line.ends_with(ending));
    let files = listed.map(|line| root().join(line));
    let files: Vec<PathBuf> = files.filter(|path| path.exists()).collect();
    assert!(!files.is_empty(), "no {ending} file in the checkout");
    files
}

/// Returns the packages of a workspace.
pub(crate) fn metadata(manifest: &str) -> Vec<Value> {
    let arguments = "metadata --format-version=1 --no-deps --offline --manifest-path";
    let arguments: Vec<&str> = arguments.split(' ').chain([manifest]).collect();
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

pub(crate) fn cargo(arguments: &[&str]) -> String {
    output(env!("CARGO"), arguments)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(root()).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

const SCENARIO: &[&str] = &["Scenario:", "Scenario Outline:", "Example:"];
const STEP: &[&str] = &["Given ", "When ", "Then ", "And ", "But "];
const STEPS: usize = 7;
const TAGS: &str = "@cluster @long @node @own-cluster @policy @sample @serial @slow @smoke";

#[test]
fn features_are_described_and_have_short_scenarios_and_known_tags() {
    for file in files(".feature") {
        let (text, shown) = (std::fs::read_to_string(&file).unwrap(), shown(&file));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut from_title = lines.iter().skip_while(|it| !it.starts_with("Feature:"));
        let is_described = from_title.nth(1).is_some_and(|it| !it.is_empty());
        assert!(is_described, "{shown} has no description under its title");
        let mut steps = 0;
        for line in lines {
            if starts(line, SCENARIO) || line.starts_with("Background:") {
                steps = 0;
            }
            steps += usize::from(starts(line, STEP));
            assert!(
                steps <= STEPS,
                "{shown}: more than {STEPS} steps before {line:?}"
            );
            if line.starts_with('@') {
                let mut tags = line.split_whitespace();
                let unknown = tags.find(|tag| TAGS.split(' ').all(|known| known != *tag));
                assert_eq!(unknown, None, "{shown}");
            }
        }
    }
}

fn starts(line: &str, words: &[&str]) -> bool {
    words.iter().any(|word| line.starts_with(word))
}

#[test]
fn every_rust_file_is_compiled() {
    // Files that are reachable from the targets, and whether their modules are in the same folder, as for the root of a crate.
    let mut reached: Vec<(PathBuf, bool)> = Vec::new();
    for workspace in ["Cargo.toml", "fuzz/Cargo.toml"] {
        for package in metadata(workspace) {
            let targets = package["targets"].as_array().unwrap().iter();
            let roots = targets.map(|it| Path::new(it["src_path"].as_str().unwrap()));
            reached.extend(roots.map(|it| (it.canonicalize().unwrap(), true)));
        }
    }
    let mut visited = BTreeSet::new();
    while let Some((file, is_root)) = reached.pop() {
        // A file may be both a target and a module.
        if !file.exists() || !visited.insert((file.clone(), is_root)) {
            continue;
        }
        let folder = file.parent().unwrap().to_owned();
        let below = file.with_extension("");
        let modules = if is_root { &folder } else { &below };
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().map(str::trim) {
            if let Some(path) = line.strip_prefix("#[path = \"") {
                let path = folder.join(path.trim_end_matches("\"]"));
                reached.extend(path.canonicalize().map(|path| (path, true)));
            } else if let Some(name) = declared_module(line) {
                reached.push((modules.join(format!("{name}.rs")), false));
            }
        }
    }
    let compiled: BTreeSet<PathBuf> = visited.into_iter().map(|(file, _)| file).collect();
    for file in files(".rs") {
        let shown = shown(&file);
        let is_compiled = compiled.contains(&file);
        assert!(is_compiled, "{shown} is reached from no target");
    }
}

/// Returns the module of a line such as `pub(crate) mod name;`.
fn declared_module(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("mod ")?;
    let visibility = before.trim();
    let name = rest.strip_suffix(';')?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

/// Metaphors, and pronouns instead of the name of a program or person, without the suffixes of plurals and verb forms.
const RETIRED: &str = "act|anybody|crowd|dialogue|door|everybody|guest|house|knock|manieth|nobody|play|room|somebody|stage|stories|story|stranger|trouble|twin|whoever";

/// Files and folders that must not contain these words.
const CHECKED: &str = "CONTRIBUTING.md README.md docs features fuzz harness scenarios src";
/// Files that list these words and are not checked.
const LISTS: [&str; 2] = ["docs/vocabulary.md", "harness/cli/tidy.rs"];

#[test]
fn retired_words_are_not_used() {
    let mut found = Vec::new();
    let code_span = Regex::new("`[^`\n]*`").unwrap();
    for file in [".rs", ".feature", ".md"].into_iter().flat_map(files) {
        let shown = shown(&file);
        let is_checked = CHECKED
            .split(' ')
            .any(|it| Path::new(&shown).starts_with(it));
        if is_checked && !LISTS.contains(&&*shown) {
            let mut text = std::fs::read_to_string(&file).unwrap();
            if file.extension().is_some_and(|it| it == "md") {
                text = code_span.replace_all(&text, "").into_owned();
            }
            let words = retired_words(&text);
            found.extend(words.iter().map(|word| format!("{shown}:{word}")));
        }
    }
    assert!(found.is_empty(), "retired words:\n{}", found.join("\n"));
}

/// Returns the line and the word of every retired word, including parts of identifiers such as `StageError`.
fn retired_words(text: &str) -> Vec<String> {
    let humps = Regex::new("([a-z])([A-Z])").unwrap();
    let text = humps.replace_all(text, "$1 $2").to_lowercase();
    let retired = &format!("(?:^|[^a-z])((?:{RETIRED})(?:s|ed|er|ing)?)(?:[^a-z]|$)");
    let retired = Regex::new(retired).unwrap();
    let found = |(number, line): (usize, &str)| -> Vec<String> {
        let words = retired
            .captures_iter(line)
            .map(|it| format!("{}: {}", number + 1, &it[1]));
        words.collect()
    };
    text.lines().enumerate().flat_map(found).collect()
}

#[test]
fn retired_words_are_found_in_text_and_identifiers() {
    let retired = "a room. let stages = 1;\nstruct StageError; fn knock_twice() Rooms; it played";
    let found = "1: room, 1: stages, 2: stage, 2: knock, 2: rooms, 2: played";
    assert_eq!(retired_words(retired).join(", "), found);
    let others = "action activate display contract backdoors, staging";
    assert_eq!(retired_words(others), Vec::<String>::new());
}
