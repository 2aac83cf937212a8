//! Every Rust file is compiled, and file names say what is in them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{cargo, files, shown};

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
