//! The webhook in a cluster: its replicas, its configuration, and the environment of the admission suite.

#[cfg(feature = "clusters")]
pub(crate) mod cluster;
pub mod webhook;

#[cfg(feature = "clusters")]
pub use cluster::{Admission, start};
