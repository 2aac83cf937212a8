//! The queue and the liveness of all runtimes, read at each scrape.
//!
//! Invariant: a figure that a runtime does not have is left out, never reported as zero.

use std::fmt;
use std::time::Duration;

use api::event::Heartbeat;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::liveness::{Liveness, RuntimeLiveness};
use crate::queue::Depth;

/// Reads the number of queued events and the liveness of all runtimes at each scrape.
#[derive(Debug)]
pub(super) struct RuntimeCollector {
    pub(super) liveness: Liveness,
    pub(super) queued: Depth,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuntimeLabel {
    runtime_id: String,
}

/// One figure of a runtime, if it has it.
struct RuntimeGauge {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    figure: fn(&RuntimeLiveness) -> Option<f64>,
}

const RUNTIME_GAUGES: [RuntimeGauge; 6] = [
    RuntimeGauge {
        name: "watcher_listener_heartbeat_age",
        help: "Time since the last heartbeat of the runtime",
        unit: Some(Unit::Seconds),
        figure: |runtime| runtime.since_heartbeat.as_ref().map(Duration::as_secs_f64),
    },
    RuntimeGauge {
        name: "watcher_listener_watchers_alive",
        help: "Number of replicas of the watcher on the runtime that send heartbeats",
        unit: None,
        figure: |runtime| {
            runtime.since_heartbeat?;
            Some(float(live(runtime).fold(0, |sum, _| sum + 1)))
        },
    },
    RuntimeGauge {
        name: "watcher_listener_missing_events",
        help: "Number of numbered events of the runtime that have not arrived",
        unit: None,
        figure: |runtime| Some(float(runtime.missing_events)),
    },
    RuntimeGauge {
        name: "watcher_listener_resyncs_required",
        help: "Number of required resyncs of the runtime",
        unit: None,
        figure: |runtime| Some(float(runtime.resyncs_needed)),
    },
    RuntimeGauge {
        name: "watcher_listener_spooled_events",
        help: "Number of undelivered events on the runtime, from the last heartbeats of its watchers",
        unit: None,
        figure: |runtime| {
            let depths = live(runtime).map(|beat| beat.spool_depth);
            depths.reduce(u64::saturating_add).map(float)
        },
    },
    RuntimeGauge {
        name: "watcher_listener_oldest_spooled_event_age",
        help: "Age of the oldest undelivered event on the runtime, from the last heartbeats of its watchers",
        unit: Some(Unit::Seconds),
        figure: |runtime| {
            let ages = live(runtime).map(|beat| beat.oldest_age_seconds);
            ages.max().map(float)
        },
    },
];

impl Collector for RuntimeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let runtimes = self.liveness.snapshot();
        let silent = runtimes.iter().filter(|runtime| runtime.silent).count();
        let encoder = &mut encoder;
        let help = "Number of events queued for the operator";
        let queued = ConstGauge::new(count(self.queued.get()));
        write(encoder, "watcher_listener_queued_events", help, &queued)?;
        let help = "Number of runtimes that sent a heartbeat or event";
        let known = ConstGauge::new(count(runtimes.len()));
        write(encoder, "watcher_listener_known_runtimes", help, &known)?;
        let help = "Number of runtimes without a heartbeat for three intervals";
        let silent = ConstGauge::new(count(silent));
        write(
            encoder,
            "watcher_listener_unresponsive_runtimes",
            help,
            &silent,
        )?;
        let help = "Number of runtimes evicted at the limit";
        let forgotten = ConstCounter::new(self.liveness.forgotten());
        write(
            encoder,
            "watcher_listener_evicted_runtimes",
            help,
            &forgotten,
        )?;
        for gauge in &RUNTIME_GAUGES {
            gauge.encode(encoder, &runtimes)?;
        }
        Ok(())
    }
}

impl RuntimeGauge {
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        runtimes: &[RuntimeLiveness],
    ) -> Result<(), fmt::Error> {
        let unit = self.unit.as_ref();
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, unit, MetricType::Gauge)?;
        for runtime in runtimes {
            let Some(figure) = (self.figure)(runtime) else {
                continue;
            };
            let label = RuntimeLabel {
                runtime_id: runtime.runtime_id.to_string(),
            };
            ConstGauge::new(figure).encode(metric.encode_family(&label)?)?;
        }
        Ok(())
    }
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// The last heartbeats of the watchers that still send them. What others had may be gone, or be thousands by now.
fn live(runtime: &RuntimeLiveness) -> impl Iterator<Item = &Heartbeat> {
    let live = runtime.watchers.iter().filter(|watcher| !watcher.silent);
    live.filter_map(|watcher| watcher.heartbeat.as_ref())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are floating point; above 2^53 nobody counts single events"
)]
fn float(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
