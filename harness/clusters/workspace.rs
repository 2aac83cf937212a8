//! Paths of the workspace and of the files that the harness creates. They are under `target/`, so that `cargo clean` removes
//! them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// Returns the folder of the root `Cargo.toml`.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Returns a command that runs `cargo` in the workspace. It removes the variables with which cargo describes the current
/// package, because they do not apply to the packages of the build, and build scripts depend on them.
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

/// Returns the output of git in the workspace, without the last line break.
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

/// Returns the output folder of cargo and of the Go builds.
pub fn target() -> PathBuf {
    root().join("target")
}

/// Returns the folder with files that the harness keeps between runs: the choice of the set-up, images, logs, evidence.
pub fn state() -> PathBuf {
    target().join("harness")
}

/// Returns the folder with logs of steps and containers.
pub fn logs() -> PathBuf {
    state().join("logs")
}

/// Returns the content of a file. If the file does not exist, `make` creates the content, and the file is written.
pub fn get_or_create(
    file: &Path,
    make: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    if let Ok(text) = std::fs::read_to_string(file) {
        return Ok(text);
    }
    let text = make()?;
    // The file is renamed after the write, so that concurrent runs never read a partial file.
    let partial = file.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(file.parent().unwrap_or(file))
        .and_then(|()| std::fs::write(&partial, &text))
        .and_then(|()| std::fs::rename(&partial, file))
        .with_context(|| file.display().to_string())?;
    Ok(text)
}

const LEAKED: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
