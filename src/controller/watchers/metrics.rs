//! Metrics of the controller `watchers`.

use std::collections::BTreeMap;

use api::watcher::WatcherState;
use component_base::metrics::create_series;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the controller `watchers`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct WatcherMetrics {
    watchers: Family<State, Gauge>,
    reconciles: Family<ReconcileResult, Counter>,
    writes: Family<Verb, Counter>,
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
struct Verb {
    verb: &'static str,
}

impl WatcherMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "watchers",
            "Number of Watchers by state; Unreadable if this version of the controller cannot read it (0 on replicas that do not lead)",
            metrics.watchers.clone(),
        );
        registry.register(
            "watcher_reconcile",
            "Number of reconciles of Watchers, by result",
            metrics.reconciles.clone(),
        );
        registry.register(
            "virtual_service_writes",
            "Number of successful writes of VirtualServices, by verb: create, update, delete",
            metrics.writes.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.watchers);
        create_series(&self.reconciles);
        create_series(&self.writes);
    }

    /// Sets the number of Watchers by state; `None` is the state of one that cannot be read.
    pub(super) fn show(&self, states: impl IntoIterator<Item = Option<WatcherState>>) {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for state in states {
            *counts.entry(state.map_or("Unreadable", name)).or_default() += 1;
        }
        self.watchers.clear();
        for (state, count) in counts {
            self.watchers.get_or_create(&State { state }).set(count);
        }
    }

    pub(super) fn reconciled(&self, result: &'static str) {
        self.reconciles
            .get_or_create(&ReconcileResult { result })
            .inc();
    }

    pub(super) fn wrote(&self, verb: &'static str) {
        self.writes.get_or_create(&Verb { verb }).inc();
    }
}

/// The state as a label.
fn name(state: WatcherState) -> &'static str {
    match state {
        WatcherState::Unknown => "Unknown",
        WatcherState::Processing => "Processing",
        WatcherState::Deleting => "Deleting",
        WatcherState::Ready => "Ready",
        WatcherState::Error => "Error",
        WatcherState::Warning => "Warning",
        WatcherState::Unmanaged => "Unmanaged",
    }
}
