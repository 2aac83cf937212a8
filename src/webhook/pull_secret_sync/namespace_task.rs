//! What is done in one namespace, step by step, until it is as it should be.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use chassis::backoff::Backoff;
use chassis::telemetry::error_chain;
use policy::mirror::RemovalCause;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::reconcile::Reconciler;
use super::state::{CopyAction, CopyTask};
use super::writer::{WriteError, WriteResult};

/// The least time between two writes in one namespace.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// From the end of the need to the deletion.
const REMOVAL_DELAY: Duration = Duration::from_secs(10);

/// Between two lists of the Pods of a namespace whose copy is no longer required and in use.
const IN_USE: Backoff = Backoff {
    base: Duration::from_secs(15),
    cap: Duration::from_mins(5),
};

/// After failures.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(2),
};

/// The task of one namespace.
pub(super) struct NamespaceTask<'a> {
    reconciler: &'a Reconciler,
    namespace: String,
    /// Notified when the decision may have changed.
    changed: Arc<Notify>,
    failures: u32,
    deferral: Option<Deferral>,
    conflict: Option<Conflict>,
}

/// A copy that is to be deleted.
struct Deferral {
    cause: RemovalCause,
    /// Neither is it deleted nor are Pods listed before then.
    until: Instant,
    /// How often a Pod was found to use it.
    found_in_use: u32,
}

/// A Secret of another client in the place of a copy. It is counted as long as this exists.
struct Conflict {
    uid: Option<String>,
    is_reported: bool,
    count: Gauge,
}

impl Drop for Conflict {
    fn drop(&mut self) {
        self.count.dec();
    }
}

impl<'a> NamespaceTask<'a> {
    pub(super) fn new(reconciler: &'a Reconciler, namespace: String, changed: Arc<Notify>) -> Self {
        Self {
            reconciler,
            namespace,
            changed,
            failures: 0,
            deferral: None,
            conflict: None,
        }
    }

    /// Runs until nothing is left to do or the reconciler is canceled; gives the namespace.
    pub(super) async fn run(mut self) -> String {
        let _canceled = self.until_settled().await;
        self.namespace
    }

    /// `None` when the reconciler is canceled. A write in flight is completed all the same.
    async fn until_settled(&mut self) -> Option<()> {
        let token = &self.reconciler.token;
        loop {
            let slot = token
                .run_until_cancelled(self.reconciler.slots.acquire())
                .await?;
            let Some(task) = self.reconciler.state().task_for(&self.namespace) else {
                self.recovered();
                return Some(());
            };
            let due = self.due(&task);
            if due.is_none_or(|due| due > Instant::now()) {
                drop(slot);
                tokio::select! {
                    () = token.cancelled() => return None,
                    () = self.changed.notified() => {}
                    () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                }
                continue;
            }
            // Boxed, because many tasks wait and few write.
            let result = Box::pin(self.reconciler.sync.execute(&task)).await;
            drop(slot);
            let pause = match result {
                Ok(result) => {
                    self.succeeded(&task, result);
                    WRITE_INTERVAL
                }
                Err(error) => {
                    self.failed(&task, &error);
                    RETRY.delay(self.failures - 1, fastrand::u64(..))
                }
            };
            token.run_until_cancelled(sleep(pause)).await?;
        }
    }

    /// When to do it: `None` if there is nothing to do before a change. A new cause of a deletion has a delay of its
    /// own, so a deleted source does not wait for the Pods that the copy was kept for.
    fn due(&mut self, task: &CopyTask) -> Option<Instant> {
        let now = Instant::now();
        let (deferral, conflict) = (self.deferral.take(), self.conflict.take());
        match &task.action {
            CopyAction::Apply(_) | CopyAction::Recreate(..) => Some(now),
            CopyAction::Remove(_, cause) => {
                let deferral = deferral.filter(|it| it.cause == *cause);
                let deferral = deferral.unwrap_or(Deferral {
                    cause: *cause,
                    until: now + REMOVAL_DELAY,
                    found_in_use: 0,
                });
                Some(self.deferral.insert(deferral).until)
            }
            CopyAction::Report(uid) => {
                let conflict = conflict.filter(|it| it.uid == *uid);
                let conflict = conflict.unwrap_or_else(|| {
                    let text =
                        "a foreign Secret is in the place of the pull Secret and is left alone";
                    tracing::warn!(namespace = self.namespace, "{text}");
                    let count = self.reconciler.sync.metrics.conflicts.clone();
                    count.inc();
                    Conflict {
                        uid: uid.clone(),
                        is_reported: false,
                        count,
                    }
                });
                (!self.conflict.insert(conflict).is_reported).then_some(now)
            }
        }
    }

    fn succeeded(&mut self, task: &CopyTask, result: WriteResult) {
        self.failures = 0;
        self.recovered();
        let written = match (result, &mut self.deferral, &mut self.conflict) {
            (WriteResult::Written(state), ..) => Some(state),
            (WriteResult::Removed, ..) => None,
            (WriteResult::InUse(pod), Some(deferral), _) => {
                if deferral.found_in_use == 0 {
                    let text = "deletion of pull Secret copy deferred, used by a Pod";
                    tracing::info!(namespace = self.namespace, pod, "{text}");
                }
                let pause = IN_USE.delay(deferral.found_in_use, fastrand::u64(..));
                deferral.until = Instant::now() + pause;
                deferral.found_in_use = deferral.found_in_use.saturating_add(1);
                return;
            }
            (WriteResult::Reported, _, Some(conflict)) => {
                conflict.is_reported = true;
                return;
            }
            _ => return,
        };
        let writes = &self.reconciler.sync.metrics.writes;
        writes
            .get_or_create(&[("action", task.action.name())])
            .inc();
        let mut state = self.reconciler.state();
        state.copies.written(&self.namespace, written);
        self.reconciler.count(&state.copies);
    }

    fn failed(&mut self, task: &CopyTask, error: &WriteError) {
        self.failures = self.failures.saturating_add(1);
        // The snapshot will know that the namespace is gone; until then there is nothing to report.
        if matches!(error, WriteError::NamespaceGone) {
            return;
        }
        let errors = &self.reconciler.sync.metrics.errors;
        errors.get_or_create(&[("reason", error.reason())]).inc();
        if self.errors().failed(&self.namespace, error) {
            let (namespace, action) = (&self.namespace, task.action.name());
            let error = error_chain(error);
            tracing::warn!(
                namespace,
                action,
                error,
                "pull Secret synchronization failed"
            );
        }
    }

    fn recovered(&self) {
        if let Some(kind) = self.errors().recovered(&self.namespace) {
            let namespace = &self.namespace;
            tracing::info!(namespace, kind, "pull Secret synchronization recovered");
        }
    }

    fn errors(&self) -> MutexGuard<'_, ErrorLog> {
        let errors = &self.reconciler.errors;
        errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The namespaces that fail, and how. A failure is logged once for each namespace until it changes, and so is its
/// recovery; a missing right is logged once for all namespaces.
#[derive(Debug, Default)]
pub(super) struct ErrorLog(HashMap<String, &'static str>);

impl ErrorLog {
    /// Whether this failure is to be logged.
    pub(super) fn failed(&mut self, namespace: &str, error: &WriteError) -> bool {
        let reason = error.reason();
        let is_logged = self.is_logged_for_all(reason);
        let before = self.0.insert(namespace.to_owned(), reason);
        // After a conflict the next event tells what to do, if anything.
        before != Some(reason) && !is_logged && !matches!(error, WriteError::Changed)
    }

    /// How it failed, if the recovery is to be logged.
    pub(super) fn recovered(&mut self, namespace: &str) -> Option<&'static str> {
        let reason = self.0.remove(namespace)?;
        (!self.is_logged_for_all(reason)).then_some(reason)
    }

    fn is_logged_for_all(&self, reason: &str) -> bool {
        reason == WriteError::FORBIDDEN && self.0.values().any(|it| *it == reason)
    }
}
