//! The TLS server's own counters as metrics.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serve::{Snapshot, Statistics};

/// Shows what a server has counted.
#[derive(Debug)]
struct Connections(Statistics);

/// Registers a server's counters as `server_…`.
pub fn register(registry: &mut Registry, statistics: Statistics) {
    registry.register_collector(Box::new(Connections(statistics)));
}

impl Collector for Connections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let snapshot = self.0.snapshot();
        for (name, help, value) in gauges(&snapshot) {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in counters(&snapshot) {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

/// Name, help text and value of one metric.
type Line = (&'static str, &'static str, u64);

fn gauges(snapshot: &Snapshot) -> [Line; 2] {
    [
        (
            "server_connections_open",
            "Connections open now",
            snapshot.open,
        ),
        (
            "server_request_body_bytes",
            "Bytes of request bodies in memory, in blocks of 16 KiB",
            snapshot.body_bytes,
        ),
    ]
}

fn counters(snapshot: &Snapshot) -> impl Iterator<Item = Line> {
    let connections = connection_counters(snapshot).into_iter();
    connections.chain(request_counters(snapshot))
}

/// Counters of connections and TLS handshakes.
fn connection_counters(snapshot: &Snapshot) -> [Line; 7] {
    [
        (
            "server_connections_accepted",
            "Connections taken",
            snapshot.accepted,
        ),
        (
            "server_connections_displaced",
            "Connections without a request being handled that were closed at the cap",
            snapshot.displaced,
        ),
        (
            "server_connections_refused",
            "Connections closed because all were busy",
            snapshot.refused_at_cap,
        ),
        (
            "server_connections_cut",
            "Connections cut at the end of the drain",
            snapshot.cut,
        ),
        (
            "server_handshake_failures",
            "TLS handshakes that failed",
            snapshot.handshake_failures,
        ),
        (
            "server_handshake_timeouts",
            "TLS handshakes not finished in time",
            snapshot.handshake_timeouts,
        ),
        (
            "server_plain_http",
            "Peers that spoke HTTP without TLS",
            snapshot.plain_http,
        ),
    ]
}

/// Counters of requests.
fn request_counters(snapshot: &Snapshot) -> [Line; 6] {
    [
        (
            "server_request_header_errors",
            "Requests answered 400 or 431 because their header was not valid HTTP/1 or too large",
            snapshot.bad_requests,
        ),
        (
            "server_request_header_timeouts",
            "Connections closed because a request header was not complete in time",
            snapshot.header_timeouts,
        ),
        (
            "server_request_body_budget_rejections",
            "Requests answered 503 because all request bodies together took too much memory",
            snapshot.body_over_budget,
        ),
        (
            "server_bodies_too_large",
            "Requests answered 413",
            snapshot.body_too_large,
        ),
        (
            "server_body_timeouts",
            "Requests answered 408",
            snapshot.body_timeouts,
        ),
        ("server_panics", "Handlers that panicked", snapshot.panics),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_line() {
        let mut registry = Registry::with_prefix("rt");
        register(&mut registry, Statistics::default());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for (name, _, _) in counters(&Snapshot::default()) {
            assert!(
                text.contains(&format!("\nrt_{name}_total 0\n")),
                "{name} in {text}"
            );
        }
        for (name, _, _) in gauges(&Snapshot::default()) {
            assert!(
                text.contains(&format!("\nrt_{name} 0\n")),
                "{name} in {text}"
            );
        }
    }
}
