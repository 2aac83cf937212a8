//! Kubernetes clusters and a private registry in containers, and the images that run in them.
//!
//! The crate sets a machine up ([`setup`]), builds images ([`images`]), starts clusters and a registry ([`cluster`],
//! [`registry`]) inside a [`run`], and keeps diagnostics of them ([`evidence`]).
#![expect(
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "a value that a test does not use does no harm"
)]
#![expect(
    clippy::missing_errors_doc,
    reason = "errors are of `anyhow`, with their whole context; no caller tells them apart"
)]

pub mod cluster;
pub mod control_plane;
mod docker;
pub mod evidence;
pub mod images;
pub mod progress;
pub mod registry;
pub mod run;
pub mod setup;
pub mod workspace;

pub use docker::{Labelled, Output};

/// Returns the name of a value, as a command line spells it.
pub fn name_of(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
