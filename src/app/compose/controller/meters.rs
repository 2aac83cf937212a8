//! Metrics of all modules, with one prefix.

use component_base::client::RequestMetrics;
use component_base::lease::LeaseMetrics;
use component_base::metrics::Metrics;
use component_base::watch::WatchMetrics;
use controller::certificates::CertificateMetrics;
use controller::clients::ClientMetrics;
use controller::direct::DirectMetrics;
use controller::runtime_watchers::RuntimeWatcherMetrics;
use controller::signal::SignalMetrics;
use controller::sources::SourceMetrics;
use controller::watchers::WatcherMetrics;
use serve::Statistics;

use crate::compose::build_info;

const PREFIX: &str = "rt_bootstrapper_controller";

/// Handles of the metrics for the modules.
pub(crate) struct Meters {
    pub(super) requests: RequestMetrics,
    pub(super) lease: LeaseMetrics,
    pub(super) watches: WatchMetrics,
    pub(super) sources: SourceMetrics,
    pub(super) signal: SignalMetrics,
    pub(super) direct: DirectMetrics,
    pub(super) fleet: ClientMetrics,
    pub(super) watchers: WatcherMetrics,
    pub(super) certificates: CertificateMetrics,
    pub(super) runtime_watchers: RuntimeWatcherMetrics,
}

impl Meters {
    /// Registers all metrics, with those of the servers of the process. The listener has its own.
    pub(crate) fn new(
        servers: impl IntoIterator<Item = (&'static str, Statistics)>,
    ) -> (Self, Metrics) {
        let mut metrics = Metrics::new(PREFIX, build_info());
        let requests = RequestMetrics::register(metrics.unprefixed());
        let lease = LeaseMetrics::register(metrics.unprefixed());
        let listener = metrics.late();
        let registry = metrics.registry();
        serve::metrics::register_servers(registry, servers);
        let meters = Self {
            requests,
            lease,
            watches: WatchMetrics::register(registry),
            sources: SourceMetrics::register(registry),
            signal: SignalMetrics::register(registry),
            direct: DirectMetrics::register(registry),
            fleet: ClientMetrics::register(registry),
            watchers: WatcherMetrics::register(registry),
            certificates: CertificateMetrics::register(registry),
            runtime_watchers: RuntimeWatcherMetrics::register(registry).with_listener(listener),
        };
        (meters, metrics)
    }
}
