//! The checkout as the rules see it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// Files of the checkout (tracked, and new ones that are not ignored) with one of these endings.
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

/// A path for people.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Standard output of cargo.
pub(crate) fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
