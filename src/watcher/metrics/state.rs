//! Metrics that are read at a scrape: outbox and certificates.
//!
//! Invariant: a value that does not exist is left out, never exposed as zero.

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

/// The parts of the watcher whose state is read at a scrape.
pub struct State {
    /// The outbox.
    pub outbox: Outbox,
    /// The certificates.
    pub certificates: Certificates,
    /// The counters of the admission endpoint.
    pub connections: Statistics,
}

/// One gauge, if it has a value.
struct Figure {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: Option<f64>,
}

impl State {
    /// Registers the metrics.
    pub fn register(self, registry: &mut Registry) {
        serve::metrics::register(registry, self.connections.clone());
        registry.register_collector(Box::new(self));
    }

    fn outbox_gauges(&self) -> [Figure; 6] {
        let outbox = self.outbox.report(Instant::now());
        [
            Figure {
                name: "outbox_events",
                help: "Number of undelivered events, follow-up events included",
                unit: None,
                value: Some(float(outbox.depth)),
            },
            Figure {
                name: "outbox_oldest_event_age",
                help: "Age of the oldest event that is due",
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
                name: "spool_size",
                help: "Size of the spool",
                unit: Some(Unit::Bytes),
                value: Some(float(outbox.spool_bytes)),
            },
            Figure {
                name: "spool_writable",
                help: "Whether events are written to the spool (1), so that they survive a restart",
                unit: None,
                value: Some(flag(outbox.on_disk)),
            },
            Figure {
                name: "resync_pending",
                help: "Whether events were dropped and a resync is not reported to KCP yet (1)",
                unit: None,
                value: Some(flag(outbox.resync_needed)),
            },
        ]
    }

    fn certificate_gauges(&self) -> [Figure; 2] {
        let certificates = self.certificates.report();
        let expiry = certificates
            .not_after
            .and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        [
            Figure {
                name: "certificate_last_reload_successful",
                help: "Whether the last reload of the certificate files succeeded (1)",
                unit: None,
                value: Some(flag(certificates.problem.is_none())),
            },
            Figure {
                name: "certificate_expiration_timestamp",
                help: "Expiration time of the active certificate, in seconds since the epoch",
                unit: Some(Unit::Seconds),
                value: expiry.map(|it| it.as_secs_f64()),
            },
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
        let gauges = self
            .outbox_gauges()
            .into_iter()
            .chain(self.certificate_gauges());
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
        let help = "Number of events dropped before delivery, by reason";
        let dropped = self.outbox.report(Instant::now()).dropped;
        let mut family =
            encoder.encode_descriptor("dropped_events", help, None, MetricType::Counter)?;
        for (reason, count) in dropped.by_reason() {
            let label = [("reason", reason)];
            ConstCounter::new(count).encode(family.encode_family(&label)?)?;
        }
        let help = "Number of times that the spool became unwritable";
        let failures = ConstCounter::new(self.outbox.report(Instant::now()).disk_failures);
        let kind = failures.metric_type();
        failures.encode(encoder.encode_descriptor("spool_write_failures", help, None, kind)?)?;
        let help = "Number of reloads of the certificate files, by result";
        let mut family =
            encoder.encode_descriptor("certificate_reloads", help, None, MetricType::Counter)?;
        let certificates = self.certificates.report();
        let results = [
            ("success", certificates.generation),
            ("error", certificates.refusals),
        ];
        for (result, count) in results {
            let label = [("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&label)?)?;
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
