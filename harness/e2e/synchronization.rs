//! The synchronization suite: sets of a control plane with the controller and two runtime clusters.
//!
//! A scenario has its set alone and finds the controller running and the sources valid; its clean-up restores this state.
//! Content of sources is never restored: every change writes content that did not exist before, so an old copy cannot be
//! mistaken for a new one.

mod clusters;
pub(crate) mod control_plane;
pub(crate) mod controller;
mod faults;
pub(crate) mod kim;
pub(crate) mod pods;
mod pool;
pub(crate) mod runtime_cluster;
pub(crate) mod source;

pub use self::clusters::Clusters;
pub use pool::ClustersPool;
pub(crate) use pool::{Leased, RUNTIMES, number};
pub(crate) use runtime_cluster::webhook_path;
