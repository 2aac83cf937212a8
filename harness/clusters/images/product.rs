//! The product's images: the final targets of the root `Dockerfile` with a prebuilt static binary.
//!
//! Images under test hold a binary of profile `e2e`, which links within seconds after an edit. Benchmarks and the check
//! of the size use profile `release`, built with the command of the Dockerfile's target `builder`. An explicit `--target`
//! gives both a folder of their own, apart from the development build.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use super::{ImageError, ImageTar, folder};
use crate::docker;
use crate::progress::Progress;
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
    #[must_use]
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
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::E2e => "e2e",
            Self::Release => "release",
        }
    }
}

/// Builds the product's static binary; cargo knows whether there is anything to do.
///
/// # Errors
/// When it does not compile.
pub async fn binary(progress: &Progress, profile: Profile) -> Result<PathBuf, ImageError> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace::root())
        .args([
            "build",
            "--profile",
            profile.name(),
            "--locked",
            "-p",
            BINARY,
            "--target",
            TARGET,
        ])
        .env(
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            "-C target-feature=+crt-static",
        )
        // Either would win over the line above.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    progress
        .run(
            &format!(
                "build the product's static binary, profile {}",
                profile.name()
            ),
            &mut cargo,
        )
        .await
        .map_err(ImageError::Build)?;
    Ok(built_binary(profile))
}

/// Where [`binary`] leaves the binary. [`product`] leaves one of [`Profile::E2e`].
#[must_use]
pub fn built_binary(profile: Profile) -> PathBuf {
    workspace::target()
        .join(TARGET)
        .join(profile.name())
        .join(BINARY)
}

/// Builds the release binary and compares its size with the bound.
///
/// # Errors
/// When it does not compile or cannot be read.
pub async fn release_size(progress: &Progress) -> Result<ReleaseSize, ImageError> {
    let path = binary(progress, Profile::Release).await?;
    let metadata = std::fs::metadata(&path).map_err(ImageError::file(&path))?;
    Ok(ReleaseSize {
        bytes: metadata.len(),
    })
}

/// Size of the release binary, which is all that an image of the product holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseSize {
    bytes: u64,
}

impl ReleaseSize {
    /// Largest size in bytes: an image is pulled on every node that a replica moves to.
    const BOUND: u64 = 16_000_000;

    /// Whether the size is within the bound.
    #[must_use]
    pub fn is_within_bound(self) -> bool {
        self.bytes <= Self::BOUND
    }
}

impl std::fmt::Display for ReleaseSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes } = self;
        write!(
            f,
            "release binary: {bytes} bytes, at most {} allowed",
            Self::BOUND
        )
    }
}

/// The image of a role, built if Docker or the folder of images lacks it.
///
/// # Errors
/// When the binary does not compile or `docker` fails.
pub async fn product(progress: &Progress, role: Role) -> Result<ImageTar, ImageError> {
    let binary = binary(progress, Profile::E2e).await?;
    let dockerfile = workspace::root().join("Dockerfile");
    let tag = content_tag(&[&binary, &dockerfile])?;
    let archive = folder().join(format!("{}-{tag}.tar", role.name()));
    if let Ok(image) = ImageTar::open(&archive) {
        return Ok(image);
    }
    let reference = format!("localhost/{BINARY}-{}:{tag}", role.name());
    let context = context(&binary)?;
    let title = format!("build the image of {}", role.name());
    let mut build = Command::new(docker::program());
    build
        .env("DOCKER_BUILDKIT", "1")
        .args([
            "build",
            "--quiet",
            "--build-arg",
            "BINARY=prebuilt",
            "--target",
            role.name(),
        ])
        .args(["--tag", &reference, "--file"])
        .args([&dockerfile, &context]);
    progress
        .run(&title, &mut build)
        .await
        .map_err(ImageError::Build)?;
    forget_older(role);
    save(progress, &reference, &archive).await
}

/// Writes an image that Docker has into an archive.
///
/// # Errors
/// When `docker` fails.
pub(super) async fn save(
    progress: &Progress,
    reference: &str,
    archive: &Path,
) -> Result<ImageTar, ImageError> {
    let folder = folder();
    std::fs::create_dir_all(&folder).map_err(ImageError::file(&folder))?;
    // Under another name first: an archive that is there is whole.
    let partial = archive.with_extension("partial");
    let mut save = Command::new(docker::program());
    save.args(["save", "--output"]).arg(&partial).arg(reference);
    let title = format!("save the image {reference}");
    progress
        .run(&title, &mut save)
        .await
        .map_err(ImageError::Build)?;
    std::fs::rename(&partial, archive).map_err(ImageError::file(archive))?;
    ImageTar::open(archive)
}

/// A folder that holds the binary alone, so that nothing else is sent to the daemon.
fn context(binary: &Path) -> Result<PathBuf, ImageError> {
    let context = folder().join("context");
    std::fs::create_dir_all(&context).map_err(ImageError::file(&context))?;
    let copy = context.join(BINARY);
    std::fs::copy(binary, &copy).map_err(ImageError::file(&copy))?;
    Ok(context)
}

fn content_tag(files: &[&Path]) -> Result<String, ImageError> {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(std::fs::read(file).map_err(ImageError::file(*file))?);
    }
    let mut tag = format!("{:x}", hash.finalize());
    tag.truncate(12);
    Ok(tag)
}

/// Archives of earlier builds are of no use; Docker's own copies share their layers and are left to `docker prune`.
fn forget_older(role: Role) {
    let prefix = format!("{}-", role.name());
    for entry in std::fs::read_dir(folder()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) && name.ends_with(".tar") {
            // What cannot be removed only takes space.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

const BINARY: &str = "runtime-bootstrapper";
