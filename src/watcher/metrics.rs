//! Metrics of a watcher: the six names of the public watcher with the same counting, and further metrics with units.
//!
//! The registry adds the prefix `watcher_`, and names of counters end in `_total`. A sender of reviews cannot choose a
//! label value. Values that other modules already store are read at a scrape ([`State`]).

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use component_base::metrics::{family, register};
use policy::change::SkipReason;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

mod state;

#[cfg(test)]
mod tests;

pub use self::state::State;

/// A response takes tens of microseconds. The last buckets are for the delivery mode `sync`, which waits for KCP.
const BUCKETS: [f64; 12] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.05, 0.5, 5.0, 15.0,
];

/// `error_reason` of a failed POST: no response, or a status other than 2xx.
pub const FAILED_REQUEST: &str = "failed-request";

/// `error_reason` of a POST that was not sent, because there are no usable certificates.
pub const REQUEST_SETUP: &str = "request-setup";

type Label = [(&'static str, &'static str); 1];

/// Metrics of one watcher. Clones share the metrics.
#[derive(Clone, Debug)]
pub struct WatcherMetrics {
    /// Number of requests on the admission endpoint.
    pub(crate) reviews: Counter,
    /// Number of requests that were not a valid AdmissionReview.
    pub(crate) rejected: Counter,
    rejections: Family<Label, Counter>,
    /// Number of events for KCP.
    pub(crate) events: Counter,
    failed: Family<Label, Counter>,
    last_duration: Gauge<f64, AtomicU64>,
    durations: Histogram,
    skipped: Family<Label, Counter>,
    stored: Family<Label, Counter>,
    /// Number of events that KCP accepted.
    pub(crate) delivered: Counter,
    refused: Family<Label, Counter>,
    heartbeats: Family<Label, Counter>,
}

impl WatcherMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let durations = Histogram::new(BUCKETS);
        registry.register_with_unit(
            "admission_duration",
            "Time from the last byte of a review to the first byte of the response",
            Unit::Seconds,
            durations.clone(),
        );
        // State of FIPS mode, as Go reports it. This build has none.
        let help = "FIPS mode: 0 off, 1 on, 2 only";
        let _always_0: Gauge<i64> = register(registry, "fips_mode", help);
        let reviews = "Number of requests on the admission endpoint";
        let rejected = "Number of requests that were not a valid AdmissionReview";
        let events = "Number of events for KCP, however many requests each took";
        let failed =
            "Number of failed requests to KCP, and of reviews without a usable event, by reason";
        let last_duration = "Duration of the last response in seconds";
        let rejections =
            "Number of requests rejected with 4xx before their body was read, by reason";
        let skipped = "Number of reviews that were skipped, so that no event is sent, by reason";
        let stored = "Number of events given to the outbox, by result";
        let delivered = "Number of events delivered to KCP, follow-up events included";
        let refused = "Number of failed deliveries of events, by reason";
        let heartbeats = "Number of heartbeats, by result";
        Self {
            reviews: register(registry, "admission_request", reviews),
            rejected: register(registry, "admission_request_error", rejected),
            events: register(registry, "kcp_requests", events),
            failed: family(registry, "failed_kcp", failed, ["error_reason"]),
            last_duration: register(registry, "request_duration", last_duration),
            durations,
            rejections: family(registry, "admission_rejections", rejections, ["reason"]),
            skipped: family(registry, "skipped_reviews", skipped, ["reason"]),
            stored: family(registry, "enqueued_events", stored, ["result"]),
            delivered: register(registry, "delivered_events", delivered),
            refused: family(registry, "delivery_failures", refused, ["reason"]),
            heartbeats: family(registry, "heartbeats", heartbeats, ["result"]),
        }
    }

    /// Counts a request whose path names a manager that is not configured.
    pub(crate) fn not_configured(&self) {
        let reason = [("reason", "manager_not_configured")];
        self.rejections.get_or_create(&reason).inc();
    }

    /// Records the time from the last byte of a request to its response.
    pub(crate) fn answered(&self, after: Duration) {
        self.last_duration.set(after.as_secs_f64());
        self.durations.observe(after.as_secs_f64());
    }

    /// Counts a skipped review.
    pub(crate) fn skipped(&self, skip_reason: &SkipReason) {
        let reason = [("reason", skip_reason.code())];
        self.skipped.get_or_create(&reason).inc();
        if let Some(error_reason) = error_reason(skip_reason) {
            self.failed(error_reason);
        }
    }

    /// Counts an event by the result of storing it in the outbox.
    pub(crate) fn stored(&self, result: &'static str) {
        self.stored.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a failure in `watcher_failed_kcp_total`. Each failed attempt of a POST counts once, so an event that is
    /// accepted at the fourth attempt counts three failures, as in the public watcher.
    pub(crate) fn failed(&self, error_reason: &'static str) {
        let reason = [("error_reason", error_reason)];
        self.failed.get_or_create(&reason).inc();
    }

    /// Counts a request that KCP did not accept, by the kind of the error.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a heartbeat, with the result `accepted`, `unsupported` or `error`.
    pub(crate) fn heartbeat(&self, result: &'static str) {
        self.heartbeats.get_or_create(&[("result", result)]).inc();
    }
}

/// Returns the error reason of skipped reviews whose change may be missed. The first reason is from the public watcher,
/// which sends the other events with empty names.
fn error_reason(reason: &SkipReason) -> Option<&'static str> {
    match reason {
        SkipReason::InvalidSubresource { .. } => Some("invalid-subresource"),
        SkipReason::UnknownOperation => Some("unknown-operation"),
        SkipReason::ObjectMissing { .. } => Some("missing-object"),
        SkipReason::InvalidObject { .. } => Some("invalid-object"),
        SkipReason::NameMissing { .. } => Some("missing-name"),
        SkipReason::KindMissing { .. } => Some("missing-kind"),
        SkipReason::NameTooLong { .. } => Some("name-too-long"),
        SkipReason::NoChange { .. }
        | SkipReason::NotWatched { .. }
        | SkipReason::ConnectNotSupported { .. }
        | SkipReason::DryRun => None,
    }
}
