//! The interim mode: after a change of the sources, every affected `Runtime` is marked for today's manager.
//!
//! Gather ([`gather`](self): Runtimes and `RuntimeBootstrapper`s, trimmed at once), decide
//! (`policy::sync::signal`), apply (one merge patch of the signal's key). Runs on the leader only.
//!
//! Invariants:
//! - of a Runtime nothing is written but the signal's key in its metadata: neither specification nor status, so its
//!   generation stays and it never leaves `Ready` because of us;
//! - nothing is written before the record, the sources, all Runtimes and all `RuntimeBootstrapper`s are known, and
//!   nothing at all when there is nothing to do;
//! - no signal is set while a source cannot be used: the manager would copy it with the others; nor while one is missing
//!   and its grace period runs: the manager would do without it;
//! - a runtime whose write fails is tried again at its own growing distance and delays nobody;
//! - a leader that loses its office writes nothing more: all work is part of one future, and the record is guarded.
//!
//! # Rights
//! Beside those of the sources and the record, a Role in `kcp-system` (no Secret among them):
//! ```yaml
//! - apiGroups: [infrastructuremanager.kyma-project.io]
//!   resources: [runtimes]
//!   verbs: [list, watch, patch]
//! - apiGroups: [operator.kyma-project.io]
//!   resources: [runtimebootstrappers]
//!   verbs: [list, watch]
//! - apiGroups: [events.k8s.io]
//!   resources: [events]
//!   verbs: [create, patch]
//! ```

use std::num::NonZeroU32;
use std::time::Duration;

use api::kcp::{FORCE_RECONCILE_KEY, KCP_NAMESPACE};
use component_base::readiness::Readiness;
use kube::Client;
use kube::core::Selector;
use kube::runtime::events::Reporter;
use policy::sync::signal::{Keys, Seen};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use self::runtime::Marks;
use super::DELETION_GRACE;
use super::sources::{Published, SourceMetrics};
use super::state::SIGNAL_STATE;

mod fleet;
mod gather;
mod ledger;
mod metrics;
pub(super) mod pace;
mod queue;
mod reconcile;
mod report;
pub(crate) mod runtime;
mod watchman;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use metrics::SignalMetrics;

/// One of the two places of the signal's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the labels: the required one.
    Label,
    /// Among the annotations: the public manager's.
    Annotation,
}

/// Where the signal's key is set, and by which one the manager shows that it took the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKeys {
    /// There alone.
    Only(Place),
    /// In both places. What the manager does not obey is left over, and we remove it.
    Both {
        /// The one that the manager takes away. Without it, whichever goes first: a Runtime whose key somebody else
        /// removes is then taken for signalled.
        obeyed: Option<Place>,
    },
}

impl Default for SignalKeys {
    /// For every manager.
    fn default() -> Self {
        Self::Both { obeyed: None }
    }
}

/// What can be set.
#[derive(Clone, Debug)]
pub struct SignalSettings {
    /// Where the key goes.
    pub keys: SignalKeys,
    /// Which Runtimes are affected, as far as labels tell. The default is all.
    pub selector: Selector,
    /// How many Runtimes are written in a second, on average: each signal costs the manager a reconciliation of the
    /// whole runtime.
    pub per_second: NonZeroU32,
    /// Where Runtimes, resources and the record are.
    pub namespace: String,
    /// The ConfigMap of the record.
    pub record: String,
    /// How long a source that was rolled out may be missing before that counts as its deletion.
    pub deletion_grace: Duration,
}

impl Default for SignalSettings {
    /// Both keys on all Runtimes, ten a second: 5,000 in less than nine minutes, of which the manager's 25 workers need more.
    fn default() -> Self {
        Self {
            keys: SignalKeys::default(),
            selector: Selector::default(),
            per_second: NonZeroU32::MIN.saturating_add(9),
            namespace: KCP_NAMESPACE.to_owned(),
            record: SIGNAL_STATE.to_owned(),
            deletion_grace: DELETION_GRACE,
        }
    }
}

/// Everything that the signal needs.
#[derive(Clone)]
pub struct SignalOptions {
    /// The control plane.
    pub client: Client,
    /// What may be set.
    pub settings: SignalSettings,
    /// From [`super::sources::watch`].
    pub sources: Published,
    /// Where health is reported: the watches, and `signal` for the record.
    pub readiness: Readiness,
    /// Who writes Events.
    pub reporter: Reporter,
    /// What is counted.
    pub metrics: SignalMetrics,
    /// What is counted of sources.
    pub source_metrics: SourceMetrics,
}

/// Signals until the token is cancelled; writes under way are then still completed, and the record is stored.
///
/// Never fails: what goes wrong is retried, counted and logged. Dropping the future stops it at once; whoever leads next
/// goes on, and repeats at most what was not stored in the last seconds.
pub async fn run(options: SignalOptions, token: CancellationToken) {
    reconcile::Reconciler::new(options).run(token).await;
}

impl SignalKeys {
    fn policy(self) -> Keys {
        match self {
            Self::Only(Place::Label) => Keys::Label,
            Self::Only(Place::Annotation) => Keys::Annotation,
            Self::Both { .. } => Keys::Both,
        }
    }

    /// What stands, in the eyes of the decision: as long as the key that the manager obeys is there, all of the signal is.
    fn seen(self, marks: Marks) -> Seen {
        let Marks {
            label, annotation, ..
        } = marks;
        let stands = match self {
            Self::Only(_) | Self::Both { obeyed: None } => false,
            Self::Both {
                obeyed: Some(Place::Label),
            } => label,
            Self::Both {
                obeyed: Some(Place::Annotation),
            } => annotation,
        };
        Seen {
            label: label || stands,
            annotation: annotation || stands,
        }
    }

    /// Whether all of the signal stands.
    fn stands(self, marks: Marks) -> bool {
        let seen = self.seen(marks);
        (seen.label || !self.has(Place::Label)) && (seen.annotation || !self.has(Place::Annotation))
    }

    fn has(self, place: Place) -> bool {
        match self {
            Self::Only(only) => only == place,
            Self::Both { .. } => true,
        }
    }

    /// The merge patch that sets the signal.
    pub(super) fn set(self) -> Value {
        patch(
            self.has(Place::Label),
            self.has(Place::Annotation),
            &json!("true"),
        )
    }

    /// The merge patch that removes what is there of it.
    fn remove(self, marks: Marks) -> Value {
        let label = marks.label && self.has(Place::Label);
        let annotation = marks.annotation && self.has(Place::Annotation);
        patch(label, annotation, &Value::Null)
    }
}

fn patch(label: bool, annotation: bool, value: &Value) -> Value {
    let mut metadata = Map::new();
    for (name, wanted) in [("labels", label), ("annotations", annotation)] {
        if wanted {
            metadata.insert(name.to_owned(), json!({FORCE_RECONCILE_KEY: value}));
        }
    }
    json!({"metadata": metadata})
}
