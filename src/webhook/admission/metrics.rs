//! Metrics of admission.

use std::array;
use std::sync::{Arc, OnceLock};

use api::Feature;
use component_base::metrics::{family, register};
use policy::admission::review::Operation;
use policy::admission::{Code, Finding};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use strum::IntoEnumIterator as _;

use super::InternalError;

/// A review takes tens of microseconds. The last buckets are for a review that waits for its Namespace, at most
/// [`NAMESPACE_WAIT_TIMEOUT`](super::NAMESPACE_WAIT_TIMEOUT), and for a review after which the API server waits no longer.
const BUCKETS: [f64; 14] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.3,
    1.0, 3.0,
];

/// Metrics of the admission endpoint. Clones share the metrics.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Table<4, 2>,
    decisions: Table<{ Feature::ALL.len() }, { Code::COUNT }>,
    pub(super) internal_errors: Family<[Label; 1], Counter>,
    pub(super) malformed: Counter,
    pub(super) namespace_waits: Family<[Label; 1], Counter>,
    pub(super) duration: Histogram,
}

type Label = (&'static str, &'static str);

/// Counters with two labels of few values each, found by index. A review increments half a dozen of them, and a lookup by
/// labels would cost more than the increment. A counter is added to its family at its first use.
#[derive(Clone, Debug)]
struct Table<const ROWS: usize, const COLUMNS: usize> {
    family: Family<[Label; 2], Counter>,
    seen: Arc<[[OnceLock<Counter>; COLUMNS]; ROWS]>,
}

impl<const ROWS: usize, const COLUMNS: usize> Table<ROWS, COLUMNS> {
    fn new(family: Family<[Label; 2], Counter>) -> Self {
        Self {
            family,
            seen: Arc::new(array::from_fn(|_| array::from_fn(|_| OnceLock::new()))),
        }
    }

    fn counter(&self, row: usize, column: usize, labels: impl FnOnce() -> [Label; 2]) -> &Counter {
        self.seen[row][column].get_or_init(|| self.family.get_or_create(&labels()).clone())
    }
}

impl AdmissionMetrics {
    /// Registers `admission_*`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let reviews = "Number of reviews of Pods, by operation and result";
        let decisions =
            "Number of decisions about features that were opted in to, by feature and reason";
        let errors = "Number of Pods admitted unchanged because of an internal error, by reason";
        let malformed = "Number of requests that were not a valid AdmissionReview";
        let waits = "Number of reviews whose Namespace was not observed yet, by result of the wait";
        let metrics = Self {
            reviews: Table::new(family(
                registry,
                "admission_reviews",
                reviews,
                ["operation", "result"],
            )),
            decisions: Table::new(family(
                registry,
                "admission_decisions",
                decisions,
                ["feature", "reason"],
            )),
            internal_errors: family(registry, "admission_internal_errors", errors, ["reason"]),
            malformed: register(registry, "admission_malformed_requests", malformed),
            namespace_waits: family(registry, "admission_namespace_waits", waits, ["result"]),
            duration: Histogram::new(BUCKETS),
        };
        let help = "Time from the last byte of a review to the first byte of the response";
        registry.register("admission_duration_seconds", help, metrics.duration.clone());
        // Alerts use the increase of these series, which is 0 for the first value of a series.
        for error in InternalError::iter() {
            drop(
                metrics
                    .internal_errors
                    .get_or_create(&[("reason", error.code())]),
            );
        }
        drop(
            metrics
                .namespace_waits
                .get_or_create(&[("result", "limit")]),
        );
        metrics
    }

    pub(super) fn decided(&self, operation: Operation, changed: bool) {
        let labels = || {
            let result = if changed { "changed" } else { "unchanged" };
            [("operation", operation.into()), ("result", result)]
        };
        let counter = (self.reviews).counter(operation as usize, usize::from(changed), labels);
        counter.inc();
    }

    /// Counts the findings. Findings of one kind are adjacent and are counted at once.
    pub(super) fn found(&self, findings: &[Finding<'_>]) {
        let kind = |finding: &Finding<'_>| (finding.feature, finding.reason.code());
        for run in findings.chunk_by(|one, next| kind(one) == kind(next)) {
            let Some((feature, code)) = run.first().map(kind) else {
                continue;
            };
            // Most Pods of a cluster request no feature, which results in five findings.
            if code == Code::NotRequested {
                continue;
            }
            let labels = || [("feature", feature.name()), ("reason", code.name())];
            let counter = (self.decisions).counter(feature as usize, code as usize, labels);
            counter.inc_by(run.len() as u64);
        }
    }
}
