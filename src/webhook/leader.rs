//! The tasks of the leader. A task that panics is started again, and the others continue.
//!
//! If a panic ended the term, it would end all tasks. A panic that occurs at each start, for example because of one object in
//! the cluster, would then leave the cluster without certificates, copies of the pull Secret and repairs.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use component_base::backoff::Backoff;
use component_base::metrics::family;
use futures::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::certificate::Certificates;
use crate::fallback_policy::FallbackPolicy;
use crate::pull_secret_sync::PullSecretSync;
use crate::repairs::Repairs;

/// Pauses before a task is started again. At its start a task lists the objects that it needs.
const RESTART: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(5),
};

/// Time without a panic after which the pauses start anew.
const QUIET: Duration = Duration::from_mins(10);

/// Names of the tasks in metrics and log messages.
const TASKS: [&str; 4] = [
    "pull_secret_sync",
    "repairs",
    "fallback_policy",
    "certificates",
];

/// Metrics of the tasks. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct LeaderMetrics {
    panics: Family<[(&'static str, &'static str); 1], Counter>,
}

impl LeaderMetrics {
    /// Registers `leader_task_panics_total{task}`. Each task has its series from the start, so that the first panic is an increase.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let panics = "Number of panics of a task of the leader, which is started again, by task";
        let panics = family(registry, "leader_task_panics", panics, ["task"]);
        for task in TASKS {
            drop(panics.get_or_create(&[("task", task)]));
        }
        Self { panics }
    }
}

/// The tasks that only the leader runs. Each term of leadership uses a clone.
#[derive(Clone)]
pub struct LeaderTasks {
    /// Synchronizes the copies of the pull Secret.
    pub pull_secrets: PullSecretSync,
    /// Finds and evicts Pods that lack changes.
    pub repairs: Repairs,
    /// Keeps the fallback policy.
    pub policy: FallbackPolicy,
    /// Issues the certificate and writes the `caBundle`.
    pub certificates: Certificates,
    /// Metrics of the tasks.
    pub metrics: LeaderMetrics,
}

impl LeaderTasks {
    /// Runs all tasks until the token is canceled.
    pub async fn run(self, token: CancellationToken) {
        let [pull_secrets, repairs, policy, certificates] = TASKS;
        tokio::join!(
            self.restart(pull_secrets, &token, |it| self.pull_secrets.clone().run(it)),
            self.restart(repairs, &token, |it| self.repairs.clone().run(it)),
            self.restart(policy, &token, |it| self.policy.clone().reconcile(it)),
            self.restart(certificates, &token, |it| {
                self.certificates.clone().reconcile(it)
            }),
        );
    }

    /// Runs a task until it returns, and starts it again after a panic. The panic drops the state of the task, and what tasks share
    /// is valid after each change of it.
    async fn restart<F: Future<Output = ()>>(
        &self,
        task: &'static str,
        token: &CancellationToken,
        start: impl Fn(CancellationToken) -> F,
    ) {
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let run = AssertUnwindSafe(start(token.clone())).catch_unwind();
            if run.await.is_ok() {
                return;
            }
            self.metrics.panics.get_or_create(&[("task", task)]).inc();
            tracing::error!(task, "task of the leader panicked, restarting");
            if started.elapsed() >= QUIET {
                failures = 0;
            }
            let pause = RESTART.delay(failures, fastrand::u64(..));
            failures = failures.saturating_add(1);
            if token.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
