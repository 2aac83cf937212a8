//! Handles the result of a reconcile: updates the status, logs, and reports to the scheduler.

use std::time::Duration;

use api::bootstrapper::{Condition, READY, RuntimeBootstrapperStatus};
use component_base::telemetry::error_chain;
use policy::sync::rollout::Name;
use policy::sync::scheduler::Report;
use policy::sync::status::Reason;
use tokio::task::{Id, JoinError};

use super::dispatch::Dispatcher;
use super::metrics::is_deferred;
use super::reconcile::ReconcileResult;
use super::writer::StatusUpdate;

/// The result of a reconcile. `None` is the result of a request to KCP that created or deleted a resource, which the
/// watch reports. An error is an error of KCP.
pub(super) type JobResult = kube::Result<Option<Box<ReconcileResult>>>;

/// Minimum interval between log lines about failures of KCP, which concern all runtimes at once.
pub(super) const KCP_LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Dispatcher {
    /// Returns whether no job runs.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Waits for the next job that ends; `None` if no job runs.
    pub(super) async fn next_result(&mut self) -> Option<Result<(Id, JobResult), JoinError>> {
        self.jobs.join_next_with_id().await
    }

    /// Handles the result of a job.
    pub(super) fn complete(&mut self, ended: Result<(Id, JobResult), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(name) = self.names.remove(&id) else {
            return;
        };
        let report = match ended {
            Ok((_, Ok(Some(result)))) => self.take_result(&result),
            Ok((_, Ok(None))) => Report::Idle,
            Ok((_, Err(error))) => {
                if let Some(suppressed) = self.kcp_failures.permit() {
                    let error = error_chain(&error);
                    tracing::warn!(
                        runtime = &*name,
                        error,
                        suppressed,
                        "KCP API request failed"
                    );
                }
                Report::Interrupted
            }
            Err(error) => {
                tracing::error!(runtime = &*name, %error, "reconcile panicked");
                Report::Interrupted
            }
        };
        let now = self.now();
        self.scheduler.finish(&name, report, now, fastrand::u64(..));
        self.publish();
    }

    fn take_result(&mut self, result: &ReconcileResult) -> Report {
        let entry = self.store.get(&result.name);
        let resource = entry.and_then(|it| it.resource.as_ref());
        if resource.is_none_or(|it| it.uid() != result.uid.as_deref()) {
            // The resource was deleted during the reconcile, so the claims of that reconcile are removed.
            if resource.is_none()
                && let Some(id) = &result.status.runtime_id
            {
                self.common.claims.release(id);
            }
            self.wake(&result.name);
            return Report::Idle;
        }
        let reason = ready(&result.status).and_then(|it| known_reason(&it.reason));
        self.common.metrics.reconciled(reason, result.took);
        if result.report != Report::Idle {
            self.store_status(result);
        }
        result.report
    }

    fn store_status(&mut self, result: &ReconcileResult) {
        let status = self.store.statuses.intern(result.status.clone());
        let Some(entry) = self.store.get_mut(&result.name) else {
            return;
        };
        if entry.status == status && !entry.status_differs {
            return;
        }
        let has_event = log_change(&result.name, &entry.status.expand(), &result.status);
        entry.status = status.clone();
        // Set until the watch reports the status: the next reconcile sends a status again that KCP rejected.
        entry.status_differs = true;
        self.statuses.send(StatusUpdate {
            name: Name::clone(&result.name),
            uid: result.uid.clone(),
            status,
            has_event,
        });
    }
}

/// Logs a change of the condition Ready. Returns whether it changed to something other than a temporary state.
fn log_change(
    name: &Name,
    before: &RuntimeBootstrapperStatus,
    now: &RuntimeBootstrapperStatus,
) -> bool {
    let Some(condition) = ready(now) else {
        return false;
    };
    let is_same = |it: &Condition| it.status == condition.status && it.reason == condition.reason;
    if ready(before).is_some_and(is_same) {
        return false;
    }
    let revision = now.configuration.as_ref();
    let revision = revision.and_then(|it| it.revision.as_deref());
    let version = now.webhook.as_ref().and_then(|it| it.version.as_deref());
    tracing::info!(
        runtime = &**name,
        ready = ?condition.status,
        reason = condition.reason,
        condition_message = condition.message,
        revision,
        version,
        "condition Ready changed"
    );
    !known_reason(&condition.reason).is_some_and(is_deferred)
}

fn ready(status: &RuntimeBootstrapperStatus) -> Option<&Condition> {
    status.conditions.iter().find(|it| it.kind == READY)
}

/// Parses a reason of the closed list, so that it can be a label.
fn known_reason(reason: &str) -> Option<Reason> {
    reason.parse().ok()
}
