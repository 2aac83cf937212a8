//! Metrics of mode `signal`. Labels are closed sets; names of Runtimes are not among them.

use std::time::Duration;

use component_base::metrics::create_series;
use policy::sync::signal::Counts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The signal's metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SignalMetrics {
    writes: Family<Action, Counter>,
    errors: Family<Reason, Counter>,
    state_invalid: Family<Reason, Gauge>,
    pending: Gauge,
    unacknowledged: Gauge,
    oldest: Gauge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl SignalMetrics {
    /// Metrics that the registry shows: `signal_writes_total{action}`, `signal_write_errors_total{reason}`,
    /// `signal_state_invalid{reason}`, `signal_pending_runtimes`, `signal_unacknowledged_runtimes` and `signal_oldest_unacknowledged_age_seconds`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "signal_writes",
            "Number of successful writes of Runtimes, by action: signals set, keys removed, signals marked as stale",
            metrics.writes.clone(),
        );
        registry.register(
            "signal_write_errors",
            "Number of failed writes of Runtimes, by reason; they are retried",
            metrics.errors.clone(),
        );
        registry.register(
            "signal_state_invalid",
            "Whether no Runtime is signaled because the state ConfigMap is invalid (1), by reason",
            metrics.state_invalid.clone(),
        );
        registry.register(
            "signal_pending_runtimes",
            "Number of Runtimes that are not signaled yet (0 on replicas that do not lead)",
            metrics.pending.clone(),
        );
        registry.register(
            "signal_unacknowledged_runtimes",
            "Number of Runtimes whose signal KIM has not acknowledged, without suspended ones (0 on replicas that do not lead)",
            metrics.unacknowledged.clone(),
        );
        registry.register(
            "signal_oldest_unacknowledged_age_seconds",
            "Age of the oldest signal that KIM has not acknowledged, without suspended Runtimes; 0 if there is none",
            metrics.oldest.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.writes);
        create_series(&self.errors);
        create_series(&self.state_invalid);
    }

    pub(super) fn wrote(&self, action: &'static str) {
        self.writes.get_or_create(&Action { action }).inc();
    }

    pub(super) fn failed(&self, reason: &'static str) {
        self.errors.get_or_create(&Reason { reason }).inc();
    }

    /// Why the state cannot be used; `None` if it can.
    pub(super) fn state_invalid(&self, reason: Option<&'static str>) {
        self.state_invalid.clear();
        if let Some(reason) = reason {
            self.state_invalid.get_or_create(&Reason { reason }).set(1);
        }
    }

    /// Sets the numbers of Runtimes and the age of the oldest signal. A replica that does not lead shows zeros.
    pub(super) fn show(&self, counts: &Counts, oldest: Duration) {
        self.pending.set(counts.waiting.into());
        self.unacknowledged.set(counts.unacknowledged.into());
        self.oldest
            .set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
    }
}
