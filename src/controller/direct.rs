//! The controller `direct`: installs the webhook on every runtime and keeps its configuration synchronized.
//!
//! A reconcile reads the runtime (`gather`, one round trip), makes a plan (`policy::sync`), applies it (`apply`, one server-side
//! apply per object that differs) and reports the result (`report`, `writer`). `policy::sync::scheduler` decides which lane of
//! which runtime is due and what may be written; `dispatch` starts the reconcile. Runs on the leader only.
//!
//! Invariants:
//! - nothing is written to a cluster before its identity, its APIs and the permissions of the controller there were read;
//! - an object that does not differ is not written, neither on the runtime nor on KCP;
//! - a kubeconfig is kept for one reconcile only, and an idle runtime has no open connection;
//! - no reconcile starts before all Runtimes, all `RuntimeBootstrapper`s, the sources and the state ConfigMap were read.
//!
//! Permissions: `deploy/controller/rbac-common.yaml` and `rbac-direct.yaml`.

use std::num::NonZeroU32;
use std::time::Duration;

use api::kcp::{KCP_NAMESPACE, MODE_DIRECT, MODE_LABEL};
use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use kube::Client;
use kube::core::Selector;
use kube::runtime::events::Reporter;
use policy::sync::Lanes;
use policy::sync::ObjectNames;
use policy::sync::Salt;
use policy::sync::rollout::{MaxFailures, Settings as Rollout, Step};
use tokio_util::sync::CancellationToken;

use super::DELETION_GRACE;
use super::inventory::RuntimeChanges;
use super::signal::SignalKeys;
use super::sources::{Published, SourceMetrics};
use crate::clients::RuntimeClients;

mod apply;
mod compact_status;
mod completion;
mod dispatch;
mod events;
mod gather;
mod lifecycle;
mod metrics;
mod plan;
mod reconcile;
mod report;
mod revisions;
mod rights;
mod rollout_status;
mod state_update;
mod store;
mod watches;
mod writer;

#[cfg(test)]
mod tests;

pub use metrics::DirectMetrics;
pub use plan::{
    PlanError, PlanOptions, PlannedCondition, PlannedLane, PlannedWrite, RuntimePlan, plan_runtime,
};
pub use revisions::{Installations, ManifestsError, Render};

/// Name of the state ConfigMap of the controller `direct`.
pub const DIRECT_STATE: &str = "rt-bootstrapper-direct-state";

/// Maximum number of concurrent reconciles of the webhook lane. Each reconcile needs 0.25 MB. The number doubles
/// while some reconciles are slow.
const WEBHOOK_RECONCILES: usize = 48;

/// Settings of the controller `direct`.
#[derive(Clone, Debug)]
pub struct DirectSettings {
    /// Namespace of Runtimes, `RuntimeBootstrapper`s and kubeconfig Secrets on KCP.
    pub namespace: String,
    /// Names of the three objects on runtimes.
    pub names: ObjectNames,
    /// Selects the Runtimes for which the controller creates a `RuntimeBootstrapper`.
    pub adopt: Selector,
    /// Whether the controller `signal` runs too. It then signals KIM for an orphaned runtime, within its limits.
    pub has_signal: bool,
    /// Annotation or label of the signal that requests KIM to reconcile an orphaned runtime, if the controller `signal`
    /// is off.
    pub signal_keys: SignalKeys,
    /// Selects the Runtimes that may be signaled.
    pub signal_selector: Selector,
    /// Maximum number of signals per second.
    pub signals_per_second: NonZeroU32,
    /// Interval after which all objects on a runtime are read again.
    pub resync: Duration,
    /// Maximum number of concurrent reconciles. The number doubles while some reconciles are slow.
    pub max_concurrent_reconciles: usize,
    /// Maximum number of runtimes to which a connection is being opened, or which wait for `max_connections` with an
    /// open connection. The number doubles while some runtimes are slow. A handshake is two of the five round trips
    /// of a reconcile, and needs much less memory than the rest.
    pub max_handshakes: usize,
    /// Maximum number of runtimes that are read and written concurrently. The number doubles while some runtimes are
    /// slow. A connection in use needs 0.1 MB.
    pub max_connections: usize,
    /// Duration after which a reconcile counts as slow, so that it does not prevent other reconciles from starting.
    pub slow_after: Duration,
    /// Delay before a failed reconcile is repeated.
    pub backoff: Backoff,
    /// Delay before a Deployment that is progressing is read again.
    pub progress_backoff: Backoff,
    /// Maximum number of status updates on KCP per second.
    pub statuses_per_second: NonZeroU32,
    /// Time to wait after the first change of a source. Sources that are changed together arrive one by one. Without
    /// the wait, each change would be a separate revision that is rolled out to all runtimes.
    pub debounce: Duration,
    /// Time for which a source that was rolled out may be missing before it counts as deleted.
    pub deletion_grace: Duration,
    /// Minimum time for which this leader tries to delete the objects of a runtime before the deletion times out.
    pub min_deletion_time: Duration,
    /// Steps and limits of the rollouts.
    pub rollouts: Lanes<Rollout>,
}

impl Default for DirectSettings {
    fn default() -> Self {
        Self {
            namespace: KCP_NAMESPACE.to_owned(),
            names: ObjectNames::on_runtime(),
            adopt: Selector::from_iter([(MODE_LABEL, MODE_DIRECT)]),
            has_signal: false,
            signal_keys: SignalKeys::default(),
            signal_selector: Selector::default(),
            signals_per_second: NonZeroU32::MIN.saturating_add(9),
            resync: Duration::from_mins(10),
            max_concurrent_reconciles: 208,
            max_handshakes: 80,
            max_connections: 128,
            slow_after: Duration::from_secs(2),
            backoff: Backoff {
                base: Duration::from_secs(5),
                cap: Duration::from_mins(5),
            },
            progress_backoff: Backoff {
                base: Duration::from_secs(2),
                cap: Duration::from_secs(30),
            },
            statuses_per_second: NonZeroU32::MIN.saturating_add(99),
            debounce: Duration::from_millis(200),
            deletion_grace: DELETION_GRACE,
            min_deletion_time: Duration::from_mins(5),
            rollouts: Lanes {
                configuration: Rollout::new(vec![Step::Percent(100)]),
                webhook: Rollout {
                    soak: Duration::from_mins(2),
                    max_failures: Some(MaxFailures::Percent(2)),
                    keeps_revisions: true,
                    ..Rollout::new(vec![
                        Step::Count(1),
                        Step::Percent(1),
                        Step::Percent(10),
                        Step::Percent(100),
                    ])
                },
            },
        }
    }
}

/// Arguments of [`run`].
#[derive(Clone)]
pub struct DirectOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings.
    pub settings: DirectSettings,
    /// The sources, from [`super::sources::watch`].
    pub sources: Published,
    /// Salt of all hashes; it identifies KCP.
    pub salt: Salt,
    /// Clients of runtimes.
    pub fleet: RuntimeClients,
    /// Manifests of the webhook.
    pub installations: Installations,
    /// Readiness checks of the process.
    pub readiness: Readiness,
    /// Reporter of Kubernetes Events.
    pub reporter: Reporter,
    /// Metrics of the controller.
    pub metrics: DirectMetrics,
    /// Metrics of the sources.
    pub source_metrics: SourceMetrics,
}

/// Synchronizes runtimes until the token is canceled. Running reconciles may then take a few seconds to end. The next
/// leader continues from the stored state.
///
/// Failures are retried, counted and reported.
pub async fn run(options: DirectOptions, runtimes: RuntimeChanges, token: CancellationToken) {
    events::Loop::new(options).run(runtimes, token).await;
}
