//! Metrics of all modules, with one prefix.

use component_base::client::RequestMetrics;
use component_base::lease::LeaseMetrics;
use component_base::metrics::Metrics;
use component_base::watch::WatchMetrics as FailingWatches;
use serve::Statistics;
use webhook::admission::AdmissionMetrics;
use webhook::certificate::CertificateMetrics;
use webhook::fallback_policy::FallbackMetrics;
use webhook::leader::LeaderMetrics;
use webhook::pull_secret_sync::PullSecretMetrics;
use webhook::repairs::RepairMetrics;
use webhook::watches::WatchMetrics;

use crate::compose::build_info;

const PREFIX: &str = "rt_bootstrapper";

/// Handles of the metrics for the modules.
pub(crate) struct Meters {
    pub(super) requests: RequestMetrics,
    pub(super) lease: LeaseMetrics,
    pub(super) leader: LeaderMetrics,
    pub(super) failing_watches: FailingWatches,
    pub(super) admission: AdmissionMetrics,
    pub(super) watches: WatchMetrics,
    pub(super) certificate: CertificateMetrics,
    pub(super) pull_secret: PullSecretMetrics,
    pub(super) repairs: RepairMetrics,
    pub(super) fallback_policy: FallbackMetrics,
}

impl Meters {
    /// Registers all metrics, with those of the servers of the process.
    pub(crate) fn new(
        servers: impl IntoIterator<Item = (&'static str, Statistics)>,
    ) -> (Self, Metrics) {
        let mut metrics = Metrics::new(PREFIX, build_info());
        let requests = RequestMetrics::register(metrics.unprefixed());
        let lease = LeaseMetrics::register(metrics.unprefixed());
        let registry = metrics.registry();
        serve::metrics::register_servers(registry, servers);
        let meters = Self {
            requests,
            lease,
            leader: LeaderMetrics::register(registry),
            failing_watches: FailingWatches::register(registry),
            admission: AdmissionMetrics::register(registry),
            watches: WatchMetrics::register(registry),
            certificate: CertificateMetrics::register(registry),
            pull_secret: PullSecretMetrics::register(registry),
            repairs: RepairMetrics::register(registry),
            fallback_policy: FallbackMetrics::register(registry),
        };
        (meters, metrics)
    }
}
