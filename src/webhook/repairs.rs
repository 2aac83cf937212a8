//! Repairs: finds and reports Pods that lack changes and, if enabled, evicts them.
//!
//! The leader watches all Pods as they are stored, decides about each as the webhook would, and stores some hundred bytes
//! per covered Pod. A Pod that was created after the configuration that covers it and lacks a change was missed. A Pod from
//! before a change of trust bundle, pull Secret or document is outdated (`policy::repairs`).
//!
//! - After a change of the active revision all Pods are listed again; after a change of a Namespace, its Pods.
//! - No Pod is judged before configuration, pull Secret and trust bundle were observed.
//! - An eviction requires a successful probe before it, and the confirmation of a circuit breaker after it.
//! - A Pod that mounts the trust bundle and does not start is reported, with its node (`policy::repairs::UnstartedPods`).
//! - Times are from the API server. The time since when a part of the revision has its content is stored in a Secret
//!   (`record`), so that a new leader does not evict Pods again, and so is the time since when a Namespace opts in, if its
//!   field managers show a later one (`opt_in`). It is a Secret because digests of credentials allow guessing.
//!
//! Permissions in addition to those of the other watches: `pods`: list and watch; the Secret of the record: create, get,
//! patch; `events.events.k8s.io`: create, patch; and `pods/eviction`: create, with a RoleBinding in each namespace whose
//! Pods may be evicted. A namespace without it is reported and retried after at least ten minutes.

mod eviction;
mod metrics;
mod opt_in;
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
use self::pod::{Judge, StoredPod};
use self::reconcile::Reconciler;
pub(crate) use self::record::last_valid_document;
use crate::snapshot::SnapshotStore;

/// Checks whether a new Pod would be adapted. The error is a human-readable text.
pub type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Finds and evicts Pods. Each term of leadership uses a clone.
#[derive(Clone)]
pub struct Repairs {
    /// Client of the webhook's cluster.
    pub client: Client,
    /// Source of configuration, pull Secret, trust bundle and Namespaces.
    pub snapshots: SnapshotStore,
    /// Writer of Events.
    pub recorder: Recorder,
    /// Metrics of repairs.
    pub metrics: RepairMetrics,
    /// Metrics of the watch.
    pub watches: WatchMetrics,
    /// Namespace of the record.
    pub product_namespace: String,
    /// Selects the Pods that are evicted; none by default.
    pub evict: EvictionSettings,
    /// Called before each eviction.
    pub probe: Probe,
}

impl Repairs {
    /// Repairs until the token is canceled. Failures are retried, counted and logged.
    pub async fn run(self, token: CancellationToken) {
        self.run_with(StoredPod::judge, token).await;
    }

    async fn run_with(self, judge: Judge, token: CancellationToken) {
        let mut reconciler = Reconciler::new(&self, judge);
        while !token.is_cancelled() {
            reconciler.run(&token).await;
        }
    }
}

#[cfg(test)]
mod tests;
