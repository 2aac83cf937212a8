//! What the client stack counts, over all runtimes together.
//!
//! Invariant: no label names a runtime (there are thousands, and a status per runtime says more). Units stand in the
//! names.

use std::time::Duration;

use chassis::metrics::create_series;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// The metrics of a [`super::Fleet`]. Clones share the figures.
#[derive(Clone, Debug)]
pub struct FleetMetrics {
    calls: Family<CallLabels, Counter>,
    duration: Histogram,
    wait: Histogram,
    handshakes: Family<HandshakeLabels, Counter>,
    pub(super) connections: Gauge,
    pub(super) in_flight: Gauge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    protocol: &'static str,
    resumed: &'static str,
}

impl FleetMetrics {
    /// Metrics that the registry shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            duration: Histogram::new(BUCKETS),
            wait: Histogram::new(BUCKETS),
            handshakes: Family::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
        };
        registry.register(
            "runtime_calls",
            "Calls to the API servers of runtimes, and connections made before a call (verb connect), by verb and outcome",
            metrics.calls.clone(),
        );
        registry.register(
            "runtime_call_duration_seconds",
            "From the place in the window to the last byte of the answer, connecting included; or what a connection before a call took",
            metrics.duration.clone(),
        );
        registry.register(
            "runtime_window_wait_seconds",
            "How long calls waited for a place in the window of calls in flight",
            metrics.wait.clone(),
        );
        registry.register(
            "runtime_handshakes",
            "TLS sessions with runtimes, by protocol and whether an earlier one was resumed",
            metrics.handshakes.clone(),
        );
        registry.register(
            "runtime_connections",
            "Open connections to runtimes",
            metrics.connections.clone(),
        );
        registry.register(
            "runtime_calls_in_flight",
            "Calls to runtimes that are being made, and connections before a call",
            metrics.in_flight.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`chassis::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.calls);
        create_series(&self.handshakes);
    }

    pub(super) fn handshake(&self, protocol: &'static str, resumed: bool) {
        let resumed = if resumed { "true" } else { "false" };
        self.handshakes
            .get_or_create(&HandshakeLabels { protocol, resumed })
            .inc();
    }

    pub(super) fn waited(&self, wait: Duration) {
        self.wait.observe(wait.as_secs_f64());
    }

    /// Begins the measurement of one call.
    pub(super) fn begin(&self, verb: &'static str) -> Measurement<'_> {
        self.in_flight.inc();
        Measurement {
            metrics: self,
            verb,
            begun: Instant::now(),
            outcome: "cancelled",
        }
    }
}

/// One call being made; counted when dropped, also when the caller stopped waiting.
pub(super) struct Measurement<'a> {
    metrics: &'a FleetMetrics,
    verb: &'static str,
    begun: Instant,
    outcome: &'static str,
}

impl Measurement<'_> {
    pub(super) fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Measurement<'_> {
    fn drop(&mut self) {
        let Self {
            metrics,
            verb,
            begun,
            outcome,
        } = *self;
        metrics.in_flight.dec();
        metrics.duration.observe(begun.elapsed().as_secs_f64());
        metrics
            .calls
            .get_or_create(&CallLabels { verb, outcome })
            .inc();
    }
}

/// From a call within a data centre to the longest timeout anybody sets.
const BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
