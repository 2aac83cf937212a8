//! The metrics of a listener, in the registry of the operator that embeds it: counters of requests and events, and the queue
//! and the liveness of the runtimes, read at each scrape.
//!
//! Invariant: no label value is chosen by a sender, except runtime IDs, whose number is bounded. A value that a runtime does
//! not have is left out, never reported as zero. Only numbers are copied under the lock that requests take as well.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::certificate::RuntimeId;
use crate::liveness::{Liveness, Runtime};
use crate::queue::EnqueueResult;

/// From a hand-over in memory to a look-up that a slow API server answers.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// One label: its name and its value.
type Label<T> = [(&'static str, T); 1];

/// The counters of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    last_duration: Gauge<f64, AtomicU64>,
    durations: Histogram,
    requests: Counter,
    errors: Counter,
    in_flight: Gauge,
    too_large: Counter,
    failed_verifications: Family<Label<String>, Counter>,
    accepted: Counter,
    coalesced: Counter,
    rejected: Family<Label<&'static str>, Counter>,
}

/// One request in flight, until dropped.
struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            last_duration: Gauge::default(),
            durations: Histogram::new(BUCKETS),
            requests: Counter::default(),
            errors: Counter::default(),
            in_flight: Gauge::default(),
            too_large: Counter::default(),
            failed_verifications: Family::default(),
            accepted: Counter::default(),
            coalesced: Counter::default(),
            rejected: Family::default(),
        }
    }

    /// Registers all of them.
    pub(crate) fn register(&self, registry: &mut Registry, collected: Collected) {
        registry.register_collector(Box::new(collected));
        let registry = registry.sub_registry_with_prefix("watcher_listener");
        let mut counter = |name, help, metric: &Counter| {
            registry.register(name, help, metric.clone());
        };
        let help = "Number of requests on the paths of the listener";
        counter("requests", help, &self.requests);
        let help = "Number of requests answered with 4xx or 5xx";
        counter("request_errors", help, &self.errors);
        let help = "Number of requests with a body over the limit";
        counter("exceeding_size_limit_requests", help, &self.too_large);
        let help = "Number of events accepted for the operator";
        counter("events", help, &self.accepted);
        let help = "Number of events equal to a queued one";
        counter("coalesced_events", help, &self.coalesced);
        let help = "Number of requests whose sender was not verified or not allowed";
        let metric = self.failed_verifications.clone();
        registry.register("failed_verification_requests", help, metric);
        let help =
            "Number of events rejected because of a limit of the queue, or because it was closed";
        registry.register("rejected_events", help, self.rejected.clone());
        let help = "Number of requests in flight";
        registry.register("inflight_requests", help, self.in_flight.clone());
        let help = "Duration of the last request in seconds";
        registry.register("request_duration", help, self.last_duration.clone());
        let help = "Time from the header of a request to the response";
        let metric = self.durations.clone();
        registry.register_with_unit("request_duration", help, Unit::Seconds, metric);
    }

    /// Measures all requests on `routes`.
    pub(crate) fn measure<S: Clone + Send + Sync + 'static>(&self, routes: Router<S>) -> Router<S> {
        let metrics = self.clone();
        routes.route_layer(middleware::from_fn(move |request: Request, next: Next| {
            let metrics = metrics.clone();
            async move {
                metrics.requests.inc();
                metrics.in_flight.inc();
                let _in_flight = InFlight(metrics.in_flight.clone());
                let start = Instant::now();
                let response = next.run(request).await;
                metrics.answered(response.status(), start);
                response
            }
        }))
    }

    fn answered(&self, status: StatusCode, start: Instant) {
        let took = start.elapsed().as_secs_f64();
        self.last_duration.set(took);
        self.durations.observe(took);
        if status.is_client_error() || status.is_server_error() {
            self.errors.inc();
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            self.too_large.inc();
        }
    }

    /// A sender on `path` was not verified.
    pub(crate) fn failed_verification(&self, path: &str) {
        let label = [("request_uri_label", path.to_owned())];
        self.failed_verifications.get_or_create(&label).inc();
    }

    /// An event was offered to the queue.
    pub(crate) fn enqueued(&self, result: EnqueueResult) {
        let rejected = |reason| self.rejected.get_or_create(&[("reason", reason)]).inc();
        match result {
            EnqueueResult::Accepted => self.accepted.inc(),
            EnqueueResult::Coalesced => self.coalesced.inc(),
            EnqueueResult::RuntimeLimit => rejected("runtime_limit"),
            EnqueueResult::Full => rejected("queue_full"),
            EnqueueResult::Closed => rejected("queue_closed"),
        };
    }
}

/// Reads everything that is not counted.
pub(crate) struct Collected {
    pub(crate) liveness: Liveness,
    /// The number of queued notifications.
    pub(crate) queued: Box<dyn Fn() -> usize + Send + Sync>,
    /// Whether there are series for each runtime.
    pub(crate) per_runtime: bool,
}

impl fmt::Debug for Collected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Collected").finish_non_exhaustive()
    }
}

/// The gauges of each runtime, then its counters, in the order of [`values`]: name, help, whether it is in seconds.
#[rustfmt::skip]
const RUNTIME_METRICS: [(&str, &str, bool); 8] = [
    ("heartbeat_age", "Time since the last heartbeat of the runtime", true),
    ("last_review_age", "Time since the last admission review that reached a watcher of the runtime", true),
    ("watchers_alive", "Number of replicas of the watcher on the runtime that send heartbeats", false),
    ("certificate_expiration_timestamp", "Earliest expiration of the certificates that the watchers of the runtime present", true),
    ("spooled_events", "Number of undelivered events on the runtime, from the last heartbeats of its watchers", false),
    ("oldest_spooled_event_age", "Age of the oldest undelivered event on the runtime, from the last heartbeats of its watchers", true),
    ("runtime_missing_events", "Number of numbered events of the runtime that did not arrive", false),
    ("runtime_resyncs_required", "Number of required resyncs of the runtime", false),
];

/// How many of [`RUNTIME_METRICS`] are gauges.
const GAUGES: usize = 6;

type Values = [Option<f64>; RUNTIME_METRICS.len()];

/// What is reported of one runtime. Values of watchers are those of the live ones: others may be gone, or have thousands of
/// events by now.
fn values(runtime: &Runtime, now: Instant) -> Values {
    let live = runtime.live(now);
    let spooled = live.clone().map(|beat| beat.spool_depth);
    let expirations = live.clone().filter_map(|beat| beat.certificate_not_after);
    let expirations = expirations.map(|seconds| u64::try_from(seconds).unwrap_or_default());
    let since_heartbeat = runtime.since_heartbeat(now);
    let seconds = |since: Option<Duration>| since.as_ref().map(Duration::as_secs_f64);
    [
        seconds(since_heartbeat),
        seconds(runtime.since_review(now)),
        since_heartbeat.map(|_| float(live.clone().fold(0, |count, _| count + 1))),
        expirations.min().map(float),
        spooled.reduce(u64::saturating_add).map(float),
        live.map(|beat| beat.oldest_age_seconds).max().map(float),
        Some(float(runtime.lost_events())),
        Some(float(runtime.resyncs)),
    ]
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let totals = self.liveness.totals();
        #[rustfmt::skip]
        let gauges = [
            ("queued_events", "Number of notifications queued for the operator", (self.queued)()),
            ("known_runtimes", "Number of runtimes that sent a heartbeat or event, or are expected to", totals.known),
            ("unresponsive_runtimes", "Number of runtimes without heartbeats or admission reviews", totals.unresponsive),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            write(&mut encoder, name, help, &gauge)?;
        }
        #[rustfmt::skip]
        let counters = [
            ("evicted_runtimes", "Number of runtimes evicted at the limit", totals.evicted),
            ("missing_events", "Number of numbered events that did not arrive", totals.missing_events),
            ("resyncs_required", "Number of required resyncs", totals.resyncs_required),
        ];
        for (name, help, value) in counters {
            write(&mut encoder, name, help, &ConstCounter::new(value))?;
        }
        if self.per_runtime {
            let read = |id: &RuntimeId, runtime: &Runtime, now| (id.clone(), values(runtime, now));
            encode_runtimes(&mut encoder, &self.liveness.each(read))?;
        }
        Ok(())
    }
}

fn encode_runtimes(
    encoder: &mut DescriptorEncoder<'_>,
    runtimes: &[(RuntimeId, Values)],
) -> Result<(), fmt::Error> {
    for (at, (name, help, in_seconds)) in RUNTIME_METRICS.iter().enumerate() {
        let metric_type = if at < GAUGES {
            ConstGauge::new(0.0).metric_type()
        } else {
            ConstCounter::new(0.0).metric_type()
        };
        let name = format!("watcher_listener_{name}");
        let unit = in_seconds.then_some(&Unit::Seconds);
        let mut metric = encoder.encode_descriptor(&name, help, unit, metric_type)?;
        for (id, values) in runtimes {
            let Some(value) = values[at] else { continue };
            let label: Label<&str> = [("runtime_id", id.as_str())];
            let series = metric.encode_family(&label)?;
            if at < GAUGES {
                ConstGauge::new(value).encode(series)?;
            } else {
                ConstCounter::new(value).encode(series)?;
            }
        }
    }
    Ok(())
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    let name = format!("watcher_listener_{name}");
    metric.encode(encoder.encode_descriptor(&name, help, None, metric.metric_type())?)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are floating point; above 2^53 single events and seconds do not matter"
)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
