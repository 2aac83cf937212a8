//! The pull Secret's mirror: a copy in every namespace that needs one, and nowhere else.
//!
//! Invariants:
//! - a Secret that somebody else made is never written nor removed;
//! - nothing is written where nothing differs, and nothing before the first complete list of copies;
//! - of the copies' bytes only a hash is kept, and no value is ever part of a log line, an error or an event.
//!
//! Level-triggered: a watch event, a new configuration or a new source only says *which* namespaces to look at; what
//! to do is decided from the whole state ([`policy::mirror`]), eight namespaces at a time, and a namespace that fails is
//! tried again at its own growing distance. An edit or a deletion is undone when its event arrives, but the same
//! namespace is written at most once a second, so that nobody can draw us into a fight at full speed.
//!
//! A copy that is no longer needed lingers for 10 s: a Pod that is replaced (a StatefulSet of one) finds its credentials,
//! and a configuration that was mistyped may be corrected. Then the unfinished Pods of the namespace are listed, once. If
//! one of them names the Secret or was changed by the webhook, the copy stays, because `imagePullSecrets` of a Pod cannot
//! be changed and the kubelet needs the Secret at its next pull. The Pods are listed again 15 s later at most, then at
//! growing distances up to 5 min, until none of them uses the copy. Meanwhile a copy is neither refreshed nor reset.
//!
//! A source that is known to be absent (its watch listed completely, or the version in force is without it) revokes the
//! credentials: every copy is removed after the same 10 s, whatever Pods use it, unless the source is there again by then.
//!
//! # Rights
//! A ClusterRole; namespaces and the source are watched elsewhere and need theirs there.
//! ```yaml
//! - apiGroups: [""]
//!   resources: [secrets]
//!   resourceNames: [registry-credentials]   # list and watch pass because of the field selector metadata.name
//!   verbs: [list, watch, create, patch, delete]
//! - apiGroups: [""]
//!   resources: [pods]                       # metadata, and whole Pods of a namespace before a removal
//!   verbs: [list, watch]
//! - apiGroups: [events.k8s.io]
//!   resources: [events]
//!   verbs: [create, patch]
//! ```
//! Without the right to Pods, namespaces that ask by themselves are still served, and no copy is removed that is merely
//! no longer needed.
//!
//! # Another name
//! `imagePullSecret.name` may change while we run: the watch begins anew under the new name, and copies are made
//! under it. The rights above must then name it too (`resourceNames` is a list, so both can stand there); until they
//! do, the refused watch is logged and nothing is written. Copies under the old name *stay*, with a line in the log:
//! running Pods name them in `imagePullSecrets`, which cannot be changed. Nobody refreshes them from then on. Once no Pod
//! uses them, an operator removes them by the label `rt-bootstrapper.kyma-project.io/pull-secret-copy=true` and the old name.
//!
//! Deliberately absent: reading the source and the Namespaces ([`Knowledge`]), and the decision itself (`policy`).

use kube::Client;
use kube::runtime::events::Recorder;
use tokio_util::sync::CancellationToken;

use crate::knowledge::Knowledge;

mod apply;
mod copies;
mod foreign;
mod found;
mod gather;
mod metrics;
mod pacing;
mod pods;
mod queue;
mod reconcile;
mod state;
mod trouble;
mod usage;

#[cfg(test)]
mod tests;

pub use metrics::MirrorMetrics;

/// What keeps the copies. Clones are the same mirror, one for each election.
#[derive(Clone)]
pub struct Mirror {
    client: Client,
    knowledge: Knowledge,
    recorder: Recorder,
    metrics: MirrorMetrics,
    product_namespace: String,
    pacing: pacing::Pacing,
}

impl Mirror {
    /// A mirror that does nothing before it is run.
    ///
    /// `product_namespace` holds the source and never gets a copy. The recorder is the process's one: it remembers
    /// what it said.
    #[must_use]
    pub fn new(
        client: Client,
        knowledge: Knowledge,
        recorder: Recorder,
        metrics: MirrorMetrics,
        product_namespace: String,
    ) -> Self {
        Self {
            client,
            knowledge,
            recorder,
            metrics,
            product_namespace,
            pacing: pacing::Pacing::default(),
        }
    }

    /// Keeps the copies until the token is cancelled; writes under way are then still completed.
    ///
    /// Never fails: what goes wrong is retried, counted and logged. Dropping the future stops it at once, which
    /// leaves at worst a copy removed and not yet written anew, and the next leader sees that.
    pub async fn run(self, token: CancellationToken) {
        reconcile::Reconciler::new(self).run(token).await;
    }
}
