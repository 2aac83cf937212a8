//! Metrics that are read at a scrape: outbox and certificates.
//!
//! A value that does not exist is omitted, and never exposed as zero.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::certificates::Certificates;
use crate::outbox::{Outbox, Report};

/// Time for which the state of the outbox is not read again. Reading it blocks reviews for up to a millisecond, and scrapes
/// have no authentication.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Components of the watcher whose state is read at a scrape.
pub struct State {
    /// The outbox.
    pub outbox: Outbox,
    /// The certificates.
    pub certificates: Certificates,
}

impl State {
    /// Registers the metrics.
    pub fn register(self, registry: &mut Registry) {
        let last = Mutex::default();
        registry.register_collector(Box::new(StateCollector { state: self, last }));
    }
}

/// The state, and the last report of the outbox.
#[derive(Debug)]
struct StateCollector {
    state: State,
    last: Mutex<Option<(Instant, Report)>>,
}

impl StateCollector {
    fn report(&self) -> Report {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, report)) if now.duration_since(*at) < REPORT_INTERVAL => report.clone(),
            _ => {
                let report = self.state.outbox.report(now);
                last.replace((now, report.clone()));
                report
            }
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").finish_non_exhaustive()
    }
}

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let outbox = self.report();
        let certificates = self.state.certificates.report();
        let expiry = certificates.not_after;
        let expiry = expiry.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        let mut gauge = |name, help, unit: Option<&Unit>, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, unit, kind)?)
        };
        let help = "Number of undelivered events, follow-up events included";
        gauge("outbox_events", help, None, Some(float(outbox.depth)))?;
        let help = "Age of the oldest event that is due";
        let age = outbox.oldest_age.map(|age| age.as_secs_f64());
        gauge("outbox_oldest_event_age", help, seconds, age)?;
        let (help, memory) = ("Memory of the queue", float(outbox.memory_bytes));
        gauge("outbox_memory", help, bytes, Some(memory))?;
        let (help, size) = ("Size of the spool", float(outbox.spool_bytes));
        gauge("spool_size", help, bytes, Some(size))?;
        let help = "Whether events are written to the spool (1), so that they survive a restart";
        gauge("spool_writable", help, None, Some(flag(outbox.on_disk)))?;
        let help = "Whether changes may be missed and a resync is not reported to KCP yet (1)";
        let pending = Some(flag(outbox.resync_needed));
        gauge("resync_pending", help, None, pending)?;
        let help = "Whether the last reload of the certificate files succeeded (1)";
        let succeeded = Some(flag(certificates.problem.is_none()));
        gauge("certificate_last_reload_successful", help, None, succeeded)?;
        let help = "Expiration time of the active certificate, in seconds since the epoch";
        let expiry = expiry.map(|it| it.as_secs_f64());
        gauge("certificate_expiration_timestamp", help, seconds, expiry)?;

        let help = "Number of times that the spool became unwritable";
        let failures = ConstCounter::new(outbox.disk_failures);
        let kind = failures.metric_type();
        failures.encode(encoder.encode_descriptor("spool_write_failures", help, None, kind)?)?;
        let mut family = |name, help, label, counts: &[(&'static str, u64)]| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (value, count) in counts {
                let label = [(label, *value)];
                ConstCounter::new(*count).encode(family.encode_family(&label)?)?;
            }
            Ok(())
        };
        let help = "Number of events dropped before delivery, by reason";
        let dropped = outbox.dropped.by_reason();
        family("dropped_events", help, "reason", &dropped)?;
        let help = "Number of reloads of the certificate files, by result";
        let (loaded, failed) = (certificates.generation, certificates.refusals);
        let results = [("success", loaded), ("error", failed)];
        family("certificate_reloads", help, "result", &results)
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
