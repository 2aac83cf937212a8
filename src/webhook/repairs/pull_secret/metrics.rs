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
    errors: Family<Kind, Counter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

impl MirrorMetrics {
    /// Metrics that the registry shows: `pull_secret_copies`, `pull_secret_foreign`,
    /// `pull_secret_writes_total{action}` and `pull_secret_errors_total{kind}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "pull_secret_copies",
            "Copies of the pull Secret that are ours (0 on replicas that do not lead)",
            metrics.copies.clone(),
        );
        registry.register(
            "pull_secret_foreign",
            "Namespaces that need the pull Secret and hold a foreign one of its name",
            metrics.foreign.clone(),
        );
        registry.register(
            "pull_secret_writes",
            "Writes of copies that succeeded",
            metrics.writes.clone(),
        );
        registry.register(
            "pull_secret_errors",
            "Failures to write a copy, to list the Pods that may use one, or to report a foreign Secret",
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

    pub(super) fn failed(&self, kind: &'static str) {
        self.errors.get_or_create(&Kind { kind }).inc();
    }
}
