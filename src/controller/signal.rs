//! Mode `signal`: after a change of the sources, KIM is requested to reconcile every selected Runtime.
//!
//! Three steps: observe ([`cache`](self)), decide (`policy::sync::signal`), write (one merge patch of the metadata).
//! Runs on the leader only.
//!
//! Invariants:
//! - of a Runtime only the keys of the signal and one annotation are written, neither specification nor status;
//! - nothing is written before the state, the sources, all Runtimes, `RuntimeBootstrapper`s and rollouts are known,
//!   and nothing is written without a change;
//! - no Runtime is signaled while a source is invalid or missing, signals are paused, or a limit is reached;
//! - a Runtime whose write fails is retried with its own backoff and does not delay others;
//! - a leader that loses the Lease stops writing, because all work runs in one future.
//!
//! Permissions: `deploy/controller/rbac-common.yaml`, without a rule for kubeconfigs.

use std::num::NonZeroU32;
use std::time::Duration;

use api::kcp::KCP_NAMESPACE;
use api::rollout::SIGNAL;
use component_base::readiness::Readiness;
use kube::Client;
use kube::core::Selector;
use kube::runtime::events::Reporter;
pub use policy::sync::signal::{Limits, Place, SignalKeys};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::DELETION_GRACE;
use super::inventory::RuntimeChanges;
use super::rollouts;
use super::sources::{Published, SourceMetrics};
use super::state::SIGNAL_STATE;

mod cache;
mod evaluation;
mod metrics;
pub(super) mod pace;
mod persisted_state;
mod reconcile;
mod report;
pub(crate) mod runtime;
mod status;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use metrics::SignalMetrics;

/// Settings of mode `signal`.
#[derive(Clone, Debug)]
pub struct SignalSettings {
    /// Metadata in which the key of the signal is set.
    pub keys: SignalKeys,
    /// Label selector of the Runtimes that are signaled. The default selects all Runtimes.
    pub selector: Selector,
    /// Maximum number of writes of Runtimes per second, on average: each signal costs KIM a reconcile of the whole runtime.
    pub per_second: NonZeroU32,
    /// Limits above which no further Runtime is signaled.
    pub limits: Limits,
    /// Whether the controller `direct` runs, too: it synchronizes the Runtimes in mode `direct`.
    pub has_direct: bool,
    /// Namespace of Runtimes, `RuntimeBootstrapper`s, rollouts and the state.
    pub namespace: String,
    /// Name of the state ConfigMap.
    pub state: String,
    /// Time for which a source that was synchronized may be missing before it counts as deleted.
    pub deletion_grace: Duration,
}

impl Default for SignalSettings {
    /// Returns settings with both keys on all Runtimes, and ten signals per second: 5,000 Runtimes in less than nine
    /// minutes. KIM, with 25 workers, needs more time.
    fn default() -> Self {
        Self {
            keys: SignalKeys::default(),
            selector: Selector::default(),
            per_second: NonZeroU32::MIN.saturating_add(9),
            limits: Limits::default(),
            has_direct: true,
            namespace: KCP_NAMESPACE.to_owned(),
            state: SIGNAL_STATE.to_owned(),
            deletion_grace: DELETION_GRACE,
        }
    }
}

/// Arguments of [`run`].
#[derive(Clone)]
pub struct SignalOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings.
    pub settings: SignalSettings,
    /// The sources, from [`super::sources::watch`].
    pub sources: Published,
    /// Readiness checks of the process: one for each watch, and `signal` for the state and for stopped signals.
    pub readiness: Readiness,
    /// Reporter of Kubernetes Events.
    pub reporter: Reporter,
    /// Metrics of signals.
    pub metrics: SignalMetrics,
    /// Metrics of sources.
    pub source_metrics: SourceMetrics,
}

/// Signals until the token is canceled, and then completes writes in flight.
///
/// This function does not return errors: they are retried, counted and logged. Dropping the future stops it
/// immediately. The next leader continues, because the state is stored on the Runtimes.
pub async fn run(options: SignalOptions, runtimes: RuntimeChanges, token: CancellationToken) {
    let (status, published) = watch::channel(None);
    let (client, namespace) = (options.client.clone(), options.settings.namespace.clone());
    let publish = rollouts::publish(client, namespace, SIGNAL, published);
    tokio::select! {
        () = reconcile::Reconciler::new(options, runtimes, status).run(token) => {}
        () = publish => {}
    }
}
