//! What one pass saw on one runtime. Objects are raw JSON, so that fields of newer Kubernetes versions are no obstacle.

use std::collections::BTreeMap;
use std::fmt;

use api::names::{DOCKER_CONFIG_TYPE, PULL_SECRET_COPY_LABEL, SKR_NAMESPACE};
use serde_json::Value;

use super::lane::{Lane, Lanes};
use super::target::Target;

/// The state of the product's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceState {
    /// Not there yet: today's manager makes it while it provisions the runtime.
    #[default]
    Missing,
    /// There.
    Active,
    /// Being deleted: nothing can be created in it.
    Terminating,
}

/// What one pass saw on one runtime.
#[derive(Clone, Default)]
pub struct Observed {
    /// UID of the namespace `kube-system`.
    pub cluster: Option<String>,
    /// The ConfigMap [`api::kcp::OWNER_CONFIG_MAP`].
    pub marker: Option<Value>,
    /// The product's namespace.
    pub namespace: NamespaceState,
    /// The best version in which ClusterTrustBundles are served (`v1` before `v1beta1` before `v1alpha1`), if at all.
    pub trust_bundles: Option<String>,
    /// Rights that are missing in each lane, each as `verb resource.group`; empty if they suffice. What all lanes write is
    /// in every one.
    pub missing_rights: Lanes<Vec<String>>,
    /// The same, of objects that may not be read: whether they exist is not known.
    pub unread: Lanes<Vec<String>>,
    /// The pull Secret.
    pub pull_secret: Option<Value>,
    /// The ClusterTrustBundle.
    pub trust_bundle: Option<Value>,
    /// The webhook's ConfigMap.
    pub configuration: Option<Value>,
    /// The webhook's Deployment; looked at in every pass.
    pub deployment: Option<Value>,
    /// What the webhook made while it ran; `None` if this pass did not look, in which case nothing of it is deleted.
    pub made: Option<Made>,
    /// The other objects of the installation that are there, and those of the inventory
    /// ([`super::inventory::candidates`]); `None` if this pass did not look at them, in which case
    /// nothing is decided about them.
    pub installed: Option<BTreeMap<Target, Value>>,
    /// Entries of the inventory that may not be read, with the missing permission: whether they exist is not known.
    pub unread_inventory: BTreeMap<Target, String>,
}

impl Observed {
    /// All rights that are missing in a lane.
    #[must_use]
    pub fn lacking_in(&self, lane: Lane) -> Vec<String> {
        [&**self.missing_rights.get(lane), self.unread.get(lane)].concat()
    }
}

/// What the webhook made while it ran, of which no manifest tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Copies of the pull Secret, in all namespaces.
    pub copies: Vec<Identity>,
    /// The Secret with the serving certificate and its key, and the Lease.
    pub others: Vec<Identity>,
}

/// Which object exactly: a deletion names its UID, so that a successor of the same name survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where.
    pub target: Target,
    /// `metadata.uid`.
    pub uid: Option<String>,
}

impl Identity {
    /// A copy of the pull Secret, by the webhook's own rule: its label, and the type that it writes. `None`: it is not
    /// one of ours.
    #[must_use]
    pub fn of_copy(secret: &Value) -> Option<Self> {
        let is_labelled = secret
            .get("metadata")?
            .get("labels")?
            .get(PULL_SECRET_COPY_LABEL)?
            == "true";
        let is_typed = text(secret, "/type") == Some(DOCKER_CONFIG_TYPE);
        if !is_labelled || !is_typed {
            return None;
        }
        let namespace = text(secret, "/metadata/namespace")?;
        let target = Target::secret(namespace, text(secret, "/metadata/name")?);
        Some(Self::of(target, secret))
    }

    /// An object that is there.
    #[must_use]
    pub fn of(target: Target, live: &Value) -> Self {
        Self {
            target,
            uid: text(live, "/metadata/uid").map(str::to_owned),
        }
    }
}

/// The objects may hold credentials and are left out.
impl fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Observed")
            .field("cluster", &self.cluster)
            .field("namespace", &self.namespace)
            .field("trust_bundles", &self.trust_bundles)
            .field("missing_rights", &self.missing_rights)
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}

/// Names of the three objects on runtimes. A part without a name is switched off: it is neither read nor written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The product's namespace.
    pub namespace: String,
    /// The pull Secret.
    pub pull_secret: Option<String>,
    /// The ClusterTrustBundle.
    pub trust_bundle: Option<String>,
    /// The ConfigMap with the document.
    pub configuration: String,
}

impl Default for Names {
    /// The public installer's names; it has none for the bundle.
    fn default() -> Self {
        Self {
            namespace: SKR_NAMESPACE.to_owned(),
            pull_secret: Some(api::names::PULL_SECRET.to_owned()),
            trust_bundle: None,
            configuration: api::names::CONFIG_MAP.to_owned(),
        }
    }
}

/// How far the webhook's Deployment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeploymentStatus {
    /// There is none.
    #[default]
    Missing,
    /// Some Pod of the current template is not available yet, or an older one is left.
    Progressing,
    /// Every Pod is of the current template and available.
    Available,
    /// The progress deadline passed. A new version may still be applied.
    Failed,
}

impl DeploymentStatus {
    /// Judges a Deployment.
    ///
    /// The public installer looks at ready replicas and `Available` alone, and so takes the Pods of the old version for
    /// a success of the new one.
    #[must_use]
    pub fn of(deployment: Option<&Value>) -> Self {
        let Some(live) = deployment else {
            return Self::Missing;
        };
        let seen =
            number(live, "/status/observedGeneration") >= number(live, "/metadata/generation");
        if seen && condition(live, "Progressing") == Some(("False", "ProgressDeadlineExceeded")) {
            return Self::Failed;
        }
        let wanted = replicas(live);
        let all = [
            "/status/replicas",
            "/status/updatedReplicas",
            "/status/readyReplicas",
            "/status/availableReplicas",
        ]
        .iter()
        .all(|path| number(live, path) == wanted);
        let available = condition(live, "Available").is_some_and(|(status, _)| status == "True");
        if seen && all && available {
            Self::Available
        } else {
            Self::Progressing
        }
    }
}

/// The replicas that a Deployment is to have; one if it does not say.
pub(super) fn replicas(deployment: &Value) -> u64 {
    deployment
        .pointer("/spec/replicas")
        .and_then(Value::as_u64)
        .unwrap_or(1)
}

/// Whether an object is on its way out.
pub(super) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// A number of an object; zero if it is absent.
pub(super) fn number(object: &Value, pointer: &str) -> u64 {
    object
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

/// A text of an object.
pub(super) fn text<'v>(object: &'v Value, pointer: &str) -> Option<&'v str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// A value of a ConfigMap.
pub(super) fn data<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.get("data")?.get(key)?.as_str()
}

/// An annotation.
pub(super) fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(key)?
        .as_str()
}

fn condition<'v>(object: &'v Value, name: &str) -> Option<(&'v str, &'v str)> {
    object
        .pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|it| text(it, "/type") == Some(name))
        .map(|it| {
            (
                text(it, "/status").unwrap_or_default(),
                text(it, "/reason").unwrap_or_default(),
            )
        })
}
