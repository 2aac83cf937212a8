//! The watches that write the [`SnapshotStore`]. Each writes one part of it and never ends by itself.
//!
//! Permissions: ConfigMap, Secret (by name, in the product namespace), Namespaces and ClusterTrustBundles: get, list,
//! watch; and the permissions of `dry_run`.

mod configuration;
#[cfg(test)]
pub(crate) mod fixtures;
mod objects;
#[cfg(test)]
mod tests;

use component_base::metrics::register;
use component_base::readiness::Readiness;
use kube::Client;
use kube::runtime::events::Reporter;
use policy::admission::Settings;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::snapshot::SnapshotStore;

/// Metrics of the configuration. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    reload_failures: Counter,
    last_reload_successful: Gauge,
    revision_mismatch: Gauge,
}

impl WatchMetrics {
    /// Registers `configuration_reload_failures_total`, `configuration_last_reload_successful` and
    /// `configuration_revision_mismatch`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let failures =
            "Number of invalid configuration documents; the last valid one stayed active";
        let successful = "Whether the configuration document in the cluster is valid (1), or missing or invalid (0)";
        let mismatch = "Whether configuration document, pull Secret and ClusterTrustBundle are of different revisions (1)";
        Self {
            reload_failures: register(registry, "configuration_reload_failures", failures),
            last_reload_successful: register(
                registry,
                "configuration_last_reload_successful",
                successful,
            ),
            revision_mismatch: register(registry, "configuration_revision_mismatch", mismatch),
        }
    }
}

/// Dependencies of the watches.
#[derive(Clone)]
pub struct Watches {
    /// Client of the webhook's cluster.
    pub client: Client,
    /// The product namespace.
    pub namespace: String,
    /// The ConfigMap of the configuration document.
    pub config_map: String,
    /// Settings that the process adds to a document.
    pub settings: Settings,
    /// Reporter of Events.
    pub reporter: Reporter,
    /// Snapshots that the watches write.
    pub snapshots: SnapshotStore,
    /// Readiness checks of the watches.
    pub readiness: Readiness,
    /// Metrics of the configuration.
    pub metrics: WatchMetrics,
}

impl Watches {
    /// Runs all watches until the caller drops them.
    pub async fn run(self) {
        tokio::join!(
            configuration::watch(&self),
            objects::watch_namespaces(&self),
            objects::watch_pull_secret(&self),
            objects::watch_trust_bundle(&self),
            report_mismatch(&self),
        );
    }

    /// Waits until `read` returns another value than `current`, now or after a change of a snapshot.
    async fn differs<T: PartialEq>(&self, current: &T, read: impl Fn(&Self) -> T) {
        let mut changes = self.snapshots.changes();
        // The store is not dropped before this future.
        let _ = changes.wait_for(|_| read(self) != *current).await;
    }
}

/// Reports if configuration, pull Secret and trust bundle are not of one revision: as a readiness detail, a metric, and a
/// log message at the start and the end. The process stays ready, because a revision is active.
async fn report_mismatch(watches: &Watches) {
    let condition = watches.readiness.check("configuration-version");
    let mut changes = watches.snapshots.changes();
    let mut logged = false;
    loop {
        let mismatch = watches.snapshots.mismatch();
        let is_mismatch = mismatch.is_some();
        if is_mismatch && !logged {
            tracing::info!(why = mismatch, "configuration revision mismatch");
        } else if !is_mismatch && logged {
            tracing::info!("configuration revision complete");
        }
        logged = is_mismatch;
        let gauge = &watches.metrics.revision_mismatch;
        gauge.set(i64::from(is_mismatch));
        match mismatch {
            Some(text) => condition.detail(text),
            None => condition.ready(),
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
