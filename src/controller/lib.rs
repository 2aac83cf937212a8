//! The controller on KCP: synchronizes the sources to every runtime.
//!
//! [`sources`] watches the pull Secret, the ClusterTrustBundle and the ConfigMap on KCP, [`inventory`] the Runtimes. [`signal`] asks KIM to apply them;
//! [`direct`] applies them itself, through [`clients`] of thousands of API servers. Not in here: decisions, which `policy::sync`
//! makes.

use std::time::Duration;

mod absent;
pub mod clients;
mod clock;
pub mod direct;
#[cfg(test)]
mod fixture;
pub mod inventory;
mod kube_events;
mod rollouts;
pub mod signal;
pub mod sources;
pub mod state;

/// Default time between the deletion of a source and that of its copies on runtimes: enough for a tool that deletes and creates
/// an object again, or for an operator who notices the mistake.
pub const DELETION_GRACE: Duration = Duration::from_mins(5);
