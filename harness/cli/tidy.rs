//! Repository checks that no compiler and no released tool does. See docs/architecture.md, "Invariants".
//!
//! They need neither cluster nor network: they read the checkout and ask `cargo` about it.
#![expect(
    clippy::unwrap_used,
    reason = "a test target of its own: what cannot be read fails the test"
)]

#[path = "tidy/features.rs"]
mod features;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/words.rs"]
mod words;

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
