//! The controller on KCP: synchronizes the sources to every runtime.
//!
//! [`sources`] watches the pull Secret, the ClusterTrustBundle and the ConfigMap on KCP, [`inventory`] watches the
//! Runtimes. [`signal`] requests KIM to apply the sources; [`direct`] applies them through [`clients`] of thousands
//! of API servers. [`watchers`] routes events of runtimes to the components on KCP. [`certificates`] and
//! [`runtime_watchers`] install the watcher on runtimes. Not in here: decisions, which `policy::sync` makes.

use std::time::Duration;

use component_base::backoff::Backoff;

mod absent;
mod access;
pub mod certificates;
mod claims;
pub mod clients;
mod clock;
pub mod direct;
mod dynamic;
#[cfg(test)]
#[path = "tests/support/fixture.rs"]
mod fixture;
pub mod inventory;
mod kube_events;
pub mod kyma;
mod requests;
mod rollouts;
#[cfg(test)]
#[path = "tests/support/runtime_cluster.rs"]
mod runtime_cluster;
mod runtime_objects;
pub mod runtime_watchers;
mod secret;
pub mod signal;
pub mod sources;
pub mod state;
pub mod watchers;

/// Delay before a failed reconcile of an object on KCP is repeated.
pub(crate) const RECONCILE_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Default time between the deletion of a source and the deletion of its copies on runtimes. It is long enough for a
/// tool that deletes and creates an object again, and for an operator who detects a mistake.
pub const DELETION_GRACE: Duration = Duration::from_mins(5);
