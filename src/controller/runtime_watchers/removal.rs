//! Removal of the watcher from a runtime that no Kyma and no RuntimeBootstrapper represents any more: its Kyma was deleted, or has
//! another runtime ID.
//!
//! The Certificate of the Kyma names the runtime until the removal ends, so that the next leader continues it. A removal and a
//! reconcile of the same runtime exclude each other.

use std::time::Duration;

use component_base::telemetry::error_chain;
use kube::api::Patch;
use policy::certificates::{CERT_MANAGER_API_VERSION, NAME_SUFFIX};
use tokio::time::{Instant, sleep};

use super::reconcile::{self, REMOVAL_PAUSE};
use super::report::{NOTHING_LEFT, Retry};
use super::{BACKOFF, Context, PROGRESS_BACKOFF};
use crate::clients::RuntimeId;
use crate::dynamic::objects;
use crate::kyma::{LeftWatcher, UnknownOwner};
use crate::requests::{Answer as _, patching};

/// Time limit of the removal from a runtime.
const REMOVAL_LIMIT: Duration = Duration::from_mins(30);

/// A reconcile of a runtime. Until it is dropped, nothing is removed from that runtime: the reconcile could write again
/// what was removed.
pub(super) struct Reconciling<'a> {
    context: &'a Context,
    id: Option<&'a RuntimeId>,
}

impl Drop for Reconciling<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut runtimes = self.context.runtimes();
        if let Some(count) = runtimes.reconciling.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                runtimes.reconciling.remove(id);
            }
        }
    }
}

impl Context {
    /// Stores that a reconcile of a runtime has begun. `None` while the watcher is being removed from it.
    pub(super) fn begin_reconcile<'a>(
        &'a self,
        id: Option<&'a RuntimeId>,
    ) -> Option<Reconciling<'a>> {
        let mut runtimes = self.runtimes();
        if let Some(id) = id {
            if runtimes.removing.contains(id.as_str()) {
                return None;
            }
            // Two Kymas may have the same runtime ID.
            *runtimes.reconciling.entry(id.clone()).or_default() += 1;
        }
        Some(Reconciling { context: self, id })
    }

    /// Stores that the watcher is being removed from a runtime that a Certificate names. Returns the removal, unless it has
    /// begun before.
    pub(super) fn begin_removal_named(&self, left: LeftWatcher) -> Option<LeftWatcher> {
        let is_ending = self.runtimes().releasing.contains(&left.runtime_id);
        if is_ending {
            return None;
        }
        self.begin_removal(left)
    }

    /// Stores that the watcher is being removed from the runtime of a Kyma that does not exist. Returns the removal that the caller
    /// has to start.
    pub(super) fn begin_removal_of(&self, kyma: &str) -> Option<LeftWatcher> {
        let Some(id) = self.owned_by(kyma) else {
            self.forget(kyma);
            return None;
        };
        let runtimes = self.runtimes();
        let reason = runtimes.states.get(kyma).map(|it| it.reason);
        drop(runtimes);
        self.begin_removal(LeftWatcher {
            kyma: kyma.to_owned(),
            runtime_id: id.as_str().to_owned(),
            since: None,
            is_removed: reason.is_some_and(|it| NOTHING_LEFT.contains(&it)),
        })
    }

    /// Stores that the watcher is being removed. Returns the removal, unless it has begun before.
    fn begin_removal(&self, left: LeftWatcher) -> Option<LeftWatcher> {
        let mut runtimes = self.runtimes();
        let is_new = runtimes.removing.insert(left.runtime_id.clone());
        is_new.then_some(left)
    }

    /// Removes the watcher until nothing is left, the runtime is represented again, or the time limit has passed. Then the
    /// Certificate does not name the runtime any more.
    pub(super) async fn remove(&self, left: LeftWatcher) {
        // The store is closed when the process terminates.
        if self.kymas.store.wait_until_ready().await.is_err() {
            return;
        }
        let limit = Instant::now() + left.remaining(REMOVAL_LIMIT);
        if !left.is_removed && !left.runtime_id.is_empty() {
            self.remove_until(&left, limit).await;
        }
        // A Kyma that represents the runtime by now does not wait for the Certificate.
        self.end_removal(&left);
        self.release(&left, limit).await;
        self.runtimes().releasing.remove(&left.runtime_id);
    }

    async fn remove_until(&self, left: &LeftWatcher, limit: Instant) {
        let mut attempts = 0;
        while let Some(retry) = self.attempt(left).await {
            let LeftWatcher {
                kyma, runtime_id, ..
            } = left;
            if Instant::now() >= limit {
                tracing::warn!(
                    kyma,
                    id = runtime_id,
                    "watcher left on the runtime that a Kyma represented: not removed within the time limit"
                );
                return;
            }
            let delay = retry.delay(attempts);
            sleep(delay.unwrap_or(BACKOFF.base)).await;
            attempts += 1;
        }
    }

    /// Removes the watcher, unless the runtime is represented. Returns when to call again; `None` if the removal has ended. Waits
    /// for a reconcile of the runtime in progress, and while the watcher is removed from many other runtimes.
    async fn attempt(&self, left: &LeftWatcher) -> Option<Retry> {
        let LeftWatcher {
            kyma, runtime_id, ..
        } = left;
        // No further reconcile begins, and each request of a reconcile has a time limit.
        while self.is_reconciled(runtime_id) {
            sleep(REMOVAL_PAUSE).await;
        }
        // The semaphore is never closed.
        let _permit = self.removals.acquire().await;
        // Boxed, because thousands of removals may wait for their next attempt.
        let attempt = Box::pin(async {
            if !self.kymas.is_left(kyma, runtime_id).await? {
                return Ok::<_, UnknownOwner>(None);
            }
            Ok(Some(reconcile::remove(self, kyma, runtime_id).await?))
        });
        match attempt.await {
            Ok(None) => None,
            Ok(Some(outcome)) if outcome.is_removed() => None,
            Ok(Some(outcome)) => {
                let (reason, message) = (outcome.reason, outcome.message);
                tracing::info!(kyma, reason, message, "removing watcher");
                Some(outcome.retry)
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(kyma, error, "failed to remove watcher, backing off");
                Some(Retry::Failed(None))
            }
        }
    }

    fn is_reconciled(&self, runtime_id: &str) -> bool {
        self.runtimes().reconciling.contains_key(runtime_id)
    }

    /// Releases the Certificate. Waits until its deletion has begun, which adds the finalizer, but not longer than until the limit.
    async fn release(&self, left: &LeftWatcher, limit: Instant) {
        let mut attempts = 0;
        loop {
            let kyma = &left.kyma;
            let backoff = match self.is_released(left).await {
                Ok(true) => return,
                _ if Instant::now() >= limit => return,
                Ok(false) => PROGRESS_BACKOFF,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(kyma, error, "failed to release Certificate, backing off");
                    BACKOFF
                }
            };
            sleep(backoff.delay(attempts, fastrand::u64(..))).await;
            attempts += 1;
        }
    }

    async fn is_released(&self, left: &LeftWatcher) -> kube::Result<bool> {
        let settings = &self.options.settings;
        let (namespace, kind) = (
            &settings.namespace,
            (CERT_MANAGER_API_VERSION, "Certificate"),
        );
        let certificates = objects(&self.options.client, &settings.certificate_namespace, kind);
        let name = format!("{}{NAME_SUFFIX}", left.kyma);
        let Some(live) = certificates.get(&name).await.unless_gone()? else {
            return Ok(true);
        };
        let Some(patch) = left.release(&live, namespace) else {
            let is_awaited = left.is_awaited_by(&live, namespace);
            return Ok(!is_awaited || self.kymas.has(&left.kyma));
        };
        let patch = Patch::Merge(&patch);
        let patched = certificates.patch(&name, &patching(), &patch).await;
        patched.unless_gone().map(|_| true)
    }

    /// Removes the state of a runtime, unless a Kyma represents it again.
    fn end_removal(&self, left: &LeftWatcher) {
        let id = &left.runtime_id;
        let exists = self.kymas.has(&left.kyma);
        let mut runtimes = self.runtimes();
        runtimes.removing.remove(id);
        runtimes.releasing.insert(id.clone());
        let owner = runtimes.owners.get(id.as_str());
        let is_represented = owner.is_some_and(|it| exists || **it != *left.kyma);
        if !is_represented {
            runtimes.owners.remove(id.as_str());
            self.claims.release(id);
            self.heartbeats.forget(id);
        }
        drop(runtimes);
        if !is_represented {
            self.forget(&left.kyma);
        }
    }

    /// Removes the state of a Kyma, unless it exists again.
    fn forget(&self, kyma: &str) {
        if self.kymas.has(kyma) {
            return;
        }
        let mut runtimes = self.runtimes();
        runtimes.noted.remove(kyma);
        let is_known = runtimes.states.remove(kyma).is_some();
        drop(runtimes);
        if is_known {
            self.changed.send_replace(());
        }
    }
}
