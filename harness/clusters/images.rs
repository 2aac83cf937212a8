//! The images that run in the clusters: the product's, one a role, the harness's own probe, and Envoy.
//!
//! Invariant: an image's reference changes when its bytes change, so a node that has the reference has the image;
//! the probe alone has a fixed name, because features write it down, and nodes compare its id. Deliberately absent:
//! a registry; images go into nodes and into [`crate::registry`] as archives.

mod archive;
mod product;
mod tools;

pub use archive::digest;
pub(crate) use archive::tar;
pub use archive::{Contents, ImageTar};
pub use product::{Profile, ReleaseSize, Role, binary, built_binary, product, release_size};
pub use tools::{PROBE, gateway, probe};

use std::path::PathBuf;

use crate::progress::StepError;
use crate::workspace;

/// An image could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A compiler or `docker` failed.
    #[error("an image could not be built")]
    Build(#[source] StepError),
    /// A program that is not ours could not be had.
    #[error("the set-up lacks a program")]
    Setup(#[source] Box<crate::setup::SetupError>),
    /// A file of ours cannot be read or written.
    #[error("{}: cannot be read or written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An archive is not what `docker save` writes.
    #[error("{}: no image archive: {reason}", path.display())]
    Archive {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl ImageError {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

fn folder() -> PathBuf {
    workspace::state().join("images")
}
