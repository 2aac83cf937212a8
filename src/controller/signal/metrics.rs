//! What the signal counts. Labels are closed sets; runtimes are never among them.

use std::time::Duration;

use component_base::metrics::create_series;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why a write of a Runtime failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Failure {
    Forbidden,
    Gone,
    Conflict,
    Throttled,
    Server,
    Refused,
    Ineffective,
    Unreadable,
    Transport,
}

impl Failure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Refused => "refused",
            Self::Ineffective => "ineffective",
            Self::Unreadable => "unreadable",
            Self::Transport => "transport",
        }
    }
}

/// What is not under way: what an operator should see at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) waiting: usize,
    pub(super) standing: usize,
    pub(super) oldest: Option<Duration>,
}

/// The signal's metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SignalMetrics {
    writes: Family<Action, Counter>,
    errors: Family<Reason, Counter>,
    refused: Family<Reason, Gauge>,
    waiting: Gauge,
    standing: Gauge,
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
            "Number of successful writes of Runtimes, by action: signals set, and remaining keys removed",
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
            metrics.refused.clone(),
        );
        registry.register(
            "signal_pending_runtimes",
            "Number of Runtimes that are not signaled yet (0 on replicas that do not lead)",
            metrics.waiting.clone(),
        );
        registry.register(
            "signal_unacknowledged_runtimes",
            "Number of Runtimes whose signal KIM has not acknowledged (0 on replicas that do not lead)",
            metrics.standing.clone(),
        );
        registry.register(
            "signal_oldest_unacknowledged_age_seconds",
            "Age of the oldest signal that KIM has not acknowledged, 0 if there is none",
            metrics.oldest.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.writes);
        create_series(&self.errors);
        create_series(&self.refused);
    }

    pub(super) fn wrote(&self, action: &'static str) {
        self.writes.get_or_create(&Action { action }).inc();
    }

    pub(super) fn failed(&self, failure: Failure) {
        let reason = failure.name();
        self.errors.get_or_create(&Reason { reason }).inc();
    }

    /// Why nobody is signalled; `None` if that is not so.
    pub(super) fn refused(&self, reason: Option<&'static str>) {
        self.refused.clear();
        if let Some(reason) = reason {
            self.refused.get_or_create(&Reason { reason }).set(1);
        }
    }

    pub(super) fn show(&self, figures: Figures) {
        let Figures {
            waiting,
            standing,
            oldest,
        } = figures;
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.waiting.set(number(waiting));
        self.standing.set(number(standing));
        let seconds = oldest.unwrap_or_default().as_secs();
        self.oldest.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}
