//! The images that run in the clusters: one for each component of the product, the probe of the harness, and other programs.
//!
//! The Docker daemon has all images, most of which the harness builds. The reference of an image changes with its content, so a
//! node with the reference has the current image. Only the probe has a fixed name, which the features contain, and its ID is
//! compared.
//!
//! The product's images are the final targets of the root `Dockerfile` with a prebuilt static binary. Images under test contain
//! a binary of profile `e2e`, which links within seconds after a change. Benchmarks and the check of the size use profile
//! `release`, built with the command of the Dockerfile's target `builder`. With an explicit `--target`, both have their own
//! folder beside the development build.

mod tools;

pub use tools::{PROBE, cert_manager, gateway, istiod, klm, operator, private_probe, probe};

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::docker;
use crate::name_of;
use crate::progress;
use crate::workspace;

/// An image that the Docker daemon has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Name and tag of the image.
    pub reference: String,
    /// Digest of the image's configuration, `sha256:…`.
    pub id: String,
}

impl Image {
    async fn find(reference: &str) -> anyhow::Result<Option<Self>> {
        let id = docker::image_id(reference).await?;
        Ok(id.map(|id| Self {
            reference: reference.to_owned(),
            id,
        }))
    }

    /// Tags the image with a suffix: to nodes and installers this is another version.
    pub async fn retagged(&self, suffix: &str) -> anyhow::Result<Self> {
        self.tagged(&format!("{}-{suffix}", self.reference)).await
    }

    /// Tags the image with another name.
    pub async fn tagged(&self, reference: &str) -> anyhow::Result<Self> {
        docker::must(&["tag", &self.reference, reference]).await?;
        let (reference, id) = (reference.to_owned(), self.id.clone());
        Ok(Self { reference, id })
    }

    /// Builds an image from a Dockerfile and a folder, which is the complete build context.
    async fn build(
        reference: &str,
        (dockerfile, folder): (&Path, &Path),
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let mut build = Command::new(docker::program());
        build.env("DOCKER_BUILDKIT", "1").args(["build", "--quiet"]);
        build.args(options).args(["--tag", reference, "--file"]);
        build.args([dockerfile, folder]);
        let title = format!("build the image {reference}");
        progress::run(&title, &mut build).await?;
        let found = Self::find(reference).await?;
        found.with_context(|| format!("Docker lacks {reference}, which it has built"))
    }
}

/// Returns the digest in the format of registries and container runtimes: `sha256:` and 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

fn content_tag<'a>(files: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(std::fs::read(file).with_context(|| file.display().to_string())?);
    }
    Ok(format!("{:x}", hash.finalize())[..12].to_owned())
}

/// Creates an empty folder for the build context of an image.
fn context() -> anyhow::Result<TempDir> {
    let folder = workspace::state().join("images");
    std::fs::create_dir_all(&folder)?;
    Ok(tempfile::tempdir_in(folder)?)
}

/// Architecture of all programs in images, which is that of this machine: Docker runs its containers there.
pub(crate) use std::env::consts::ARCH;

/// Returns the compilation target of all programs in images that are `FROM scratch`.
fn target() -> String {
    format!("{ARCH}-unknown-linux-gnu")
}

/// A component of the product that has an image. Its name is its subcommand, and its target in the Dockerfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The admission webhook.
    Webhook,
    /// The controller on KCP.
    Controller,
    /// The watcher on SKRs.
    Watcher,
}

impl Role {
    /// All components.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Controller, Self::Watcher];
}

/// Cargo profile of the product's binary. Its name is that in `Cargo.toml` and of its folder below `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Incremental and without link-time optimization, for images under test.
    E2e,
    /// Profile of releases, for benchmarks and the check of the size.
    Release,
}

/// Builds the product's static binary and returns its path. Cargo skips the build if nothing changed.
pub async fn binary(profile: Profile) -> anyhow::Result<PathBuf> {
    Ok(build(profile, &["-p", BINARY]).await?.join(BINARY))
}

/// Builds a static binary with the options of the product's binary, and returns the folder of the profile.
pub async fn build(profile: Profile, arguments: &[&str]) -> anyhow::Result<PathBuf> {
    let (name, what, target) = (name_of(&profile), arguments.join(" "), target());
    let flags = target.to_uppercase().replace('-', "_");
    let flags = format!("CARGO_TARGET_{flags}_RUSTFLAGS");
    let mut cargo = workspace::cargo();
    cargo
        .args(["build", "--locked", "--profile", &name, "--target", &target])
        .args(arguments)
        .env(flags, "-C target-feature=+crt-static")
        // Each of these variables would override the flags above.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let title = format!("build {what} statically, profile {name}");
    progress::run(&title, &mut cargo).await?;
    Ok(built(profile))
}

/// Returns the output folder of [`build`].
pub fn built(profile: Profile) -> PathBuf {
    workspace::target().join(target()).join(name_of(&profile))
}

/// Returns the path of the binary that [`binary`] builds. [`product`] builds one of [`Profile::E2e`].
pub fn built_binary(profile: Profile) -> PathBuf {
    built(profile).join(BINARY)
}

/// Largest size of the release binary in bytes. An image of the product contains only the binary, and every node that runs a
/// replica pulls the image.
pub const LARGEST_RELEASE: u64 = 20_000_000;

/// Returns the image of a component, and builds it if the daemon does not have it.
pub async fn product(role: Role) -> anyhow::Result<Image> {
    let role = name_of(&role);
    let options = ["--build-arg", "BINARY=prebuilt", "--target", &role];
    of_binary("Dockerfile", &role, &options).await
}

/// Returns the image that replaces that of the public webhook: the product's binary as `/manager`. Builds it if the daemon does
/// not have it.
pub async fn public_webhook() -> anyhow::Result<Image> {
    of_binary("harness/images/public-webhook/Dockerfile", "public", &[]).await
}

async fn of_binary(dockerfile: &str, name: &str, options: &[&str]) -> anyhow::Result<Image> {
    let binary = binary(Profile::E2e).await?;
    let dockerfile = workspace::root().join(dockerfile);
    let tag = content_tag([binary.as_path(), &dockerfile])?;
    let reference = format!("localhost/{BINARY}-{name}:{tag}");
    if let Some(image) = Image::find(&reference).await? {
        return Ok(image);
    }
    let folder = context()?;
    std::fs::copy(&binary, folder.path().join(BINARY))?;
    Image::build(&reference, (&dockerfile, folder.path()), options).await
}

const BINARY: &str = "runtime-bootstrapper";
