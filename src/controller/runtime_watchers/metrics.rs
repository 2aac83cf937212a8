//! Metrics of the watcher on runtimes.

use component_base::metrics::{Labels, LateMetrics, family};
use policy::sync::plan::Action;
use policy::watchers::RuntimeCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the watcher on runtimes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RuntimeWatcherMetrics {
    runtimes: Family<Labels<1>, Gauge>,
    reconciles: Family<Labels<1>, Counter>,
    writes: Family<Labels<3>, Counter>,
    limit_waiting: Family<Labels<1>, Gauge>,
    /// The metrics of the listener for heartbeats, which runs on the leader.
    pub(super) listener: LateMetrics,
}

impl RuntimeWatcherMetrics {
    /// Exposes the metrics of the listener for heartbeats by this handle.
    #[must_use]
    pub fn with_listener(self, listener: LateMetrics) -> Self {
        Self { listener, ..self }
    }

    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let runtimes = "Number of runtimes by the state of their watcher; Installed if nothing differs (0 on replicas that do not lead)";
        let waiting = "Number of reconciles of the watcher on a runtime that wait because others hold all permits, by limit";
        let reconciles = "Number of reconciles of the watcher on a runtime, by result";
        let writes =
            "Number of writes of the watcher's objects on runtimes, by action, kind and result";
        Self {
            runtimes: family(registry, "runtime_watchers", runtimes, ["state"]),
            reconciles: family(
                registry,
                "runtime_watcher_reconciles",
                reconciles,
                ["result"],
            ),
            writes: family(
                registry,
                "runtime_watcher_writes",
                writes,
                ["action", "kind", "result"],
            ),
            limit_waiting: family(
                registry,
                "runtime_watcher_limit_waiting",
                waiting,
                ["limit"],
            ),
            listener: LateMetrics::default(),
        }
    }

    /// The gauge of reconciles that wait for a permit of a limit.
    pub(super) fn limit(&self, limit: &'static str) -> Gauge {
        self.limit_waiting.get_or_create_owned(&[("limit", limit)])
    }

    pub(super) fn show(&self, counts: &RuntimeCounts) {
        self.runtimes.clear();
        let set = |state, count: usize| {
            let gauge = self.runtimes.get_or_create_owned(&[("state", state)]);
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
        let labels = [("result", result(is_ok))];
        self.reconciles.get_or_create(&labels).inc();
    }

    pub(super) fn wrote(&self, action: &Action, is_ok: bool) {
        let labels = [
            ("action", action.verb()),
            ("kind", action.target().kind()),
            ("result", result(is_ok)),
        ];
        self.writes.get_or_create(&labels).inc();
    }
}

fn result(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "error" }
}
