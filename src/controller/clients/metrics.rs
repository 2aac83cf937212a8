//! Metrics of the clients of runtimes, over all runtimes together.
//!
//! Invariant: no label identifies a runtime, since there are thousands; the status of each has details.

use std::fmt::{self, Write as _};

use component_base::metrics::create_series;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// The metrics of a [`super::RuntimeClients`]. Clones share them.
#[derive(Clone, Debug)]
pub struct ClientMetrics {
    calls: Family<CallLabels, Counter>,
    duration: Histogram,
    handshakes: Family<HandshakeLabels, Counter>,
    pub(super) connections: Gauge,
    pub(super) in_flight: Gauge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    code: Code,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    protocol: &'static str,
}

/// Status code of a response; `<error>` for a request without one, as in client-go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Code(Option<u16>);

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self.0 {
            Some(code) => write!(encoder, "{code}"),
            None => encoder.write_str("<error>"),
        }
    }
}

impl ClientMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            duration: Histogram::new(BUCKETS),
            handshakes: Family::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
        };
        registry.register(
            "runtime_requests",
            "Number of requests to API servers of runtimes, by verb and code; with verb connect, connections that \
             failed before a request",
            metrics.calls.clone(),
        );
        registry.register(
            "runtime_request_duration_seconds",
            "Duration of a request to a runtime, including that of opening the connection",
            metrics.duration.clone(),
        );
        registry.register(
            "runtime_tls_handshakes",
            "Number of TLS handshakes with runtimes, by protocol",
            metrics.handshakes.clone(),
        );
        registry.register(
            "runtime_connections_open",
            "Number of open connections to runtimes",
            metrics.connections.clone(),
        );
        registry.register(
            "runtime_inflight_requests",
            "Number of requests to runtimes in flight, and of connections being established",
            metrics.in_flight.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.calls);
        create_series(&self.handshakes);
    }

    pub(super) fn handshake(&self, protocol: &'static str) {
        self.handshakes
            .get_or_create(&HandshakeLabels { protocol })
            .inc();
    }

    /// Starts the measurement of one request.
    pub(super) fn begin(&self, verb: &'static str) -> Measurement<'_> {
        self.in_flight.inc();
        Measurement {
            metrics: self,
            verb,
            begun: Instant::now(),
            end: Some(Code::default()),
        }
    }
}

/// A request in flight, which is counted when it is dropped.
pub(super) struct Measurement<'a> {
    metrics: &'a ClientMetrics,
    verb: &'static str,
    begun: Instant,
    /// `None`: the request is not counted.
    end: Option<Code>,
}

impl Measurement<'_> {
    /// Ends the measurement with a code.
    pub(super) fn end(mut self, code: Option<u16>) {
        self.end = Some(Code(code));
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
        if let Some(code) = self.end {
            let verb = self.verb;
            let labels = CallLabels { verb, code };
            self.metrics.calls.get_or_create(&labels).inc();
        }
    }
}

/// From a request within a data center to the longest timeout.
const BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
