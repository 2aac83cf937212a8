//! Every part's metrics, under one prefix.

use chassis::client::RequestMetrics;
use chassis::lease::LeaseMetrics;
use chassis::metrics::{BuildInfo, Metrics};
use controller::bootstrapper::direct::DirectMetrics;
use controller::bootstrapper::signal::SignalMetrics;
use controller::bootstrapper::sources::SourceMetrics;
use controller::runtimes::FleetMetrics;

const PREFIX: &str = "rt_bootstrapper_controller";

/// Handles for the parts.
pub(super) struct Meters {
    pub(super) requests: RequestMetrics,
    pub(super) lease: LeaseMetrics,
    pub(super) sources: SourceMetrics,
    pub(super) signal: SignalMetrics,
    pub(super) direct: DirectMetrics,
    pub(super) fleet: FleetMetrics,
}

impl Meters {
    /// Registers everything.
    pub(super) fn new() -> (Self, Metrics) {
        let build = BuildInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: option_env!("REVISION").unwrap_or("unknown").to_owned(),
        };
        let mut metrics = Metrics::new(PREFIX, build);
        let registry = metrics.registry();
        let meters = Self {
            requests: RequestMetrics::register(registry),
            lease: LeaseMetrics::register(registry),
            sources: SourceMetrics::register(registry),
            signal: SignalMetrics::register(registry),
            direct: DirectMetrics::register(registry),
            fleet: FleetMetrics::register(registry),
        };
        (meters, metrics)
    }
}
