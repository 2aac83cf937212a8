//! Metrics of the controller `watchers`.

use std::collections::BTreeMap;

use api::watcher::WatcherState;
use component_base::metrics::{Labels, family};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the controller `watchers`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct WatcherMetrics {
    watchers: Family<Labels<1>, Gauge>,
    reconciles: Family<Labels<1>, Counter>,
    writes: Family<Labels<1>, Counter>,
}

impl WatcherMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let watchers = "Number of Watchers by state; Unreadable if this version of the controller cannot read it (0 on replicas that do not lead)";
        let reconciles = "Number of reconciles of Watchers, by result";
        let writes =
            "Number of successful writes of VirtualServices, by verb: create, update, delete";
        Self {
            watchers: family(registry, "watchers", watchers, ["state"]),
            reconciles: family(registry, "watcher_reconcile", reconciles, ["result"]),
            writes: family(registry, "virtual_service_writes", writes, ["verb"]),
        }
    }

    /// Sets the number of Watchers by state; `None` is the state of a Watcher that cannot be read.
    pub(super) fn show(&self, states: impl IntoIterator<Item = Option<WatcherState>>) {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for state in states {
            *counts.entry(state.map_or("Unreadable", name)).or_default() += 1;
        }
        self.watchers.clear();
        for (state, count) in counts {
            self.watchers.get_or_create(&[("state", state)]).set(count);
        }
    }

    pub(super) fn reconciled(&self, result: &'static str) {
        self.reconciles.get_or_create(&[("result", result)]).inc();
    }

    pub(super) fn wrote(&self, verb: &'static str) {
        self.writes.get_or_create(&[("verb", verb)]).inc();
    }
}

/// Returns the state as a label.
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
