//! What a listener counts, in the registry of the operator that embeds it.
//!
//! Two families: the six names of the public listener, with what they say mended, and ours, with units. All carry
//! `server_name="listener"`. Invariant: nothing is counted twice, and a request that is dropped under way leaves the
//! gauge of requests in flight. Deliberately absent: labels that a sender can choose, but for the ids of runtimes,
//! whose number is bounded.

use std::sync::atomic::AtomicU64;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use self::runtimes::RuntimeCollector;
use crate::liveness::Liveness;
use crate::queue::Depth;

mod runtimes;

/// From a hand-over in memory to a look-up that a slow API server answers.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestUri {
    request_uri_label: String,
}

/// The counters of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    last_duration: Gauge<f64, AtomicU64>,
    durations: Histogram,
    requests: Counter,
    errors: Counter,
    in_flight: Gauge,
    too_large: Counter,
    refused: Family<RequestUri, Counter>,
    pub(crate) accepted: Counter,
    pub(crate) coalesced: Counter,
    pub(crate) turned_away: Counter,
}

/// One request; counted as in flight until dropped.
pub(crate) struct Measured {
    metrics: Metrics,
    began: Instant,
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
            refused: Family::default(),
            accepted: Counter::default(),
            coalesced: Counter::default(),
            turned_away: Counter::default(),
        }
    }

    /// Registers all of them.
    pub(crate) fn register(&self, registry: &mut Registry, liveness: &Liveness, queued: &Depth) {
        let label = ("server_name".into(), "listener".into());
        let registry = registry.sub_registry_with_label(label);
        self.register_public(registry);
        self.register_ours(registry);
        registry.register_collector(Box::new(RuntimeCollector {
            liveness: liveness.clone(),
            queued: queued.clone(),
        }));
    }

    fn register_public(&self, registry: &mut Registry) {
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            registry.register(format!("watcher_listener_{name}"), help, counter.clone());
        };
        counter(
            "requests",
            "Number of requests on the paths of the listener",
            &self.requests,
        );
        counter(
            "request_errors",
            "Number of requests answered with 4xx or 5xx",
            &self.errors,
        );
        counter(
            "exceeding_size_limit_requests",
            "Number of requests with a body over the limit",
            &self.too_large,
        );
        registry.register(
            "watcher_listener_failed_verification_requests",
            "Number of requests whose sender was not verified or not allowed",
            self.refused.clone(),
        );
        registry.register(
            "watcher_listener_inflight_requests",
            "Number of requests in flight",
            self.in_flight.clone(),
        );
        registry.register(
            "watcher_listener_request_duration",
            "Duration of the last request in seconds",
            self.last_duration.clone(),
        );
    }

    fn register_ours(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "watcher_listener_request_duration",
            "Time from the header of a request to the response",
            Unit::Seconds,
            self.durations.clone(),
        );
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            registry.register(format!("watcher_listener_{name}"), help, counter.clone());
        };
        counter(
            "events",
            "Number of events accepted for the operator",
            &self.accepted,
        );
        counter(
            "coalesced_events",
            "Number of events equal to a queued one",
            &self.coalesced,
        );
        counter(
            "rejected_events",
            "Number of events rejected with 503 because the queue was full or closed",
            &self.turned_away,
        );
    }

    /// A request has begun.
    pub(crate) fn begin(&self) -> Measured {
        self.requests.inc();
        self.in_flight.inc();
        Measured {
            metrics: self.clone(),
            began: Instant::now(),
        }
    }

    /// A sender was refused on `path`.
    pub(crate) fn refuse(&self, path: &str) {
        let label = RequestUri {
            request_uri_label: path.to_owned(),
        };
        self.refused.get_or_create(&label).inc();
    }
}

impl Measured {
    /// The request has an answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        let took = self.began.elapsed().as_secs_f64();
        self.metrics.last_duration.set(took);
        self.metrics.durations.observe(took);
        if status.is_client_error() || status.is_server_error() {
            self.metrics.errors.inc();
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            self.metrics.too_large.inc();
        }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
    }
}
