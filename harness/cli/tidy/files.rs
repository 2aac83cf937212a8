//! Every Rust file is compiled, and file names say what is in them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{files, metadata, shown};

#[test]
fn every_rust_file_is_compiled() {
    let mut declared = BTreeSet::new();
    for workspace in ["Cargo.toml", "fuzz/Cargo.toml"] {
        for package in metadata(workspace) {
            let targets = package["targets"].as_array().unwrap().iter();
            let roots = targets.map(|it| Path::new(it["src_path"].as_str().unwrap()));
            declared.extend(roots.map(|it| it.canonicalize().unwrap()));
        }
    }
    for file in files(".rs") {
        let text = std::fs::read_to_string(&file).unwrap();
        let folder = file.parent().unwrap();
        for line in text.lines().map(str::trim) {
            if let Some(path) = line.strip_prefix("#[path = \"") {
                declared.extend(folder.join(path.trim_end_matches("\"]")).canonicalize());
            } else if let Some(name) = declared_module(line) {
                // Of a crate's root, and of another file.
                declared.insert(folder.join(format!("{name}.rs")));
                declared.insert(file.with_extension("").join(format!("{name}.rs")));
            }
        }
    }
    for file in files(".rs") {
        assert!(
            declared.contains(&file),
            "{} is declared by no module",
            shown(&file)
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
