//! Metrics of mode `signal`. Labels are closed sets; no label names a Runtime.

use std::time::Duration;

use component_base::metrics::{Labels, family, register};
use policy::sync::signal::Counts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of mode `signal`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SignalMetrics {
    writes: Family<Labels<1>, Counter>,
    errors: Family<Labels<1>, Counter>,
    state_invalid: Family<Labels<1>, Gauge>,
    pending: Gauge,
    unacknowledged: Gauge,
    oldest: Gauge,
}

impl SignalMetrics {
    /// Registers the metrics: `signal_writes_total{action}`, `signal_write_errors_total{reason}`,
    /// `signal_state_invalid{reason}`, `signal_pending_runtimes`, `signal_unacknowledged_runtimes` and
    /// `signal_oldest_unacknowledged_age_seconds`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let writes = "Number of successful writes of Runtimes, by action: signals set, keys removed, signals marked as stale";
        let errors = "Number of failed writes of Runtimes, by reason; they are retried";
        let state_invalid =
            "Whether no Runtime is signaled because the state ConfigMap is invalid (1), by reason";
        let pending =
            "Number of Runtimes that are not signaled yet (0 on replicas that do not lead)";
        let unacknowledged = "Number of Runtimes whose signal KIM has not acknowledged, without suspended ones (0 on replicas that do not lead)";
        let oldest = "Age of the oldest signal that KIM has not acknowledged, without suspended Runtimes; 0 if there is none";
        Self {
            writes: family(registry, "signal_writes", writes, ["action"]),
            errors: family(registry, "signal_write_errors", errors, ["reason"]),
            state_invalid: family(registry, "signal_state_invalid", state_invalid, ["reason"]),
            pending: register(registry, "signal_pending_runtimes", pending),
            unacknowledged: register(registry, "signal_unacknowledged_runtimes", unacknowledged),
            oldest: register(registry, "signal_oldest_unacknowledged_age_seconds", oldest),
        }
    }

    pub(super) fn wrote(&self, action: &'static str) {
        self.writes.get_or_create(&[("action", action)]).inc();
    }

    pub(super) fn failed(&self, reason: &'static str) {
        self.errors.get_or_create(&[("reason", reason)]).inc();
    }

    /// Sets the reason why the state cannot be used; `None` if it can be used.
    pub(super) fn state_invalid(&self, reason: Option<&'static str>) {
        self.state_invalid.clear();
        if let Some(reason) = reason {
            self.state_invalid
                .get_or_create(&[("reason", reason)])
                .set(1);
        }
    }

    /// Sets the numbers of Runtimes and the age of the oldest signal. A replica that is not the leader reports 0.
    pub(super) fn show(&self, counts: &Counts, oldest: Duration) {
        self.pending.set(counts.waiting.into());
        self.unacknowledged.set(counts.unacknowledged.into());
        self.oldest
            .set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
    }
}
