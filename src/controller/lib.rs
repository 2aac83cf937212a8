//! The controller on KCP: synchronizes the sources to every runtime.
//!
//! [`sources`] watches the pull Secret, the ClusterTrustBundle and the ConfigMap on KCP. [`signal`] asks KIM to apply them;
//! [`direct`] applies them itself, through [`clients`] of thousands of API servers. Not in here: decisions, which are
//! `policy::sync`.

use std::time::Duration;

mod absent;
pub mod clients;
mod clock;
pub mod direct;
#[cfg(test)]
mod fixture;
mod rollouts;
pub mod signal;
pub mod sources;
pub mod state;

/// Default time that a deleted source waits before its copies on runtimes are deleted: long enough for an object that a tool
/// deletes and creates again, or for an operator who notices the mistake.
pub const DELETION_GRACE: Duration = Duration::from_mins(5);
