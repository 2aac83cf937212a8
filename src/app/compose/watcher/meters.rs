//! Metrics of the watcher, with the prefix of the public watcher.

use component_base::metrics::Metrics;
use serve::Statistics;
use watcher::metrics::{State, WatcherMetrics};

use crate::compose::build_info;

const PREFIX: &str = "watcher";

/// Registers all metrics, with those of the servers of the process.
pub(crate) fn register(
    state: State,
    servers: impl IntoIterator<Item = (&'static str, Statistics)>,
) -> (WatcherMetrics, Metrics) {
    let mut metrics = Metrics::new(PREFIX, build_info());
    let counters = WatcherMetrics::register(metrics.registry());
    serve::metrics::register_servers(metrics.registry(), servers);
    state.register(metrics.registry());
    (counters, metrics)
}
