//! Metrics of the watcher on runtimes.

use component_base::metrics::create_series;
use policy::sync::plan::Action;
use policy::watchers::RuntimeCounts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the watcher on runtimes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RuntimeWatcherMetrics {
    runtimes: Family<State, Gauge>,
    reconciles: Family<ReconcileResult, Counter>,
    writes: Family<Written, Counter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileResult {
    result: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    action: &'static str,
    kind: &'static str,
    result: &'static str,
}

impl RuntimeWatcherMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "runtime_watchers",
            "Number of runtimes by the state of their watcher; Installed if nothing differs (0 on replicas that do not lead)",
            metrics.runtimes.clone(),
        );
        registry.register(
            "runtime_watcher_reconciles",
            "Number of reconciles of the watcher on a runtime, by result",
            metrics.reconciles.clone(),
        );
        registry.register(
            "runtime_watcher_writes",
            "Number of writes of the watcher's objects on runtimes, by action, kind and result",
            metrics.writes.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.runtimes);
        create_series(&self.reconciles);
        create_series(&self.writes);
    }

    pub(super) fn show(&self, counts: &RuntimeCounts) {
        self.runtimes.clear();
        let set = |state, count: usize| {
            let gauge = self.runtimes.get_or_create_owned(&State { state });
            gauge.set(count.try_into().unwrap_or(i64::MAX));
        };
        if counts.configured > 0 {
            set(super::report::INSTALLED, counts.configured);
        }
        for (reason, count) in &counts.others {
            set(reason, *count);
        }
    }

    pub(super) fn reconciled(&self, is_ok: bool) {
        let result = if is_ok { "success" } else { "error" };
        self.reconciles
            .get_or_create(&ReconcileResult { result })
            .inc();
    }

    pub(super) fn wrote(&self, action: &Action, is_ok: bool) {
        let written = Written {
            action: action.verb(),
            kind: action.target().kind(),
            result: if is_ok { "success" } else { "error" },
        };
        self.writes.get_or_create(&written).inc();
    }
}
