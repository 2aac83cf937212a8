//! The watcher's metrics, under the public watcher's prefix.

use chassis::metrics::{BuildInfo, Metrics};
use watcher::metrics::{State, WatcherMetrics};

const PREFIX: &str = "watcher";

/// Registers everything.
pub(crate) fn register(state: State) -> (WatcherMetrics, Metrics) {
    let build = BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: option_env!("REVISION").unwrap_or("unknown").to_owned(),
    };
    let mut metrics = Metrics::new(PREFIX, build);
    let counters = WatcherMetrics::register(metrics.registry());
    state.register(metrics.registry());
    (counters, metrics)
}
