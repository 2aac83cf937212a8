//! The counters of a server as metrics, in the one set of names that every component with a server has.
//!
//! Invariant: values are read at a scrape; nothing is counted twice.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::{Snapshot, Statistics};

/// Shows the counters of one server at each scrape.
#[derive(Debug)]
struct ServerCollector(Statistics);

/// Registers the counters of a server as `server_…`, below the prefix of the registry.
pub fn register(registry: &mut Registry, statistics: Statistics) {
    registry.register_collector(Box::new(ServerCollector(statistics)));
}

/// Name, help text and value of a metric without labels.
type Plain = (&'static str, &'static str, u64);

/// Name, help text and value by reason of a counter.
type ByReason = (
    &'static str,
    &'static str,
    &'static [(&'static str, fn(&Snapshot) -> u64)],
);

fn gauges(snapshot: &Snapshot) -> [Plain; 2] {
    [
        (
            "server_connections_open",
            "Number of open connections",
            snapshot.open,
        ),
        (
            "server_request_body_bytes",
            "Memory of request bodies in flight, in blocks of 16 KiB",
            snapshot.body_bytes,
        ),
    ]
}

fn counters(snapshot: &Snapshot) -> [Plain; 5] {
    [
        (
            "server_connections_accepted",
            "Number of accepted connections",
            snapshot.accepted,
        ),
        (
            "server_connections_evicted",
            "Number of connections without a complete request that were closed at the connection limit",
            snapshot.displaced,
        ),
        (
            "server_connections_rejected",
            "Number of connections that were closed at the limit because all others handled a request",
            snapshot.refused_at_cap,
        ),
        (
            "server_connections_aborted",
            "Number of connections that were closed at the end of the shutdown timeout",
            snapshot.cut,
        ),
        (
            "server_handler_panics",
            "Number of requests whose handler panicked",
            snapshot.panics,
        ),
    ]
}

/// Counters with the label `reason`.
const REASONS: [ByReason; 3] = [
    (
        "server_tls_handshake_errors",
        "Number of TLS handshakes that failed, by reason",
        &[
            ("protocol", |it| it.handshake_failures),
            ("timeout", |it| it.handshake_timeouts),
            ("plain_http", |it| it.plain_http),
        ],
    ),
    (
        "server_request_header_errors",
        "Number of requests without a valid header: rejected with 400 or 431 (invalid), or incomplete at the time limit",
        &[
            ("invalid", |it| it.bad_requests),
            ("timeout", |it| it.header_timeouts),
        ],
    ),
    (
        "server_request_body_errors",
        "Number of requests whose body was rejected: with 413 (too_large), 408 (timeout) or 503 (over_budget)",
        &[
            ("too_large", |it| it.body_too_large),
            ("timeout", |it| it.body_timeouts),
            ("over_budget", |it| it.body_over_budget),
        ],
    ),
];

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.snapshot();
        for (name, help, value) in gauges(&snapshot) {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in counters(&snapshot) {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        for (name, help, reasons) in REASONS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, value) in reasons {
                let label = [("reason", *reason)];
                ConstCounter::new(value(&snapshot)).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use testkit::metrics::Samples;

    use super::*;

    #[test]
    fn every_counter_of_the_server_is_exposed() {
        let mut registry = Registry::with_prefix("rt");
        register(&mut registry, Statistics::default());
        let samples = Samples::of(&registry);
        let snapshot = Snapshot::default();
        let plain = counters(&snapshot).map(|(name, ..)| format!("rt_{name}_total"));
        let reasons = REASONS.iter().flat_map(|(name, _, reasons)| {
            reasons
                .iter()
                .map(move |(reason, _)| format!("rt_{name}_total{{reason=\"{reason}\"}}"))
        });
        let gauges = gauges(&snapshot).map(|(name, ..)| format!("rt_{name}"));
        for series in plain.into_iter().chain(reasons).chain(gauges) {
            assert_eq!(samples.exact(&series), Some(0.0), "{series}");
        }
    }
}
