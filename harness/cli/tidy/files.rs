//! Budgets, reachability, and words that may stand in one place only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::checkout::{cargo, files, shown};

/// Non-test lines of a file.
const BUDGET: usize = 400;
const MAIN_BUDGET: usize = 25;
const STEPS_BUDGET: usize = 200;

fn is_test(path: &Path) -> bool {
    let shown = shown(path);
    shown.ends_with("tests.rs") || shown.contains("/tests/") || shown.contains("/tidy")
}

fn lines_without_tests(text: &str) -> usize {
    text.split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
        .lines()
        .count()
}

#[test]
fn files_fit_a_glance() {
    for file in files(".rs").iter().filter(|file| !is_test(file)) {
        let lines = lines_without_tests(&std::fs::read_to_string(file).unwrap());
        let shown = shown(file);
        let budget = match () {
            () if shown.ends_with("main.rs") && shown.starts_with("src/") => MAIN_BUDGET,
            () if shown.starts_with("harness/e2e/steps/") => STEPS_BUDGET,
            () => BUDGET,
        };
        assert!(
            lines <= budget,
            "{shown} has {lines} lines, {budget} are allowed"
        );
    }
}

#[test]
fn every_rust_file_is_compiled() {
    let mut reached = BTreeSet::new();
    for workspace in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let metadata: serde_json::Value = serde_json::from_str(&cargo(&[
            "metadata",
            "--manifest-path",
            workspace,
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ]))
        .unwrap();
        for package in metadata["packages"].as_array().unwrap() {
            for target in package["targets"].as_array().unwrap() {
                let root = Path::new(target["src_path"].as_str().unwrap());
                follow(root, true, &mut reached);
            }
        }
    }
    for file in files(".rs") {
        assert!(
            reached.contains(&file.canonicalize().unwrap()),
            "{} is declared by no module",
            shown(&file)
        );
    }
}

fn follow(file: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    // `#[path = "…"]` may lead through other folders.
    let Ok(file) = &file.canonicalize() else {
        return;
    };
    let text = std::fs::read_to_string(file).unwrap();
    reached.insert(file.to_owned());
    let folder = file.parent().unwrap();
    let stem = file.file_stem().unwrap().to_str().unwrap();
    let inner = if is_root || stem == "mod" {
        folder.to_owned()
    } else {
        folder.join(stem)
    };
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(written) = line
            .strip_prefix("#[path = \"")
            .and_then(|it| it.strip_suffix("\"]"))
        {
            path = Some(folder.join(written));
        } else if let Some(name) = declared_module(line) {
            // What is named by a path has its own modules beside it, as a root has.
            match path.take() {
                Some(named) => follow(&named, true, reached),
                None => follow(&inner.join(format!("{name}.rs")), false, reached),
            }
        }
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
fn the_harness_waits_in_one_place_only() {
    for file in files(".rs") {
        let shown = shown(&file);
        if shown.starts_with("harness/") && shown != "harness/testkit/until.rs" && !is_test(&file) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(
                !text.contains("time::sleep(") && !text.contains("thread::sleep("),
                "{shown} sleeps"
            );
        }
    }
}

#[test]
fn no_room_is_called_after_nothing() {
    for file in files(".rs") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(
            !matches!(name, "utils" | "util" | "common" | "helpers" | "misc"),
            "{}",
            shown(&file)
        );
    }
}
