//! Metrics of the controller `direct`. Labels are closed sets; no label names a runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::create_series;
use policy::sync::plan::Action;
use policy::sync::rollout::{Progress, Stopped};
use policy::sync::status::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Metrics of the controller `direct`. Clones share them.
#[derive(Clone, Debug)]
pub struct DirectMetrics {
    reconciles: Family<Reconciled, Counter>,
    duration: Histogram,
    actions: Family<Written, Counter>,
    queued: Gauge,
    running: Gauge,
    statuses: Family<Updated, Counter>,
    abandoned: Counter,
    unreadable: Gauge,
    limit_waiting: Family<Limit, Gauge>,
    runtimes: Family<ConditionLabels, Gauge>,
    unsynchronized: Gauge,
    rollout_runtimes: Family<RolloutState, Gauge>,
    rollout_stopped: Family<RolloutStop, Gauge>,
}

/// Labels of a gauge of runtimes: a condition with its status and reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub(super) struct ConditionLabels {
    /// Type of the condition. The name of the field is the label.
    pub(super) r#type: String,
    pub(super) status: String,
    pub(super) reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RolloutState {
    rollout: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RolloutStop {
    rollout: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    result: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limit {
    limit: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Updated {
    result: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    action: &'static str,
    kind: &'static str,
    result: &'static str,
}

impl Default for DirectMetrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            // From 10 ms to almost three minutes.
            duration: Histogram::new(exponential_buckets(0.01, 2.0, 15)),
            actions: Family::default(),
            queued: Gauge::default(),
            running: Gauge::default(),
            statuses: Family::default(),
            abandoned: Counter::default(),
            unreadable: Gauge::default(),
            limit_waiting: Family::default(),
            runtimes: Family::default(),
            unsynchronized: Gauge::default(),
            rollout_runtimes: Family::default(),
            rollout_stopped: Family::default(),
        }
    }
}

impl DirectMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "reconcile",
            "Number of reconciles, by result and reason of the condition Ready",
            metrics.reconciles.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "Duration of a reconcile",
            metrics.duration.clone(),
        );
        registry.register(
            "runtime_object_writes",
            "Number of writes of objects on runtimes, by action, kind and result",
            metrics.actions.clone(),
        );
        registry.register(
            "workqueue_depth",
            "Number of runtimes whose reconcile is due and not started",
            metrics.queued.clone(),
        );
        registry.register(
            "active_workers",
            "Number of running reconciles",
            metrics.running.clone(),
        );
        registry.register(
            "status_updates",
            "Number of status updates on KCP, by result",
            metrics.statuses.clone(),
        );
        registry.register(
            "deletion_timeouts",
            "Number of deletions that ended at their timeout and left objects behind on the runtime",
            metrics.abandoned.clone(),
        );
        metrics.register_gauges(registry);
        metrics
    }

    fn register_gauges(&self, registry: &mut Registry) {
        registry.register(
            "unreadable_resources",
            "Number of RuntimeBootstrappers that cannot be read, so that their runtimes are not reconciled",
            self.unreadable.clone(),
        );
        registry.register(
            "limit_waiting",
            "Number of reconciles that wait because others hold all permits, by limit",
            self.limit_waiting.clone(),
        );
        registry.register(
            "runtimes",
            "Number of RuntimeBootstrappers, by condition, status and reason",
            self.runtimes.clone(),
        );
        registry.register(
            "oldest_unsynchronized_age_seconds",
            "Time since which a runtime has not been synchronized, of the one that waits for the longest time; 0 if there is none",
            self.unsynchronized.clone(),
        );
        registry.register(
            "rollout_runtimes",
            "Number of runtimes in a rollout, by their state",
            self.rollout_runtimes.clone(),
        );
        registry.register(
            "rollout_stopped",
            "1 while no other runtime starts in a rollout, by reason",
            self.rollout_stopped.clone(),
        );
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.reconciles);
        create_series(&self.actions);
        create_series(&self.statuses);
        create_series(&self.limit_waiting);
        create_series(&self.runtimes);
        create_series(&self.rollout_runtimes);
        create_series(&self.rollout_stopped);
    }

    /// Sets the number of resources that cannot be deserialized.
    pub(super) fn unreadable(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.unreadable.set(count);
    }

    /// The gauge of reconciles that wait for a permit of a limit.
    pub(super) fn limit(&self, limit: &'static str) -> Gauge {
        self.limit_waiting.get_or_create_owned(&Limit { limit })
    }

    /// Sets the number of runtimes by condition, and the age of the oldest one that is not synchronized.
    pub(super) fn set_runtimes(&self, runtimes: BTreeMap<ConditionLabels, i64>, oldest: Duration) {
        self.runtimes.clear();
        for (labels, count) in runtimes {
            self.runtimes.get_or_create(&labels).set(count);
        }
        let oldest = i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX);
        self.unsynchronized.set(oldest);
    }

    /// Sets the progress of a rollout.
    pub(super) fn rollout(&self, rollout: &'static str, progress: Progress) {
        let counts = progress.counts;
        let states = [
            ("waiting", counts.waiting),
            ("progressing", counts.progressing),
            ("soaking", counts.soaking),
            ("done", counts.done),
            ("failed", counts.failed),
            ("unreachable", counts.unreachable),
        ];
        for (state, count) in states {
            let labels = RolloutState { rollout, state };
            self.rollout_runtimes
                .get_or_create(&labels)
                .set(count.into());
        }
        let reasons = [
            ("Paused", Stopped::Paused),
            ("FailureLimitExceeded", Stopped::FailureLimitExceeded),
        ];
        for (reason, stopped) in reasons {
            let labels = RolloutStop { rollout, reason };
            let is_stopped = progress.stopped == Some(stopped);
            let gauge = self.rollout_stopped.get_or_create(&labels);
            gauge.set(i64::from(is_stopped));
        }
    }

    /// Resets the gauges, as this replica does not lead any more.
    pub(super) fn clear(&self) {
        self.runtimes.clear();
        self.unreadable(0);
        self.unsynchronized.set(0);
        self.rollout_runtimes.clear();
        self.rollout_stopped.clear();
        self.set_workqueue(0, 0);
    }

    pub(super) fn object_written(&self, action: &Action, is_ok: bool) {
        let written = Written {
            action: action.verb(),
            kind: action.target().kind(),
            result: result(is_ok),
        };
        self.actions.get_or_create(&written).inc();
    }

    /// Counts a reconcile by the reason of the condition `Ready`; `None` where the condition has an unknown reason.
    pub(super) fn reconciled(&self, reason: Option<Reason>, took: Duration) {
        let labels = Reconciled {
            result: reason.map_or("error", result_of),
            reason: reason.map_or("Unknown", Reason::name),
        };
        self.reconciles.get_or_create(&labels).inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(super) fn set_workqueue(&self, queued: usize, running: usize) {
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    pub(super) fn status_written(&self, is_ok: bool) {
        let result = result(is_ok);
        self.statuses.get_or_create(&Updated { result }).inc();
    }

    pub(super) fn deletion_timed_out(&self) {
        self.abandoned.inc();
    }
}

fn result(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "error" }
}

/// The result of a reconcile that ended with this reason of `Ready`.
fn result_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Ready => "success",
        _ if is_deferred(reason) => "deferred",
        _ => "error",
    }
}

/// Whether a reason says that something waits for time or for an operator.
pub(super) fn is_deferred(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Paused
            | Reason::RolloutPending
            | Reason::DeletionPending
            | Reason::Installing
            | Reason::Uninstalling
            | Reason::Orphaning
            | Reason::Pending
    )
}
