//! Metrics of the controller `direct`. Labels are closed sets; no label names a runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Labels, expose, family, register};
use policy::sync::plan::Action;
use policy::sync::rollout::{Progress, Stopped};
use policy::sync::status::Reason;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

const OLDEST_AGE: &str = "oldest_unsynchronized_age_seconds";

/// Metrics of the controller `direct`. Clones share them.
#[derive(Clone, Debug)]
pub struct DirectMetrics {
    reconciles: Family<Labels<2>, Counter>,
    duration: Histogram,
    actions: Family<Labels<3>, Counter>,
    queued: Gauge,
    running: Gauge,
    statuses: Family<Labels<1>, Counter>,
    abandoned: Counter,
    unreadable: Gauge,
    state_invalid: Gauge,
    limit_waiting: Family<Labels<1>, Gauge>,
    runtimes: Family<ConditionLabels, Gauge>,
    unsynchronized: Gauge,
    rollout_runtimes: Family<Labels<2>, Gauge>,
    rollout_stopped: Family<Labels<2>, Gauge>,
}

/// The labels `type`, `status` and `reason` of a gauge of runtimes.
pub(super) type ConditionLabels = [(&'static str, String); 3];

impl DirectMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let reconciles = "Number of reconciles, by result and reason of the condition Ready";
        let duration = "Duration of a reconcile";
        let actions = "Number of writes of objects on runtimes, by action, kind and result";
        let queued = "Number of runtimes whose reconcile is due and not started";
        let running = "Number of running reconciles";
        let statuses = "Number of status updates on KCP, by result";
        let abandoned = "Number of deletions that ended at their timeout and left objects behind on the runtime";
        let unreadable = "Number of RuntimeBootstrappers that cannot be read, so that their runtimes are not reconciled";
        let state_invalid = "Whether no runtime is reconciled because the state ConfigMap cannot be loaded or saved (1)";
        let waiting = "Number of reconciles that wait because others hold all permits, by limit";
        let runtimes = "Number of RuntimeBootstrappers, by condition, status and reason";
        let unsynchronized = "Time since which a runtime has not been synchronized, of the one that waits for the longest time, without paused runtimes and those that lack only the API of ClusterTrustBundles; 0 if there is none";
        let states = "Number of runtimes in a rollout, by their state";
        let stopped = "1 while no other runtime starts in a rollout, by reason";
        // Buckets from 10 ms to almost three minutes.
        let histogram = Histogram::new(exponential_buckets(0.01, 2.0, 15));
        Self {
            reconciles: family(registry, "reconcile", reconciles, ["result", "reason"]),
            duration: expose(registry, "reconcile_duration_seconds", duration, histogram),
            actions: family(
                registry,
                "runtime_object_writes",
                actions,
                ["action", "kind", "result"],
            ),
            queued: register(registry, "workqueue_depth", queued),
            running: register(registry, "active_workers", running),
            statuses: family(registry, "status_updates", statuses, ["result"]),
            abandoned: register(registry, "deletion_timeouts", abandoned),
            unreadable: register(registry, "unreadable_resources", unreadable),
            state_invalid: register(registry, "direct_state_invalid", state_invalid),
            limit_waiting: family(registry, "limit_waiting", waiting, ["limit"]),
            runtimes: family(registry, "runtimes", runtimes, ["type", "status", "reason"]),
            unsynchronized: register(registry, OLDEST_AGE, unsynchronized),
            rollout_runtimes: family(registry, "rollout_runtimes", states, ["rollout", "state"]),
            rollout_stopped: family(registry, "rollout_stopped", stopped, ["rollout", "reason"]),
        }
    }

    /// Sets the number of resources that cannot be deserialized.
    pub(super) fn unreadable(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.unreadable.set(count);
    }

    /// Sets whether the state ConfigMap cannot be loaded or saved.
    pub(super) fn state_invalid(&self, is_invalid: bool) {
        self.state_invalid.set(i64::from(is_invalid));
    }

    /// The gauge of reconciles that wait for a permit of a limit.
    pub(super) fn limit(&self, limit: &'static str) -> Gauge {
        self.limit_waiting.get_or_create_owned(&[("limit", limit)])
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
            ("failed", counts.failed + progress.deleted),
            ("unreachable", counts.unreachable),
        ];
        for (state, count) in states {
            let labels = [("rollout", rollout), ("state", state)];
            let gauge = self.rollout_runtimes.get_or_create(&labels);
            gauge.set(count.into());
        }
        for stopped in [Stopped::Paused, Stopped::FailureLimitExceeded] {
            let labels = [("rollout", rollout), ("reason", stopped.name())];
            let is_stopped = progress.stopped == Some(stopped);
            let gauge = self.rollout_stopped.get_or_create(&labels);
            gauge.set(i64::from(is_stopped));
        }
    }

    /// Resets the gauges, because this replica is no longer the leader.
    pub(super) fn clear(&self) {
        self.runtimes.clear();
        self.unreadable(0);
        self.state_invalid(false);
        self.unsynchronized.set(0);
        self.rollout_runtimes.clear();
        self.rollout_stopped.clear();
        self.set_workqueue(0, 0);
    }

    pub(super) fn object_written(&self, action: &Action, is_ok: bool) {
        let labels = [
            ("action", action.verb()),
            ("kind", action.target().kind()),
            ("result", result(is_ok)),
        ];
        self.actions.get_or_create(&labels).inc();
    }

    /// Counts a reconcile by the reason of the condition `Ready`; `None` if the condition has an unknown reason.
    pub(super) fn reconciled(&self, reason: Option<Reason>, took: Duration) {
        let labels = [
            ("result", reason.map_or("error", result_of)),
            ("reason", reason.map_or("Unknown", Reason::name)),
        ];
        self.reconciles.get_or_create(&labels).inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(super) fn set_workqueue(&self, queued: usize, running: usize) {
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    pub(super) fn status_written(&self, is_ok: bool) {
        let labels = [("result", result(is_ok))];
        self.statuses.get_or_create(&labels).inc();
    }

    pub(super) fn deletion_timed_out(&self) {
        self.abandoned.inc();
    }
}

fn result(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "error" }
}

/// Returns the result of a reconcile that ended with this reason of `Ready`.
fn result_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Ready => "success",
        _ if is_deferred(reason) => "deferred",
        _ => "error",
    }
}

/// Returns whether a reason means that the controller waits for a time or for an operator.
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
