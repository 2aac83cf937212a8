//! The metrics of one process, as OpenMetrics text.
//!
//! Metrics of the component have the prefix that the caller sets. Metrics that other projects define have no prefix:
//! `process_*` as in all Prometheus client libraries, `rest_client_*` and `leader_election_*` as in client-go. Invariant:
//! there is no global registry; each module registers its metrics before the process serves and keeps the handle, except
//! [`LateMetrics`]. Not in here: HTTP (see [`crate::admin`]) and metrics of a component.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

use self::process::ProcessCollector;

mod process;

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Build information, exposed as `<prefix>_build_info`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildInfo {
    /// Version of the release.
    pub version: String,
    /// Source revision, or "unknown".
    pub revision: String,
}

/// Names and values of the labels of a series, in the order in which they are exposed.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Creates a metric that the registry exposes.
pub fn register<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: Metric + Clone + Default,
{
    expose(registry, name, help, M::default())
}

/// Registers a metric, and returns it.
pub fn expose<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: Metric + Clone,
{
    registry.register(name, help, metric.clone());
    metric
}

/// Creates a family that the registry exposes, with the names of the labels of its series.
///
/// A family without a series is not exposed. The `Debug` text of the registry contains its type and labels all the same, for
/// the reference in the documentation.
pub fn family<V, M, const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    labels: [&'static str; N],
) -> Family<[(&'static str, V); N], M>
where
    V: EncodeLabelValue + Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static,
    M: EncodeMetric + TypedMetric + Default + fmt::Debug + Send + Sync + 'static,
{
    let family = Family::default();
    let labeled = Labeled {
        labels,
        family: family.clone(),
    };
    registry.register(name, help, labeled);
    family
}

/// A family with the names of its labels.
struct Labeled<F, const N: usize> {
    labels: [&'static str; N],
    family: F,
}

impl<F: EncodeMetric, const N: usize> fmt::Debug for Labeled<F, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.family.metric_type();
        write!(f, "Labeled({}: {})", kind.as_str(), self.labels.join(","))
    }
}

impl<F: EncodeMetric, const N: usize> EncodeMetric for Labeled<F, N> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.family.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.family.metric_type()
    }

    fn is_empty(&self) -> bool {
        self.family.is_empty()
    }
}

/// Metrics of a part of the process that starts later, such as a server on the leader. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LateMetrics(Arc<OnceLock<Registry>>);

impl LateMetrics {
    /// Exposes the metrics of a registry. Only the first registry is exposed.
    pub fn expose(&self, registry: Registry) {
        // The registry of another start has the same names.
        let _ = self.0.set(registry);
    }
}

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    product: Registry,
    process: Registry,
    late: LateMetrics,
}

impl Metrics {
    /// Creates a registry with a prefix, build information and the metrics of this process.
    #[must_use]
    pub fn new(prefix: &str, build: BuildInfo) -> Self {
        let mut product = Registry::with_prefix(prefix);
        let help = "Version and source revision of the binary";
        product.register("build", help, Info::new(build));
        let mut process = Registry::default();
        process.register_collector(Box::new(ProcessCollector));
        Self {
            product,
            process,
            late: LateMetrics::default(),
        }
    }

    /// Returns the registry of the metrics of the component, with the prefix.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.product
    }

    /// Returns the registry of metrics whose names client-go defines, without a prefix.
    pub fn unprefixed(&mut self) -> &mut Registry {
        &mut self.process
    }

    /// Returns the handle of metrics that are registered while the process serves, without the prefix.
    #[must_use]
    pub fn late(&self) -> LateMetrics {
        self.late.clone()
    }

    /// Returns all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// A metric cannot be written as text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.product)?;
        encode_registry(&mut text, &self.process)?;
        if let Some(late) = self.late.0.get() {
            encode_registry(&mut text, late)?;
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn names_have_the_prefix_but_those_of_the_process() {
        let mut metrics = Metrics::new(
            "bootstrapper",
            BuildInfo {
                version: "1.2.3".to_owned(),
                revision: "abc".to_owned(),
            },
        );
        let reviews: Counter = Counter::default();
        metrics
            .registry()
            .register("reviews", "Reviews answered", reviews.clone());
        reviews.inc_by(3);

        let text = metrics.encode().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.contains(&"bootstrapper_build_info{version=\"1.2.3\",revision=\"abc\"} 1"),
            "{text}"
        );
        assert!(lines.contains(&"bootstrapper_reviews_total 3"), "{text}");
        assert!(
            lines.contains(&"# TYPE process_resident_memory_bytes gauge"),
            "{text}"
        );
        assert_eq!(lines.last(), Some(&"# EOF"));
        assert_eq!(text.matches("# EOF").count(), 1);
    }
}
