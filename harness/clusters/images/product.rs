//! The product's images: the final targets of the root `Dockerfile` with a prebuilt static binary.
//!
//! Images under test hold a binary of profile `e2e`, which links within seconds after an edit. Benchmarks and the check
//! of the size use profile `release`, built with the command of the Dockerfile's target `builder`. An explicit `--target`
//! gives both a folder of their own, apart from the development build.

use std::path::PathBuf;

use tokio::process::Command;

use super::{Image, content_tag, context};
use crate::progress;
use crate::workspace;

/// The target of everything that runs `FROM scratch`.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A role of the product that has an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The admission webhook.
    Webhook,
    /// The controller on KCP.
    Controller,
    /// The watcher on SKRs.
    Watcher,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Controller, Self::Watcher];

    /// Its subcommand, and its target in the Dockerfile.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Controller => "controller",
            Self::Watcher => "watcher",
        }
    }
}

/// The cargo profile of the product's binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Without link-time optimization, incremental: what images under test hold.
    E2e,
    /// What is released: for benchmarks and the check of the size.
    Release,
}

impl Profile {
    /// Its name in `Cargo.toml`, and its folder below `target`.
    pub fn name(self) -> &'static str {
        match self {
            Self::E2e => "e2e",
            Self::Release => "release",
        }
    }
}

/// Builds the product's static binary; cargo knows whether there is anything to do.
pub async fn binary(profile: Profile) -> anyhow::Result<PathBuf> {
    Ok(build(profile, &["-p", BINARY]).await?.join(BINARY))
}

/// Builds a static binary as the product's is built, and returns the folder of the profile.
pub async fn build(profile: Profile, arguments: &[&str]) -> anyhow::Result<PathBuf> {
    let (name, what) = (profile.name(), arguments.join(" "));
    let flags = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS";
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace::root())
        .args(["build", "--locked", "--profile", name, "--target", TARGET])
        .args(arguments)
        .env(flags, "-C target-feature=+crt-static")
        // Either would win over the line above.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let title = format!("build {what} statically, profile {name}");
    progress::run(&title, &mut cargo).await?;
    Ok(built(profile))
}

/// Where [`build`] leaves what it builds.
pub fn built(profile: Profile) -> PathBuf {
    workspace::target().join(TARGET).join(profile.name())
}

/// Where [`binary`] leaves the binary. [`product`] leaves one of [`Profile::E2e`].
pub fn built_binary(profile: Profile) -> PathBuf {
    built(profile).join(BINARY)
}

/// Builds the release binary, which is all that an image of the product holds, and returns its size in bytes.
pub async fn release_size() -> anyhow::Result<u64> {
    Ok(std::fs::metadata(binary(Profile::Release).await?)?.len())
}

/// Largest size of the release binary in bytes: an image is pulled on every node that a replica moves to.
pub const LARGEST_RELEASE: u64 = 16_000_000;

/// The image of a component, built if the daemon lacks it.
pub async fn product(role: Role) -> anyhow::Result<Image> {
    let binary = binary(Profile::E2e).await?;
    let dockerfile = workspace::root().join("Dockerfile");
    let tag = content_tag([binary.as_path(), &dockerfile])?;
    let reference = format!("localhost/{BINARY}-{}:{tag}", role.name());
    if let Some(image) = Image::find(&reference).await? {
        return Ok(image);
    }
    let folder = context()?;
    std::fs::copy(&binary, folder.path().join(BINARY))?;
    let options = ["--build-arg", "BINARY=prebuilt", "--target", role.name()];
    Image::build(&reference, (&dockerfile, folder.path()), &options).await
}

const BINARY: &str = "runtime-bootstrapper";
