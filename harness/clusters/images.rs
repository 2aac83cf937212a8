//! The images that run in the clusters: the product's, one for each component, the harness's own probe, and Envoy.
//!
//! All are built by `docker build` and taken from the daemon. The reference of an image changes when its content changes, so
//! a node that has the reference has the image; the probe alone has a fixed name, because features name it, and nodes
//! compare its ID.
//!
//! The product's images are the final targets of the root `Dockerfile` with a prebuilt static binary. Images under test hold
//! a binary of profile `e2e`, which links within seconds after an edit. Benchmarks and the check of the size use profile
//! `release`, built with the command of the Dockerfile's target `builder`. An explicit `--target` gives both a folder of their
//! own, apart from the development build.

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
    /// Its name and tag.
    pub reference: String,
    /// The digest of its configuration, `sha256:…`.
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

    /// The same image under another tag: to nodes and installers, another version.
    pub async fn retagged(&self, suffix: &str) -> anyhow::Result<Self> {
        self.tagged(&format!("{}-{suffix}", self.reference)).await
    }

    /// The same image under another name.
    pub async fn tagged(&self, reference: &str) -> anyhow::Result<Self> {
        docker::must(&["tag", &self.reference, reference]).await?;
        let (reference, id) = (reference.to_owned(), self.id.clone());
        Ok(Self { reference, id })
    }

    /// Builds an image of a Dockerfile from a folder, of which nothing else is sent to the daemon.
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

/// The digest that registries and runtimes use: `sha256:` and 64 hexadecimal digits.
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

/// An empty folder for what becomes part of an image.
fn context() -> anyhow::Result<TempDir> {
    let folder = workspace::state().join("images");
    std::fs::create_dir_all(&folder)?;
    Ok(tempfile::tempdir_in(folder)?)
}

/// The target of everything that runs `FROM scratch`.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A role of the product that has an image. Its name is its subcommand, and its target in the Dockerfile.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Controller, Self::Watcher];
}

/// The cargo profile of the product's binary, by its name in `Cargo.toml` and of its folder below `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Without link-time optimization, incremental: what images under test hold.
    E2e,
    /// What is released: for benchmarks and the check of the size.
    Release,
}

/// Builds the product's static binary; cargo knows whether there is anything to do.
pub async fn binary(profile: Profile) -> anyhow::Result<PathBuf> {
    Ok(build(profile, &["-p", BINARY]).await?.join(BINARY))
}

/// Builds a static binary as the product's is built, and returns the folder of the profile.
pub async fn build(profile: Profile, arguments: &[&str]) -> anyhow::Result<PathBuf> {
    let (name, what) = (name_of(&profile), arguments.join(" "));
    let flags = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS";
    let mut cargo = workspace::cargo();
    cargo
        .args(["build", "--locked", "--profile", &name, "--target", TARGET])
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
    workspace::target().join(TARGET).join(name_of(&profile))
}

/// Where [`binary`] leaves the binary. [`product`] leaves one of [`Profile::E2e`].
pub fn built_binary(profile: Profile) -> PathBuf {
    built(profile).join(BINARY)
}

/// Largest size in bytes of the release binary, which is all that an image of the product holds: an image is pulled on every node that a replica moves to.
pub const LARGEST_RELEASE: u64 = 20_000_000;

/// The image of a component, built if the daemon lacks it.
pub async fn product(role: Role) -> anyhow::Result<Image> {
    let role = name_of(&role);
    let options = ["--build-arg", "BINARY=prebuilt", "--target", &role];
    of_binary("Dockerfile", &role, &options).await
}

/// The image that stands for the public webhook: the product's binary as `/manager`. Built if the daemon lacks it.
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
