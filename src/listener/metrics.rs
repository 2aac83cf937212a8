//! Metrics of a listener, in the registry of the operator that embeds it: counters of requests and events, and the state of
//! the queue and of the runtimes, which is read at each scrape.
//!
//! Invariant: a sender cannot choose a label value, except runtime IDs, whose number is limited. A value that a runtime
//! does not have is omitted, and never reported as zero. While the lock of the requests is held, only numbers are copied.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::authentication::VerifyError;
use crate::certificate::RuntimeId;
use crate::liveness::{Liveness, Runtime};
use crate::queue::EnqueueResult;
use crate::rejection::Rejection;

/// From an enqueue in memory to a lookup with a slow API server.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// One label with name and value.
type Label<T> = [(&'static str, T); 1];

/// Counters of one listener. Clones share the counters.
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

/// One request in progress, until it is dropped.
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

    /// Registers all metrics.
    pub(crate) fn register(&self, registry: &mut Registry, collected: Collected) {
        let registry = registry.sub_registry_with_prefix("watcher_listener");
        registry.register_collector(Box::new(collected));
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
        let help = "Number of events rejected because of a limit of the queue, because it was closed, or because the \
            verifier had no result; the last also of heartbeats";
        registry.register("rejected_events", help, self.rejected.clone());
        let help = "Number of requests in flight";
        registry.register("inflight_requests", help, self.in_flight.clone());
        let help = "Duration of the last request in seconds";
        registry.register("request_duration", help, self.last_duration.clone());
        let help = "Time from the header of a request to the response";
        let metric = self.durations.clone();
        registry.register_with_unit("request_duration", help, Unit::Seconds, metric);
    }

    /// Creates one series in each family.
    pub(crate) fn create_series(&self) {
        let label = [("request_uri_label", String::new())];
        drop(self.failed_verifications.get_or_create(&label));
        drop(self.rejected.get_or_create(&[("reason", "")]));
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

    /// Counts a rejected request on `path`.
    pub(crate) fn rejection(&self, rejection: &Rejection, path: &str) {
        match rejection {
            Rejection::NotTheGateway
            | Rejection::Forwarded(_)
            | Rejection::Certificate(_)
            | Rejection::Verifier(VerifyError::NoRuntimeId | VerifyError::Denied(_)) => {
                let label = [("request_uri_label", path.to_owned())];
                self.failed_verifications.get_or_create(&label).inc();
            }
            Rejection::Verifier(VerifyError::Unavailable(_)) => {
                let label = [("reason", "verifier_unavailable")];
                self.rejected.get_or_create(&label).inc();
            }
            _ => {}
        }
    }

    /// Counts an event by the result of the queue.
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

/// Collector of the values that are read at a scrape.
pub(crate) struct Collected {
    pub(crate) liveness: Liveness,
    /// Returns the number of queued notifications.
    pub(crate) queued: Box<dyn Fn() -> usize + Send + Sync>,
    /// Whether there are series for each runtime.
    pub(crate) per_runtime: bool,
}

impl fmt::Debug for Collected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Collected").finish_non_exhaustive()
    }
}

/// Values of one runtime, in the order of [`encode_runtimes`].
type Values = [Option<f64>; 8];

/// Returns the reported values of one runtime. Values of watchers include only live watchers, because values of other
/// watchers may be outdated.
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
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.liveness.totals();
        let mut gauge = |name, help, value: usize| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)
        };
        let help = "Number of notifications queued for the operator";
        gauge("queued_events", help, (self.queued)())?;
        let help = "Number of runtimes that sent a heartbeat or event, or are expected to";
        gauge("known_runtimes", help, totals.known)?;
        let help = "Number of runtimes without heartbeats or admission reviews";
        gauge("unresponsive_runtimes", help, totals.unresponsive)?;

        let mut counter = |name, help, value: u64| {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, None, kind)?)
        };
        let help = "Number of runtimes evicted at the limit";
        counter("evicted_runtimes", help, totals.evicted)?;
        let help = "Number of numbered events that did not arrive";
        counter("missing_events", help, totals.missing_events)?;
        let help = "Number of required resyncs";
        counter("resyncs_required", help, totals.resyncs_required)?;

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
) -> fmt::Result {
    let mut places = 0..;
    let mut next = |name, help, kind: MetricType, unit: Option<&Unit>| -> fmt::Result {
        let at = places.next().unwrap_or_default();
        let mut metric = encoder.encode_descriptor(name, help, unit, kind)?;
        for (id, values) in runtimes {
            let Some(value) = values[at] else { continue };
            let label = [("runtime_id", id.as_str())];
            let series = metric.encode_family(&label)?;
            match kind {
                MetricType::Counter => ConstCounter::new(value).encode(series)?,
                _ => ConstGauge::new(value).encode(series)?,
            }
        }
        Ok(())
    };
    let (gauge, counter, seconds) = (MetricType::Gauge, MetricType::Counter, Some(&Unit::Seconds));
    let help = "Time since the last heartbeat of the runtime";
    next("heartbeat_age", help, gauge, seconds)?;
    let help = "Time since the last admission review that reached a watcher of the runtime";
    next("last_review_age", help, gauge, seconds)?;
    let help = "Number of replicas of the watcher on the runtime that send heartbeats";
    next("watchers_alive", help, gauge, None)?;
    let help = "Earliest expiration of the certificates that the watchers of the runtime present";
    next("certificate_expiration_timestamp", help, gauge, seconds)?;
    let help =
        "Number of undelivered events on the runtime, from the last heartbeats of its watchers";
    next("spooled_events", help, gauge, None)?;
    let help = "Age of the oldest undelivered event on the runtime, from the last heartbeats of its watchers";
    next("oldest_spooled_event_age", help, gauge, seconds)?;
    let help = "Number of numbered events of the runtime that did not arrive";
    next("runtime_missing_events", help, counter, None)?;
    let help = "Number of required resyncs of the runtime";
    next("runtime_resyncs_required", help, counter, None)
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
