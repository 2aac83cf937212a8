//! What is read when somebody scrapes: outbox, certificates, connections.
//!
//! Invariant: a figure that there is not is left out, never reported as zero.

use std::fmt;
use std::time::{Instant, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serve::Statistics;

use crate::certificates::Certificates;
use crate::outbox::Outbox;

/// The parts that are asked at a scrape.
pub struct State {
    /// What waits.
    pub outbox: Outbox,
    /// What is in force.
    pub certificates: Certificates,
    /// What the admission endpoint has counted.
    pub connections: Statistics,
}

/// One gauge, if there is a figure for it.
struct Figure {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: Option<f64>,
}

impl State {
    /// Shows the parts' figures in `registry`.
    pub fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }

    fn outbox_gauges(&self) -> [Figure; 6] {
        let outbox = self.outbox.report(Instant::now());
        [
            Figure {
                name: "outbox_events",
                help: "Events that KCP does not have yet, confirming ones included",
                unit: None,
                value: Some(float(outbox.depth)),
            },
            Figure {
                name: "outbox_oldest_age",
                help: "How long the oldest event that is due has waited",
                unit: Some(Unit::Seconds),
                value: outbox.oldest_age.map(|age| age.as_secs_f64()),
            },
            Figure {
                name: "outbox_memory",
                help: "Memory of the queue",
                unit: Some(Unit::Bytes),
                value: Some(float(outbox.memory_bytes)),
            },
            Figure {
                name: "spool",
                help: "Size of the spool",
                unit: Some(Unit::Bytes),
                value: Some(float(outbox.spool_bytes)),
            },
            Figure {
                name: "spool_usable",
                help: "Whether events outlive the process: 0 while the disk refuses",
                unit: None,
                value: Some(flag(outbox.on_disk)),
            },
            Figure {
                name: "resync_needed",
                help: "Whether events were dropped that KCP does not know of yet",
                unit: None,
                value: Some(flag(outbox.resync_needed)),
            },
        ]
    }

    fn other_gauges(&self) -> [Figure; 4] {
        let certificates = self.certificates.report();
        let connections = self.connections.snapshot();
        let expiry = certificates
            .not_after
            .and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        [
            Figure {
                name: "certificates_good",
                help: "Whether the certificate files can be used as they are",
                unit: None,
                value: Some(flag(certificates.problem.is_none())),
            },
            Figure {
                name: "certificate_expiry_timestamp",
                help: "When the certificate that is in force expires",
                unit: Some(Unit::Seconds),
                value: expiry.map(|it| it.as_secs_f64()),
            },
            Figure {
                name: "server_connections_open",
                help: "Connections open now",
                unit: None,
                value: Some(float(connections.open)),
            },
            Figure {
                name: "server_request_body",
                help: "Request bodies in memory, in blocks of 16 KiB",
                unit: Some(Unit::Bytes),
                value: Some(float(connections.body_bytes)),
            },
        ]
    }

    fn counters(&self) -> [(&'static str, &'static str, u64); 12] {
        let certificates = self.certificates.report();
        let connections = self.connections.snapshot();
        [
            (
                "spool_failures",
                "Times that the disk was given up",
                self.outbox.report(Instant::now()).disk_failures,
            ),
            (
                "certificate_sets",
                "Sets of certificates that were put in force",
                certificates.generation,
            ),
            (
                "certificate_refusals",
                "Faults of the certificate files",
                certificates.refusals,
            ),
            (
                "server_connections_accepted",
                "Connections accepted",
                connections.accepted,
            ),
            (
                "server_connections_refused",
                "Connections closed because all others were busy",
                connections.refused_at_cap,
            ),
            (
                "server_connections_evicted",
                "Connections without a request being handled that were closed at the cap",
                connections.displaced,
            ),
            (
                "server_request_header_errors",
                "Requests answered 400 or 431 because their header was not valid HTTP/1 or too large",
                connections.bad_requests,
            ),
            (
                "server_request_header_timeouts",
                "Connections closed because a request header was not complete in time",
                connections.header_timeouts,
            ),
            (
                "server_request_body_budget_rejections",
                "Requests answered 503 because all request bodies together took too much memory",
                connections.body_over_budget,
            ),
            (
                "server_handshake_failures",
                "TLS handshakes that failed or were too slow",
                connections.handshake_failures + connections.handshake_timeouts,
            ),
            (
                "server_bodies_refused",
                "Requests with a body too large or too slow",
                connections.body_too_large + connections.body_timeouts,
            ),
            ("server_panics", "Panics of handlers", connections.panics),
        ]
    }
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").finish_non_exhaustive()
    }
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = self.outbox_gauges().into_iter().chain(self.other_gauges());
        for Figure {
            name,
            help,
            unit,
            value,
        } in gauges
        {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, unit.as_ref(), kind)?)?;
        }
        let help = "Events dropped before KCP took them";
        let dropped = self.outbox.report(Instant::now()).dropped;
        let mut family =
            encoder.encode_descriptor("dropped_events", help, None, MetricType::Counter)?;
        for (reason, count) in dropped.by_reason() {
            let label = [("reason", reason)];
            ConstCounter::new(count).encode(family.encode_family(&label)?)?;
        }
        for (name, help, value) in self.counters() {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure for a graph; exact up to 2^53"
)]
fn float(value: impl TryInto<u64>) -> f64 {
    value.try_into().unwrap_or(u64::MAX) as f64
}
