//! What crosses a process boundary: annotation keys, object names, the webhook's configuration document.
//!
//! Types and parsing only. Deliberately absent: IO, Kubernetes clients, and every decision (those live in `policy`).

pub mod bootstrapper;
pub mod config;
mod feature;
pub mod json;
pub mod kcp;
pub mod names;
#[cfg(feature = "crds")]
pub mod rollout;
pub mod suggest;
#[cfg(feature = "crds")]
pub mod watcher;

pub use feature::{ALL_KEY, Feature, FeatureSet, UnknownFeature};
