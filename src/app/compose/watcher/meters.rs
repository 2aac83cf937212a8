//! The watcher's metrics, under the public watcher's prefix.

use component_base::metrics::Metrics;
use watcher::metrics::{State, WatcherMetrics};

use crate::compose::build_info;

const PREFIX: &str = "watcher";

/// Registers everything.
pub(crate) fn register(state: State) -> (WatcherMetrics, Metrics) {
    let mut metrics = Metrics::new(PREFIX, build_info());
    let counters = WatcherMetrics::register(metrics.registry());
    state.register(metrics.registry());
    (counters, metrics)
}
