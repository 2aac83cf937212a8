//! What direct mode counts. Labels are closed sets; runtimes are never among them.

use std::time::Duration;

use chassis::metrics::create_series;
use policy::convergence::plan::Action;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The metrics of direct mode. Clones share them.
#[derive(Clone, Debug)]
pub struct DirectMetrics {
    passes: Family<Outcome, Counter>,
    duration: Histogram,
    actions: Family<Written, Counter>,
    queued: Gauge,
    running: Gauge,
    statuses: Family<Outcome, Counter>,
    abandoned: Counter,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    action: &'static str,
    kind: &'static str,
    outcome: &'static str,
}

impl Default for DirectMetrics {
    fn default() -> Self {
        Self {
            passes: Family::default(),
            // From 10 ms to almost three minutes.
            duration: Histogram::new(exponential_buckets(0.01, 2.0, 15)),
            actions: Family::default(),
            queued: Gauge::default(),
            running: Gauge::default(),
            statuses: Family::default(),
            abandoned: Counter::default(),
        }
    }
}

impl DirectMetrics {
    /// Figures that the registry shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "direct_passes",
            "Passes over a runtime, by the reason of its condition Ready",
            metrics.passes.clone(),
        );
        registry.register(
            "direct_pass_duration_seconds",
            "How long a pass over a runtime took",
            metrics.duration.clone(),
        );
        registry.register(
            "direct_actions",
            "What was done on runtimes, by kind of action and object",
            metrics.actions.clone(),
        );
        registry.register(
            "direct_queued_runtimes",
            "Runtimes that wait for a pass, due or not",
            metrics.queued.clone(),
        );
        registry.register(
            "direct_running_passes",
            "Passes that run now",
            metrics.running.clone(),
        );
        registry.register(
            "direct_status_writes",
            "Writes of a status on the control plane",
            metrics.statuses.clone(),
        );
        registry.register(
            "direct_abandoned_runtimes",
            "Deletions that did not wait any longer for their runtime, which keeps what is on it",
            metrics.abandoned.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`chassis::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.passes);
        create_series(&self.actions);
        create_series(&self.statuses);
    }

    pub(super) fn acted(&self, action: &Action, good: bool) {
        let written = Written {
            action: match action {
                Action::Apply { .. } => "apply",
                Action::Delete { .. } => "delete",
                Action::Transfer { .. } => "transfer",
            },
            kind: action.target().kind(),
            outcome: outcome(good),
        };
        self.actions.get_or_create(&written).inc();
    }

    pub(super) fn passed(&self, outcome: &'static str, took: Duration) {
        self.passes.get_or_create(&Outcome { outcome }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(super) fn stand(&self, queued: usize, running: usize) {
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    pub(super) fn status_written(&self, good: bool) {
        let outcome = outcome(good);
        self.statuses.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn gave_up(&self) {
        self.abandoned.inc();
    }
}

fn outcome(good: bool) -> &'static str {
    if good { "ok" } else { "error" }
}
