//! The synchronization suite: sets of a control plane with the controller and two runtime clusters.
//!
//! A scenario has exclusive use of its set. At its start the controller runs and the sources are valid; its clean-up restores
//! this state. The content of sources is never restored: every change writes new content, so that an old copy is never treated
//! as a new one.

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
