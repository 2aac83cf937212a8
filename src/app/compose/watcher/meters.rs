//! Metrics of the watcher, with the prefix of the public watcher.

use component_base::metrics::Metrics;
use watcher::metrics::{State, WatcherMetrics};

use crate::compose::build_info;

const PREFIX: &str = "watcher";

/// Registers all metrics.
pub(crate) fn register(state: State) -> (WatcherMetrics, Metrics) {
    let mut metrics = Metrics::new(PREFIX, build_info());
    let counters = WatcherMetrics::register(metrics.registry());
    state.register(metrics.registry());
    (counters, metrics)
}
