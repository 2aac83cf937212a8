//! How a cluster behaves towards its clients, apart from what it stores.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kinds::{Kind, builtin};
use super::rights::Rights;

/// How a cluster behaves; it may change at any time and holds from the next request on.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// The kinds that are served.
    pub kinds: Arc<[&'static Kind]>,
    /// What clients may do.
    pub rights: Rights,
    /// The uid that `kube-system` shows instead of its own: another cluster at the same address.
    pub identity: Option<String>,
    /// How a Deployment's rollout goes.
    pub rollout: Rollout,
    /// Whether objects can be created in namespaces.
    pub creation: Creation,
    /// Whether dependents hold up deletions in the foreground, until the finalizer `foregroundDeletion` is removed.
    pub dependents: bool,
    /// An annotation that an admission plugin removes from every object that is replaced or patched.
    pub stripped: Option<&'static str>,
    /// The largest number of objects in a page, whatever a client asks for.
    pub page: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            kinds: builtin().into(),
            rights: Rights::default(),
            identity: None,
            rollout: Rollout::default(),
            creation: Creation::default(),
            dependents: false,
            stripped: None,
            page: usize::MAX,
        }
    }
}

/// How rollouts of Deployments go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rollout {
    /// Available at once.
    #[default]
    Immediate,
    /// Available after this many milliseconds.
    Takes(u32),
    /// Never available.
    Stuck,
}

impl Rollout {
    pub(super) fn time(self) -> Option<Duration> {
        match self {
            Self::Immediate => Some(Duration::ZERO),
            Self::Takes(millis) => Some(Duration::from_millis(millis.into())),
            Self::Stuck => None,
        }
    }
}

/// Whether new objects are accepted in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Creation {
    /// They are.
    #[default]
    Allowed,
    /// 403: every namespace is being deleted.
    NamespaceTerminating,
    /// 403: a quota is used up.
    QuotaExceeded,
}
