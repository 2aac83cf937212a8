//! The long-term mode: the controller itself installs the webhook on every runtime and keeps its content in step.
//!
//! Gather (`gather`: one round trip), decide (`policy::sync`), apply (`apply`: one server-side apply per object
//! that differs), report (`report`, `writer`). `policy::sync::scheduler` says which runtime is due in which lane, and what may
//! be written; `dispatch` starts it. Runs on the leader only.
//!
//! Invariants:
//! - nothing is written to a cluster before its identity, what it serves and our rights there were looked at;
//! - where nothing differs nothing is written, neither on the runtime nor on the control plane;
//! - a kubeconfig is held for one pass, and a runtime that is idle holds no connection;
//! - nothing begins before all Runtimes, all `RuntimeBootstrapper`s, the sources and the record are known.
//!
//! # Rights
//! Beside those of the sources and the record, a Role in `kcp-system`:
//! ```yaml
//! - apiGroups: [""]
//!   resources: [secrets]                  # kubeconfigs: one a runtime, so no names can be given
//!   verbs: [get, list, watch]
//! - apiGroups: [""]
//!   resources: [configmaps]
//!   resourceNames: [rt-bootstrapper-direct-state]
//!   verbs: [create, get, list, patch, update, watch]
//! - apiGroups: [apps]
//!   resources: [controllerrevisions]      # manifests of earlier revisions of the webhook
//!   verbs: [create, delete, list]
//! - apiGroups: [infrastructuremanager.kyma-project.io]
//!   resources: [runtimes]                 # patched once, when a runtime is handed back: the signal
//!   verbs: [list, patch, watch]
//! - apiGroups: [operator.kyma-project.io]
//!   resources: [runtimebootstrappers]
//!   verbs: [create, delete, get, list, patch, watch]
//! - apiGroups: [operator.kyma-project.io]
//!   resources: [runtimebootstrappers/status]
//!   verbs: [patch]
//! - apiGroups: [events.k8s.io]
//!   resources: [events]
//!   verbs: [create, patch]
//! ```

use std::num::NonZeroU32;
use std::time::Duration;

use api::kcp::{KCP_NAMESPACE, MODE_DIRECT, MODE_LABEL};
use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use kube::Client;
use kube::core::Selector;
use kube::runtime::events::Reporter;
use policy::sync::Lanes;
use policy::sync::Salt;
use policy::sync::observed::Names;
use policy::sync::rollout::{MaxFailures, Settings as Rollout, Step};
use tokio_util::sync::CancellationToken;

use super::DELETION_GRACE;
use super::signal::SignalKeys;
use super::sources::{Published, SourceMetrics};
use crate::clients::RuntimeClients;

mod access;
mod apply;
mod claims;
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

/// What the record of direct mode is called.
pub const DIRECT_STATE: &str = "rt-bootstrapper-direct-state";

/// Reconciles of the webhook lane at once, at a quarter of a megabyte each; twice as many while some of them are slow.
const WEBHOOK_RECONCILES: usize = 48;

/// A reconcile that takes longer does not keep others from starting.
const SLOW: Duration = Duration::from_secs(2);

/// What can be set.
#[derive(Clone, Debug)]
pub struct DirectSettings {
    /// Where Runtimes, resources and kubeconfigs are.
    pub namespace: String,
    /// Names of the three objects on runtimes.
    pub names: Names,
    /// Which Runtimes get a resource by themselves.
    pub adopt: Selector,
    /// How today's manager is told that a runtime is its own again, whether part `signal` runs or not.
    pub signal_keys: SignalKeys,
    /// Of which Runtimes it may be told.
    pub signal_selector: Selector,
    /// Of how many in a second.
    pub signals_per_second: NonZeroU32,
    /// Within which time everything on a runtime is looked at again.
    pub resync: Duration,
    /// How many passes may run at once; twice as many while some of them take long.
    pub passes: usize,
    /// How many runtimes are connected to, or wait as such for a pass, at once; twice as many while some of them take
    /// long. A handshake takes two round trips of a pass's five and much less room.
    pub handshakes: usize,
    /// How many runtimes are looked at and written to at once, at most; twice as many while some of them take long. A
    /// connection in use costs a tenth of a megabyte.
    pub connected: usize,
    /// How long a runtime in trouble is left alone.
    pub backoff: Backoff,
    /// How soon a Deployment that is on its way is looked at again.
    pub soon: Backoff,
    /// How many statuses are written on the control plane in a second.
    pub statuses_per_second: NonZeroU32,
    /// How long the first change of a source waits for others: sources that are changed together come one by one, and
    /// each would be a version of its own, written everywhere.
    pub together: Duration,
    /// How long a source that was rolled out may be missing before that counts as its deletion.
    pub deletion_grace: Duration,
    /// Steps and limits of the rollouts.
    pub rollouts: Lanes<Rollout>,
}

impl Default for DirectSettings {
    fn default() -> Self {
        Self {
            namespace: KCP_NAMESPACE.to_owned(),
            names: Names::default(),
            adopt: Selector::from_iter([(MODE_LABEL, MODE_DIRECT)]),
            signal_keys: SignalKeys::default(),
            signal_selector: Selector::default(),
            signals_per_second: NonZeroU32::MIN.saturating_add(9),
            resync: Duration::from_mins(10),
            passes: 512,
            handshakes: 128,
            connected: 224,
            backoff: Backoff {
                base: Duration::from_secs(5),
                cap: Duration::from_mins(5),
            },
            soon: Backoff {
                base: Duration::from_secs(2),
                cap: Duration::from_secs(30),
            },
            statuses_per_second: NonZeroU32::MIN.saturating_add(99),
            together: Duration::from_millis(200),
            deletion_grace: DELETION_GRACE,
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

/// Everything that direct mode needs.
#[derive(Clone)]
pub struct DirectOptions {
    /// The control plane.
    pub client: Client,
    /// What may be set.
    pub settings: DirectSettings,
    /// From [`super::sources::watch`].
    pub sources: Published,
    /// Who the control plane is.
    pub salt: Salt,
    /// The clients of runtimes.
    pub fleet: RuntimeClients,
    /// What is installed.
    pub installations: Installations,
    /// Where health is reported.
    pub readiness: Readiness,
    /// Who writes Events.
    pub reporter: Reporter,
    /// What is counted.
    pub metrics: DirectMetrics,
    /// What is counted of sources.
    pub source_metrics: SourceMetrics,
}

/// Keeps runtimes in step until the token is cancelled, and then stops at once: whoever leads next goes on from what is
/// there.
///
/// What goes wrong is retried, counted and reported.
pub async fn run(options: DirectOptions, token: CancellationToken) {
    let events = events::Loop::new(options);
    tokio::select! {
        () = events.run() => {}
        () = token.cancelled() => {}
    }
}
