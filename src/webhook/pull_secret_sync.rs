//! Synchronization of the pull Secret: a copy in every namespace that requires one, and in no other.
//!
//! - A Secret of another client is neither written nor deleted.
//! - Nothing is written where nothing differs, and nothing before the first complete list of copies.
//! - Of the copies' bytes only a hash is kept. No value is part of a log line, an error or an Event.
//!
//! A change of a watched object or of the active revision only says which namespaces to reconcile; `State::task_for`
//! decides from the whole state. A namespace that is not as it should be is tracked until it is (`Progress`): writes
//! are deferred and retried, at most one a second. At most eight are in flight, in the order in which namespaces asked.
//!
//! A copy that is no longer required is deleted after 10 s: a StatefulSet's next Pod may require it, or a mistyped
//! configuration may be corrected. Then the unfinished Pods of the namespace are listed once. The copy stays while one
//! of them names it in `imagePullSecrets`, which cannot be changed, or was changed by the webhook; the Pods are listed
//! again after 15 s, then at growing distances up to 5 min. Meanwhile the copy is neither refreshed nor reset.
//!
//! A source that is known to be absent revokes the credentials: every copy is deleted after the same 10 s, whatever
//! Pods use it, unless the source exists again by then.
//!
//! If `imagePullSecret.name` changes, copies are made under the new name. Those under the old name stay, because running
//! Pods name them; they are not updated any more. An operator deletes them by label and old name.
//!
//! Rights beside those of the other watches (ClusterRole; `resourceNames` passes for list and watch because of the field
//! selector `metadata.name`):
//! - `secrets` named `registry-credentials`: list, watch, create, patch, delete;
//! - `pods`: list, watch (metadata, and whole Pods of a namespace before a deletion). Without it, namespaces that opt in
//!   themselves get their copy, and no copy is deleted that is merely no longer required;
//! - `events.events.k8s.io`: create, patch.

mod progress;
mod reconcile;
mod secret;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use component_base::metrics::register;
use component_base::watch::WatchMetrics;
use kube::Client;
use kube::runtime::events::Recorder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::snapshot::SnapshotStore;

use self::reconcile::Reconciler;

/// Synchronizes the copies. Clones do the same, one for each term of leadership.
#[derive(Clone)]
pub struct PullSecretSync {
    /// Client of the webhook's cluster.
    pub client: Client,
    /// Source of configuration, pull Secret and Namespaces.
    pub snapshots: SnapshotStore,
    /// Writer of Events.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: PullSecretMetrics,
    /// Metrics of its watches.
    pub watches: WatchMetrics,
    /// Namespace of the source, which never gets a copy.
    pub product_namespace: String,
}

impl PullSecretSync {
    /// Synchronizes until the token is canceled; writes in flight are then completed.
    ///
    /// Failures are retried, counted and logged. Dropping the future stops at once, which leaves at worst a copy that is
    /// deleted and not created again; the next leader does that.
    pub async fn run(self, token: CancellationToken) {
        while !token.is_cancelled() {
            Reconciler::new(self.clone()).run(&token).await;
        }
    }
}

/// Metrics of the copies. Clones share them.
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
            writes: register(registry, "pull_secret_writes", writes),
            errors: register(registry, "pull_secret_write_errors", errors),
        }
    }

    /// Creates one series in each family, for the generated reference.
    pub fn create_series(&self) {
        drop(self.writes.get_or_create(&[("action", "")]));
        drop(self.errors.get_or_create(&[("reason", "")]));
    }
}
