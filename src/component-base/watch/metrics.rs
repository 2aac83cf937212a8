//! The metric of failing watches.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::family;

/// `<prefix>_watch_failing{watch}`. Clones share the gauge.
///
/// `watch` is the name of the readiness check of the watch. The value is 1 from a failed request or stream until the
/// API server responds again, otherwise 0. The watches of the leader are 0 on other replicas.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics(Family<[(&'static str, String); 1], Gauge>);

impl WatchMetrics {
    /// Registers the gauge.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let help = "Whether a watch on the API server fails (1), so that changes are not observed; 0 on replicas that do not run it";
        Self(family(registry, "watch_failing", help, ["watch"]))
    }

    pub(super) fn set(&self, watch: &str, is_failing: bool) {
        let labels = [("watch", watch.to_owned())];
        self.0.get_or_create(&labels).set(is_failing.into());
    }

    #[cfg(test)]
    pub(super) fn is_failing(&self, watch: &str) -> Option<bool> {
        let labels = [("watch", watch.to_owned())];
        self.0.get(&labels).map(|it| it.get() == 1)
    }
}
