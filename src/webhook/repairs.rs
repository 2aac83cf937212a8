//! Repairs: Pods that lack changes are found, reported and, if switched on, evicted.
//!
//! The leader watches all Pods as they are stored, decides about each as the webhook would, and keeps some hundred bytes
//! of each covered one. A Pod that was created after the configuration that covers it and lacks a change was missed; one
//! from before a change of trust bundle, pull Secret or document is outdated (`policy::repairs`).
//!
//! - A new active revision lists all Pods again; a changed Namespace lists its Pods.
//! - Nothing is judged before configuration, pull Secret and trust bundle were observed.
//! - An eviction needs a successful probe before, and the proof of a circuit breaker after it.
//! - A Pod that mounts the trust bundle and does not start is reported, with its node (`policy::repairs::UnstartedPods`).
//! - Times are those of the API server. Since when a part of the revision has its content is kept in a Secret (`record`),
//!   so that a new leader does not restart Pods again; a Secret because digests of credentials permit guessing.
//!
//! Rights beside those of the other watches: `pods` list and watch; the Secret of the record: create, get, patch;
//! `events.events.k8s.io`: create, patch; and `pods/eviction`: create, by a RoleBinding in each namespace whose Pods may be
//! evicted. A namespace without it is reported and tried again after ten minutes and more.

mod eviction;
mod metrics;
mod pod;
mod reconcile;
mod record;

use std::sync::Arc;

use component_base::watch::WatchMetrics;
use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::events::Recorder;
use policy::repairs::EvictionSettings;
use tokio_util::sync::CancellationToken;

pub use self::metrics::RepairMetrics;
use self::reconcile::Reconciler;
use crate::snapshot::SnapshotStore;

/// Tells whether a Pod that is created now would be adapted; the error is for a reader only.
pub type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Finds and evicts Pods. Clones do the same, one for each term of leadership.
#[derive(Clone)]
pub struct Repairs {
    /// Client of the webhook's cluster.
    pub client: Client,
    /// Source of configuration, pull Secret, trust bundle and Namespaces.
    pub snapshots: SnapshotStore,
    /// Writer of Events.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: RepairMetrics,
    /// Metrics of its watch.
    pub watches: WatchMetrics,
    /// Namespace of the record.
    pub product_namespace: String,
    /// The Pods that are evicted; none by default.
    pub evict: EvictionSettings,
    /// Asked before each eviction.
    pub probe: Probe,
}

impl Repairs {
    /// Repairs until the token is canceled. Failures are retried, counted and logged.
    pub async fn run(self, token: CancellationToken) {
        let mut reconciler = Reconciler::new(&self);
        while !token.is_cancelled() {
            reconciler.run(&token).await;
        }
    }
}

#[cfg(test)]
mod tests;
