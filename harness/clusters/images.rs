//! The images that run in the clusters: the product's, one for each component, the harness's own probe, and Envoy.
//!
//! All are built by `docker build` and taken from the daemon. The reference of an image changes when its content changes, so
//! a node that has the reference has the image; the probe alone has a fixed name, because features name it, and nodes
//! compare its ID.

mod product;
mod tools;

pub use product::{
    LARGEST_RELEASE, Profile, Role, binary, build, built, built_binary, product, release_size,
};
pub use tools::{PROBE, gateway, operator, private_probe, probe};

use std::path::Path;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::docker;
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
