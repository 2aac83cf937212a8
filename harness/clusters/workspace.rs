//! Where the workspace is, and where the harness keeps what it makes: under `target/`, so `cargo clean` removes it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// The folder of the root `Cargo.toml`.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// `cargo` in the workspace. What cargo told this process about a package is not true of the packages that it builds, and build
/// scripts watch it.
pub fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let leaked = |name: &str| LEAKED.iter().any(|prefix| name.starts_with(prefix));
        if name.to_str().is_some_and(leaked) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// What git prints in the workspace, without the last line break.
pub async fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    let output = git.args(arguments).current_dir(root()).output().await;
    let output = output.context("git is needed")?;
    ensure!(
        output.status.success(),
        "git {arguments:?}: {}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Cargo's output, and that of the Go builds.
pub fn target() -> PathBuf {
    root().join("target")
}

/// What the harness keeps from run to run: the choices of the set-up, images, logs, evidence.
pub fn state() -> PathBuf {
    target().join("harness")
}

/// Logs of steps and containers.
pub fn logs() -> PathBuf {
    state().join("logs")
}

/// The content of a file, which is made and written if there is none.
pub fn get_or_create(
    file: &Path,
    make: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    if let Ok(text) = std::fs::read_to_string(file) {
        return Ok(text);
    }
    let text = make()?;
    // Whole or not at all: two runs may make one at the same time.
    let partial = file.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(file.parent().unwrap_or(file))
        .and_then(|()| std::fs::write(&partial, &text))
        .and_then(|()| std::fs::rename(&partial, file))
        .with_context(|| file.display().to_string())?;
    Ok(text)
}

const LEAKED: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
