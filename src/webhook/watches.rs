//! The watches that keep [`Knowledge`] true. Each writes one part of it and never ends by itself. One more reader says
//! when the parts are not of one version.
//!
//! Rights they need: ConfigMap, Secret (by name, in the product namespace), Namespaces and ClusterTrustBundles: get, list,
//! watch.

mod configuration;
mod namespaces;
mod pull_secret;
mod trust_bundle;
mod version;

#[cfg(test)]
mod tests;

use chassis::readiness::Readiness;
use kube::Client;
use kube::runtime::events::Reporter;
use kube::runtime::watcher;
use policy::admission::Settings;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::knowledge::Knowledge;

/// Where to look and what the process adds.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// The product namespace.
    pub namespace: String,
    /// The ConfigMap of the configuration document.
    pub config_map: String,
    /// What the process adds to a document.
    pub settings: Settings,
}

/// What is counted of the configuration. Clones share the figures.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    rejected_documents: Counter,
    configuration_last_reload_successful: Gauge,
    configuration_revision_mismatch: Gauge,
}

impl WatchMetrics {
    /// Figures that the registry shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "configuration_reload_failures",
            "Number of invalid configuration documents; the last valid one stayed active",
            metrics.rejected_documents.clone(),
        );
        registry.register(
            "configuration_last_reload_successful",
            "Whether the configuration document in the cluster is valid (1), or missing or invalid (0)",
            metrics.configuration_last_reload_successful.clone(),
        );
        registry.register(
            "configuration_revision_mismatch",
            "Whether configuration document, pull Secret and ClusterTrustBundle are of different revisions (1)",
            metrics.configuration_revision_mismatch.clone(),
        );
        metrics
    }
}

/// Everything that a watch needs.
#[derive(Clone)]
pub struct Watches {
    /// How to reach the API server.
    pub client: Client,
    /// Where to look.
    pub settings: WatchSettings,
    /// Who writes Events.
    pub reporter: Reporter,
    /// What is written.
    pub knowledge: Knowledge,
    /// Where health is reported.
    pub readiness: Readiness,
    /// What is counted.
    pub metrics: WatchMetrics,
}

impl Watches {
    /// Runs all watches until the caller drops them.
    pub async fn run(self) {
        tokio::join!(
            configuration::watch(&self),
            namespaces::watch(&self),
            pull_secret::watch(&self),
            trust_bundle::watch(&self),
            version::tell(&self),
        );
    }

    /// Resolves when `read` tells something else than `current`, now or after a change of the knowledge.
    async fn differs<T: PartialEq>(&self, current: &T, read: impl Fn(&Self) -> T) {
        // Subscribed before the first look, so that no change falls in between.
        let mut revisions = self.knowledge.revisions();
        while read(self) == *current {
            if revisions.changed().await.is_err() {
                // The knowledge outlives the watches, so this is never reached while anybody cares.
                std::future::pending::<()>().await;
            }
        }
    }
}

fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}
