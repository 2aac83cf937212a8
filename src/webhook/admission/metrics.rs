//! What is counted of admission.

use std::array;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::Feature;
use chassis::metrics::create_series;
use policy::admission::review::Operation;
use policy::admission::{Code, Finding};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// A review takes tens of microseconds; the last buckets are for one that waits for its Namespace.
const BUCKETS: [f64; 12] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.3,
];

/// Counters of the admission endpoint. Clones share them.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Table<ReviewLabels, 4, 2>,
    findings: Table<FindingLabels, { Feature::ALL.len() }, { Code::COUNT }>,
    faults: Family<FaultLabels, Counter>,
    rejected: Counter,
    namespace_waits: Family<WaitLabels, Counter>,
    duration: Histogram,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    feature: &'static str,
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaultLabels {
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    result: &'static str,
}

/// Counters by two labels of few values each, found by their places: a review counts half a dozen, and a look-up by
/// labels costs more than the counting. Each is in its family from its first use.
#[derive(Clone, Debug)]
struct Table<L, const ROWS: usize, const COLUMNS: usize> {
    family: Family<L, Counter>,
    seen: Arc<[[OnceLock<Counter>; COLUMNS]; ROWS]>,
}

impl<L: Labels, const ROWS: usize, const COLUMNS: usize> Default for Table<L, ROWS, COLUMNS> {
    fn default() -> Self {
        Self {
            family: Family::default(),
            seen: Arc::new(array::from_fn(|_| array::from_fn(|_| OnceLock::new()))),
        }
    }
}

impl<L: Labels, const ROWS: usize, const COLUMNS: usize> Table<L, ROWS, COLUMNS> {
    fn counter(&self, row: usize, column: usize, labels: impl FnOnce() -> L) -> &Counter {
        self.seen[row][column].get_or_init(|| self.family.get_or_create(&labels()).clone())
    }
}

/// What a family needs of its labels.
trait Labels: Clone + Eq + std::hash::Hash {}

impl Labels for ReviewLabels {}
impl Labels for FindingLabels {}

impl AdmissionMetrics {
    /// Counters that the registry shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reviews: Table::default(),
            findings: Table::default(),
            faults: Family::default(),
            rejected: Counter::default(),
            namespace_waits: Family::default(),
            duration: Histogram::new(BUCKETS),
        };
        registry.register(
            "admission_reviews",
            "Number of reviews of Pods, by operation and result",
            metrics.reviews.family.clone(),
        );
        registry.register(
            "admission_decisions",
            "Number of decisions about features that were opted in to, by feature and reason",
            metrics.findings.family.clone(),
        );
        registry.register(
            "admission_internal_errors",
            "Number of Pods admitted unchanged because of an internal error, by reason",
            metrics.faults.clone(),
        );
        registry.register(
            "admission_malformed_requests",
            "Number of requests that were not a valid AdmissionReview",
            metrics.rejected.clone(),
        );
        registry.register(
            "admission_namespace_waits",
            "Number of reviews whose Namespace was not observed yet, by result of the wait",
            metrics.namespace_waits.clone(),
        );
        registry.register(
            "admission_duration_seconds",
            "Time from the last byte of a review to the first byte of the response",
            metrics.duration.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`chassis::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.reviews.family);
        create_series(&self.findings.family);
        create_series(&self.faults);
        create_series(&self.namespace_waits);
    }

    pub(super) fn decided(&self, operation: Operation, changed: bool) {
        let labels = || ReviewLabels {
            operation: match operation {
                Operation::Create => "create",
                Operation::Update => "update",
                Operation::AddEphemeral => "add_ephemeral",
                Operation::Other => "other",
            },
            result: if changed { "changed" } else { "unchanged" },
        };
        let counter = (self.reviews).counter(operation as usize, usize::from(changed), labels);
        counter.inc();
    }

    /// Findings in their order: those of one kind stand together and are counted at once.
    pub(super) fn found(&self, findings: &[Finding<'_>]) {
        let kind = |finding: &Finding<'_>| (finding.feature, finding.reason.code());
        for run in findings.chunk_by(|one, next| kind(one) == kind(next)) {
            let Some((feature, code)) = run.first().map(kind) else {
                continue;
            };
            // Most Pods of a cluster ask for nothing, and say so five times.
            if code == Code::NotRequested {
                continue;
            }
            let labels = || FindingLabels {
                feature: feature.name(),
                reason: code.name(),
            };
            let counter = (self.findings).counter(feature as usize, code as usize, labels);
            counter.inc_by(run.len() as u64);
        }
    }

    pub(super) fn fault(&self, reason: &'static str) {
        self.faults.get_or_create(&FaultLabels { reason }).inc();
    }

    pub(super) fn rejected(&self) {
        self.rejected.inc();
    }

    pub(super) fn waited_for_namespace(&self, arrived: bool) {
        let result = if arrived { "found" } else { "timeout" };
        self.namespace_waits
            .get_or_create(&WaitLabels { result })
            .inc();
    }

    pub(super) fn answered(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }
}
