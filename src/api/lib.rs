//! Interfaces between processes: annotation keys, object names, and the configuration document of the webhook.
//!
//! Types and parsing only. Deliberately absent: I/O, Kubernetes clients, and all decisions (which are in `policy`).

pub mod bootstrapper;
pub mod config;
mod feature;
pub mod json;
pub mod kcp;
pub mod names;
#[cfg(feature = "crds")]
pub mod rollout;
pub mod suggest;
pub mod syntax;
#[cfg(feature = "crds")]
pub mod watcher;

pub use feature::{ALL_KEY, Feature, FeatureSet, UnknownFeature};
