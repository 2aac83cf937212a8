//! Metrics of the clients of runtimes, over all runtimes together.
//!
//! Invariant: no label identifies a runtime, since there are thousands; the status of each has details.

use std::borrow::Cow;

use component_base::metrics::{Labels, expose, family, register};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// The metrics of a [`super::RuntimeClients`]. Clones share them.
#[derive(Clone, Debug)]
pub struct ClientMetrics {
    calls: Family<[(&'static str, Cow<'static, str>); 2], Counter>,
    duration: Histogram,
    handshakes: Family<Labels<1>, Counter>,
    pub(super) connections: Gauge,
    pub(super) in_flight: Gauge,
}

impl ClientMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let calls = "Number of requests to API servers of runtimes, by verb and code; with verb connect, connections that \
             failed before a request";
        let duration =
            "Duration of a request to a runtime, including that of opening the connection";
        let handshakes = "Number of TLS handshakes with runtimes, by protocol";
        let connections = "Number of open connections to runtimes";
        let in_flight =
            "Number of requests to runtimes in flight, and of connections being established";
        let histogram = Histogram::new(BUCKETS);
        Self {
            calls: family(registry, "runtime_requests", calls, ["verb", "code"]),
            duration: expose(
                registry,
                "runtime_request_duration_seconds",
                duration,
                histogram,
            ),
            handshakes: family(registry, "runtime_tls_handshakes", handshakes, ["protocol"]),
            connections: register(registry, "runtime_connections_open", connections),
            in_flight: register(registry, "runtime_inflight_requests", in_flight),
        }
    }

    pub(super) fn handshake(&self, protocol: &'static str) {
        let labels = [("protocol", protocol)];
        self.handshakes.get_or_create(&labels).inc();
    }

    /// Starts the measurement of one request.
    pub(super) fn begin(&self, verb: &'static str) -> Measurement<'_> {
        self.in_flight.inc();
        Measurement {
            metrics: self,
            verb,
            begun: Instant::now(),
            end: Some("<error>".into()),
        }
    }
}

/// Measurement of a request in flight. The request is counted when the measurement is dropped.
pub(super) struct Measurement<'a> {
    metrics: &'a ClientMetrics,
    verb: &'static str,
    begun: Instant,
    /// The status code of the response; `<error>` for a request without a response, as in client-go. `None` if the
    /// request is not counted.
    end: Option<Cow<'static, str>>,
}

impl Measurement<'_> {
    /// Ends the measurement with a status code.
    pub(super) fn end(mut self, code: Option<u16>) {
        if let Some(code) = code {
            self.end = Some(code.to_string().into());
        }
    }

    /// Ends the measurement without counting a request: a connection was established.
    pub(super) fn end_uncounted(mut self) {
        self.end = None;
    }
}

impl Drop for Measurement<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        let elapsed = self.begun.elapsed();
        self.metrics.duration.observe(elapsed.as_secs_f64());
        if let Some(code) = self.end.take() {
            let labels = [("verb", self.verb.into()), ("code", code)];
            self.metrics.calls.get_or_create(&labels).inc();
        }
    }
}

/// Buckets from a request within a data center to the longest timeout, in seconds.
const BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
