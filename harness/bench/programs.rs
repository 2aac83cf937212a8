//! What is measured and what measures: built as the product is, so that only the work differs.

use std::path::PathBuf;

use tokio::process::Command;

use clusters::images;
use clusters::progress::Progress;
use clusters::workspace;

/// Programs of one build.
pub(super) struct Programs {
    pub(super) product: PathBuf,
    pub(super) noop: PathBuf,
    pub(super) load: PathBuf,
}

impl Programs {
    /// Cargo knows whether there is anything to do.
    pub(super) async fn build(progress: &Progress) -> anyhow::Result<Self> {
        images::binary(progress, images::Profile::Release).await?;
        let mut cargo = Command::new("cargo");
        cargo
            .current_dir(workspace::root())
            .args([
                "build",
                "--release",
                "--locked",
                "-p",
                "serve",
                "--examples",
            ])
            .args(["--target", TARGET])
            .env(
                "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
                "-C target-feature=+crt-static",
            )
            // Either would win over the line above.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        progress
            .run("build the no-op and the load generator", &mut cargo)
            .await?;
        Ok(Self::built())
    }

    /// Those of the last build.
    pub(super) fn built() -> Self {
        let folder = workspace::target().join(TARGET).join("release");
        Self {
            product: folder.join("runtime-bootstrapper"),
            noop: folder.join("examples/noop"),
            load: folder.join("examples/load"),
        }
    }
}

/// This harness as a release build: a part of a bench that a debug build played would be measured itself.
pub(super) async fn harness(progress: &Progress) -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace::root()).args([
        "build",
        "--release",
        "--locked",
        "-p",
        "harness",
        "--bin",
        "harness",
    ]);
    progress.run("build the harness", &mut cargo).await?;
    Ok(built_harness())
}

/// That of the last build.
pub(super) fn built_harness() -> PathBuf {
    workspace::target().join("release/harness")
}

/// Target and flags are those of `images/product.rs`.
const TARGET: &str = "x86_64-unknown-linux-gnu";
