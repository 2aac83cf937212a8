//! The metric of failing watches.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// `<prefix>_watch_failing{watch}`. Clones share it.
///
/// `watch` is the name of the readiness check of the watch. The value is 1 from a failed request or stream until the
/// API server responds again, otherwise 0. The watches of the leader are 0 on other replicas.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics(Family<Labels, Gauge>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    watch: String,
}

impl WatchMetrics {
    /// Registers the gauge.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "watch_failing",
            "Whether a watch on the API server fails (1), so that changes are not observed; 0 on replicas that do not run it",
            metrics.0.clone(),
        );
        metrics
    }

    /// Creates one series in the family, for the generated reference: see [`crate::metrics::create_series`].
    pub fn create_series(&self) {
        crate::metrics::create_series(&self.0);
    }

    pub(super) fn set(&self, watch: &str, is_failing: bool) {
        let watch = watch.to_owned();
        self.0
            .get_or_create(&Labels { watch })
            .set(is_failing.into());
    }

    #[cfg(test)]
    pub(super) fn is_failing(&self, watch: &str) -> Option<bool> {
        let watch = watch.to_owned();
        self.0.get(&Labels { watch }).map(|it| it.get() == 1)
    }
}
