//! What the mirror counts. Labels are closed sets; namespaces are never among them.

use chassis::metrics::create_series;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The mirror's metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MirrorMetrics {
    copies: Gauge,
    foreign: Gauge,
    writes: Family<Action, Counter>,
    errors: Family<Reason, Counter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl MirrorMetrics {
    /// Metrics that the registry shows: `pull_secret_copies`, `pull_secret_conflicts`,
    /// `pull_secret_writes_total{action}` and `pull_secret_write_errors_total{reason}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "pull_secret_copies",
            "Number of copies of the pull Secret (0 on replicas that do not lead)",
            metrics.copies.clone(),
        );
        registry.register(
            "pull_secret_conflicts",
            "Number of namespaces that need a copy and have a Secret of that name by another client",
            metrics.foreign.clone(),
        );
        registry.register(
            "pull_secret_writes",
            "Number of successful writes of copies of the pull Secret, by action",
            metrics.writes.clone(),
        );
        registry.register(
            "pull_secret_write_errors",
            "Number of failures to write a copy, list Pods that may use it, or report a conflict, by reason",
            metrics.errors.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`chassis::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.writes);
        create_series(&self.errors);
    }

    pub(super) fn set_copies(&self, count: usize) {
        self.copies.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn set_foreign(&self, count: usize) {
        self.foreign.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn wrote(&self, action: &'static str) {
        self.writes.get_or_create(&Action { action }).inc();
    }

    pub(super) fn failed(&self, reason: &'static str) {
        self.errors.get_or_create(&Reason { reason }).inc();
    }
}
