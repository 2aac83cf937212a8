//! The webhook in a cluster, as scenarios see it: its replicas, its configuration, and the environment of the suite.

#[cfg(feature = "clusters")]
pub(crate) mod cluster;
pub mod webhook;

#[cfg(feature = "clusters")]
pub use cluster::{Admission, start};
