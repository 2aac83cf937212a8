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
        let open = ConstGauge::new(snapshot.open);
        let help = "Connections open now";
        open.encode(encoder.encode_descriptor(
            "server_connections_open",
            help,
            None,
            open.metric_type(),
        )?)?;
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

fn counters(snapshot: &Snapshot) -> [(&'static str, &'static str, u64); 10] {
    [
        (
            "server_connections_accepted",
            "Connections taken",
            snapshot.accepted,
        ),
        (
            "server_connections_displaced",
            "Idle connections closed at the cap",
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
    fn every_counter_has_its_line() {
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
        assert!(text.contains("\nrt_server_connections_open 0\n"));
    }
}
