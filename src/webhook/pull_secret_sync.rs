//! Synchronization of the pull Secret: a copy in each namespace that requires one, and in no other.
//!
//! - A Secret of another client is neither written nor deleted.
//! - Nothing is written if nothing differs, and nothing before the first complete list of copies.
//! - Only a hash of the value of a copy is stored. No value is part of a log message, an error or an Event.
//!
//! A change of a watched object or of the active revision only determines which namespaces are reconciled;
//! `State::task_for` decides from the whole state. A namespace that is not in the desired state is tracked until it is
//! (`Progress`): writes are deferred and retried, at most one per second. At most eight writes are in progress, in the
//! order in which the namespaces were queued.
//!
//! A copy that is no longer required is deleted after 10 s, because the next Pod of a StatefulSet may require it, or an
//! incorrect configuration may be corrected. Then the unfinished Pods of the namespace are listed once. The copy stays
//! while one of them contains it in `imagePullSecrets`, which is immutable, or was changed by the webhook. The Pods are
//! listed again after 15 s, then with increasing pauses of up to 5 min. During that time the copy is neither updated nor
//! reset.
//!
//! A source that is known to be absent revokes the credentials: each copy is deleted after the same 10 s, even if Pods use
//! it, unless the source exists again by then.
//!
//! If the configured name (`imagePullSecret.name`, or the flag) changes, copies are created with the new name. Copies with the
//! default name or the name in the flag, if it is not the configured name, are not updated anymore. They are deleted like copies that
//! are no longer required, as soon as the configured source exists and no unfinished Pod of the namespace contains their name in
//! `imagePullSecrets`; and they are revoked when the Secret of that name in the product namespace is deleted. For other earlier
//! names the permissions are missing: an operator deletes those copies by label.
//!
//! Without a configuration, copies with the name in the flag are only revoked: none is created or updated.
//!
//! Permissions in addition to those of the other watches (ClusterRole; `resourceNames` permits list and watch because of
//! the field selector `metadata.name`):
//! - `secrets` named `registry-credentials`: list, watch, create, patch, delete;
//! - `pods`: list, watch (metadata, and complete Pods of a namespace before a deletion). Without this permission, namespaces that
//!   opt in themselves get their copy, and a copy that is only no longer required is not deleted;
//! - `events.events.k8s.io`: create, patch.

mod progress;
mod reconcile;
mod secret;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;

use component_base::metrics::{family, register};
use component_base::watch::WatchMetrics;
use kube::Client;
use kube::runtime::events::Recorder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::snapshot::SnapshotStore;

use self::reconcile::Reconciler;
use self::state::CopyName;

/// Synchronizes the copies. Each term of leadership uses a clone.
#[derive(Clone)]
pub struct PullSecretSync {
    /// Client of the webhook's cluster.
    pub client: Client,
    /// Source of configuration, pull Secret and Namespaces.
    pub snapshots: SnapshotStore,
    /// Writer of Events.
    pub recorder: Recorder,
    /// Metrics of the copies.
    pub metrics: PullSecretMetrics,
    /// Metrics of the watches.
    pub watches: WatchMetrics,
    /// Namespace of the source, which never gets a copy.
    pub product_namespace: String,
    /// Permit to list Pods: one page at a time, because a page of hostile Pods has many megabytes.
    pub page: Arc<Semaphore>,
}

/// Creates the permit to list Pods, which the reconcilers of all copies share.
#[must_use]
pub fn page_permit() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

impl PullSecretSync {
    /// Synchronizes until the token is canceled. Writes in progress are completed.
    ///
    /// Failures are retried, counted and logged. Dropping the future stops at once. In the worst case a copy was deleted
    /// and not created again; the next leader creates it.
    pub async fn run(self, token: CancellationToken) {
        let former = Self {
            metrics: self.metrics.of_former_copies(),
            ..self.clone()
        };
        tokio::join!(
            self.run_for(CopyName::Configured, &token),
            former.run_for(CopyName::Default, &token),
            former.run_for(CopyName::Flag, &token),
        );
    }

    async fn run_for(&self, name: CopyName, token: &CancellationToken) {
        while !token.is_cancelled() {
            Reconciler::new(self.clone(), name).run(token).await;
        }
    }
}

/// Metrics of the copies. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct PullSecretMetrics {
    copies: Gauge,
    conflicts: Gauge,
    writes: Family<[(&'static str, &'static str); 1], Counter>,
    errors: Family<[(&'static str, &'static str); 1], Counter>,
}

impl PullSecretMetrics {
    /// Registers `pull_secret_copies`, `pull_secret_conflicts`, `pull_secret_writes_total{action}` and
    /// `pull_secret_write_errors_total{reason}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let copies = "Number of copies of the pull Secret (0 on replicas that do not lead)";
        let conflicts = "Number of namespaces that need a copy and have a Secret of that name by another client";
        let writes = "Number of successful writes of copies of the pull Secret, by action";
        let errors = "Number of failures to write a copy, list Pods that may use it, or report a conflict, by reason";
        Self {
            copies: register(registry, "pull_secret_copies", copies),
            conflicts: register(registry, "pull_secret_conflicts", conflicts),
            writes: family(registry, "pull_secret_writes", writes, ["action"]),
            errors: family(registry, "pull_secret_write_errors", errors, ["reason"]),
        }
    }

    /// Returns the metrics of copies with a former name: writes and failures are counted, and the gauges are of copies with the
    /// configured name.
    fn of_former_copies(&self) -> Self {
        Self {
            copies: Gauge::default(),
            conflicts: Gauge::default(),
            ..self.clone()
        }
    }
}
