//! Where the workspace lies, and where the harness keeps what it makes.
//!
//! Invariant: everything that the harness writes is under `target/`, so `cargo clean` forgets it.

use std::path::{Path, PathBuf};

/// The folder of the root `Cargo.toml`.
#[must_use]
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Cargo's output, and that of the Go builds.
#[must_use]
pub fn target() -> PathBuf {
    root().join("target")
}

/// What the harness keeps from run to run: the choices of the set-up, images, logs, evidence.
#[must_use]
pub fn state() -> PathBuf {
    target().join("harness")
}

/// Logs of steps and containers.
#[must_use]
pub fn logs() -> PathBuf {
    state().join("logs")
}
