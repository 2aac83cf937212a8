//! Repository checks that no compiler and no released tool does. See docs/architecture.md, "Invariants".
//!
//! They need neither cluster nor network: they read the checkout and ask `cargo` about it.
#![expect(
    clippy::unwrap_used,
    reason = "a test target of its own: what cannot be read fails the test"
)]

#[path = "tidy/imports.rs"]
mod imports;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// Files of the checkout (tracked, and new ones that are not ignored) with this ending.
pub(crate) fn files(ending: &str) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success(), "git ls-files failed");
    let files: Vec<PathBuf> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter(|line| line.ends_with(ending))
        .map(|line| root().join(line))
        .filter(|path| path.exists())
        .collect();
    assert!(!files.is_empty(), "no {ending} file in the checkout");
    files
}

/// A path relative to the repository's root.
pub(crate) fn shown(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.display().to_string()
}

/// The packages of a workspace.
pub(crate) fn metadata(manifest: &str) -> Vec<Value> {
    let arguments = "metadata --format-version 1 --no-deps --offline --manifest-path";
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    arguments.push(manifest);
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Standard output of cargo.
pub(crate) fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

const SCENARIO: &[&str] = &["Scenario:", "Scenario Outline:", "Example:"];
const STEP: &[&str] = &["Given ", "When ", "Then ", "And ", "But "];
const LINES: usize = 70;
const SCENARIOS: usize = 8;
const STEPS: usize = 7;
const TAGS: &str = "@cluster @contract @node @own-cluster @sample @serial @slow @smoke";

#[test]
fn features_are_short_described_and_have_known_tags() {
    for file in files(".feature") {
        let (text, shown) = (std::fs::read_to_string(&file).unwrap(), shown(&file));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(lines.len() <= LINES, "{shown} is longer than {LINES} lines");
        let scenarios = lines.iter().filter(|it| starts(it, SCENARIO)).count();
        assert!(
            (1..=SCENARIOS).contains(&scenarios),
            "{shown}: {scenarios} scenarios"
        );
        let mut after_title = lines
            .iter()
            .skip_while(|it| !it.starts_with("Feature:"))
            .skip(1);
        let is_described = after_title.next().is_some_and(|it| !it.is_empty());
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
    // Files that are reached from the targets, and whether their modules lie beside them, as those of a crate's root do.
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
        // A file may be a target and a module at once.
        if !file.exists() || !visited.insert((file.clone(), is_root)) {
            continue;
        }
        let folder = file.parent().unwrap().to_owned();
        let modules = if is_root {
            folder.clone()
        } else {
            file.with_extension("")
        };
        for line in std::fs::read_to_string(&file)
            .unwrap()
            .lines()
            .map(str::trim)
        {
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
        assert!(
            compiled.contains(&file),
            "{shown} is reached from no target"
        );
    }
}

/// The module of a line such as `pub(crate) mod name;`.
fn declared_module(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("mod ")?;
    let visibility = before.trim();
    let name = rest.strip_suffix(';')?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

#[test]
fn file_names_say_what_is_in_the_file() {
    for file in files(".rs") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(
            !matches!(name, "utils" | "util" | "common" | "helpers" | "misc"),
            "{}",
            shown(&file)
        );
    }
}

/// Metaphors that a Kubernetes engineer has to learn first, without the endings of plural and verb forms.
const RETIRED: &[&str] = &[
    "act", "crowd", "dialogue", "door", "guest", "house", "knock", "manieth", "play", "resident",
    "room", "stage", "stories", "story", "trouble", "twin",
];

#[test]
fn retired_words_are_not_used() {
    let mut found = Vec::new();
    for file in files(".rs").into_iter().chain(files(".feature")) {
        let shown = shown(&file);
        let is_checked = shown.starts_with("harness/") || shown.starts_with("features/");
        if !is_checked || shown == "harness/cli/tidy.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = retired_word(line) {
                found.push(format!("{shown}:{}: {word}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "retired words:\n{}", found.join("\n"));
}

/// The first retired word of a line, also as a part of an identifier.
fn retired_word(line: &str) -> Option<String> {
    words(line).into_iter().find(|word| {
        // The kernel calls a process's memory resident.
        let is_memory = word == "resident" && (line.contains("KiB") || line.contains("memory"));
        RETIRED.iter().any(|retired| is_form_of(word, retired)) && !is_memory
    })
}

/// The words of a line in lower case; `StageError` and `stage_error` are two words each.
fn words(line: &str) -> Vec<String> {
    let mut separated = String::new();
    for letter in line.chars() {
        if letter.is_uppercase() && separated.ends_with(char::is_lowercase) {
            separated.push(' ');
        }
        separated.push(if letter.is_alphabetic() { letter } else { ' ' });
    }
    separated
        .split_whitespace()
        .map(str::to_lowercase)
        .collect()
}

fn is_form_of(word: &str, retired: &str) -> bool {
    let ending = word.strip_prefix(retired);
    ending.is_some_and(|ending| matches!(ending, "" | "s" | "ed" | "er" | "ing"))
}

#[test]
fn retired_words_are_found_in_text_and_identifiers() {
    let found = "a room. let stages = 1; struct StageError; fn knock_twice() Rooms; it played";
    let retired: Vec<_> = found.split(' ').filter_map(retired_word).collect();
    assert_eq!(
        retired,
        ["room", "stages", "stage", "knock", "rooms", "played"]
    );
    let others = "action activate display contract backdoors resident KiB, staging";
    assert_eq!(retired_word(others), None);
}
