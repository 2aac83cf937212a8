//! The state of one runtime that a reconcile observed. Objects are raw JSON, so that fields of newer Kubernetes
//! versions are kept.

use std::collections::BTreeMap;
use std::fmt;

use api::names::{PULL_SECRET_COPY_LABEL, SECRET_MANAGER};
use serde_json::Value;

use super::SourceKind;
use super::lane::{Lane, Lanes};
use super::managed_fields;
use super::target::Target;

/// The state of the namespace of the webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceState {
    /// The namespace does not exist yet. KIM creates it during provisioning.
    #[default]
    Missing,
    /// The namespace exists.
    Active,
    /// The namespace is being deleted, so that nothing can be created in it.
    Terminating,
}

/// The state of one runtime that a reconcile observed.
#[derive(Clone, Default)]
pub struct Observed {
    /// UID of the Namespace `kube-system`.
    pub cluster: Option<String>,
    /// The ownership ConfigMap, [`api::kcp::OWNER_CONFIG_MAP`].
    pub marker: Option<Value>,
    /// The namespace of the webhook.
    pub namespace: NamespaceState,
    /// The preferred served version of ClusterTrustBundles (`v1`, `v1beta1`, `v1alpha1`); `None` if they are not
    /// served.
    pub trust_bundles: Option<String>,
    /// Permissions that are missing in each lane, each as `verb resource.group`. Permissions for objects of all lanes
    /// are in every lane, those for the three objects are in `inaccessible`.
    pub missing_permissions: Lanes<Vec<String>>,
    /// Missing permissions for reading; it is unknown whether the objects exist.
    pub unread: Lanes<Vec<String>>,
    /// Failed reads of single objects, each with its error; it is unknown whether the objects exist.
    pub failed_reads: Lanes<Vec<String>>,
    /// Those of the three objects that cannot be read or written.
    pub inaccessible: BTreeMap<SourceKind, Inaccessible>,
    /// The pull Secret.
    pub pull_secret: Option<Value>,
    /// The ClusterTrustBundle.
    pub trust_bundle: Option<Value>,
    /// The webhook's ConfigMap.
    pub configuration: Option<Value>,
    /// The webhook's Deployment, which every reconcile reads.
    pub deployment: Option<Value>,
    /// Objects that the webhook created; `None` if this reconcile did not list them, so that none is deleted.
    pub webhook_objects: Option<WebhookObjects>,
    /// Live objects of the other manifests and of the inventory ([`super::inventory::candidates`]); `None` if this
    /// reconcile did not read them, so that they are not changed.
    pub installed: Option<BTreeMap<Target, Value>>,
    /// Sources under earlier names that are to be deleted ([`super::plan::revoked_targets`]).
    pub earlier_sources: BTreeMap<Target, Value>,
    /// Entries of the inventory, and manifests in additional namespaces, that cannot be read; it is unknown whether they exist.
    pub unread_inventory: BTreeMap<Target, ReadFailure>,
}

/// Reason why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The user of the kubeconfig lacks a permission.
    #[error("missing permission: {0}")]
    Forbidden(String),
    /// The API server returns an error for the object, which the text names.
    #[error("failed to read {0}")]
    Failed(String),
}

impl Observed {
    /// Returns all permissions that are missing in a lane.
    pub(super) fn missing_permissions_in(&self, lane: Lane) -> Vec<String> {
        [&**self.missing_permissions.get(lane), self.unread.get(lane)].concat()
    }

    /// Returns whether an object of a lane may exist that was not read.
    pub(super) fn is_partly_unread(&self, lane: Lane) -> bool {
        !self.unread.get(lane).is_empty() || !self.failed_reads.get(lane).is_empty()
    }

    /// Returns whether one of the three objects was not read, so that it may exist.
    pub(super) fn is_unread(&self, kind: SourceKind) -> bool {
        let inaccessible = self.inaccessible.get(&kind);
        inaccessible.is_some_and(Inaccessible::is_unread)
    }

    /// Returns whether the API of ClusterTrustBundles is not served. It is unknown if the list of them failed.
    pub(super) fn serves_no_trust_bundles(&self) -> bool {
        self.trust_bundles.is_none() && !self.is_unread(SourceKind::TrustBundle)
    }
}

/// Reasons why one of the three objects cannot be read or written. They concern no other object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inaccessible {
    /// Missing permissions, each as `verb resource.group`.
    pub missing_permissions: Vec<String>,
    /// The missing permission for reading; it is unknown whether the object exists.
    pub unread: Option<String>,
    /// The failed read with its error; it is unknown whether the object exists.
    pub failed_read: Option<String>,
}

impl Inaccessible {
    fn is_unread(&self) -> bool {
        self.unread.is_some() || self.failed_read.is_some()
    }
}

/// Objects that the webhook created and that are not in the manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookObjects {
    /// Copies of the pull Secret, in all namespaces.
    pub copies: Vec<ObjectIdentity>,
    /// The Secret with the serving certificate and its key, and the Lease.
    pub others: Vec<ObjectIdentity>,
}

/// An object and its UID, so that a new object of the same name is not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// The object's kind, namespace and name.
    pub target: Target,
    /// `metadata.uid`.
    pub uid: Option<String>,
}

impl ObjectIdentity {
    /// Returns the identity of a copy of the pull Secret, from the metadata of a Secret with the type of copies.
    /// `None` if the Secret is not a copy: it has no label of the webhook.
    #[must_use]
    pub fn of_copy(secret: &Value) -> Option<Self> {
        if label(secret, PULL_SECRET_COPY_LABEL) != Some("true") {
            return None;
        }
        Self::of_secret(secret)
    }

    /// Returns the identity of a copy, from a Secret with the name of the pull Secret. The public webhook sets no
    /// label, so the copy is identified by the field manager, which is the same for both webhooks.
    #[must_use]
    pub fn of_public_copy(secret: &Value, product_namespace: &str) -> Option<Self> {
        let is_source = text(secret, "/metadata/namespace") == Some(product_namespace);
        let is_ours = managed_fields::managed_by(secret, SECRET_MANAGER);
        (is_ours && !is_source).then(|| Self::of_secret(secret))?
    }

    fn of_secret(secret: &Value) -> Option<Self> {
        let namespace = text(secret, "/metadata/namespace")?;
        let target = Target::secret(namespace, text(secret, "/metadata/name")?);
        Some(Self::of(target, secret))
    }

    /// Returns the identity of a live object.
    #[must_use]
    pub fn of(target: Target, live: &Value) -> Self {
        Self {
            target,
            uid: text(live, "/metadata/uid").map(str::to_owned),
        }
    }
}

/// `Debug` output without the objects, which may contain credentials.
impl fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Observed")
            .field("cluster", &self.cluster)
            .field("namespace", &self.namespace)
            .field("trust_bundles", &self.trust_bundles)
            .field("missing_permissions", &self.missing_permissions)
            .field("unread", &self.unread)
            .field("failed_reads", &self.failed_reads)
            .field("inaccessible", &self.inaccessible)
            .finish_non_exhaustive()
    }
}

/// The status of the webhook's Deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeploymentStatus {
    /// The Deployment does not exist.
    #[default]
    Missing,
    /// A Pod of the current template is not available yet, or a Pod of another template exists.
    Progressing,
    /// All Pods have the current template and are available.
    Available,
    /// The progress deadline is exceeded. Another version can still be applied.
    Failed,
}

impl DeploymentStatus {
    /// Returns the status of a Deployment.
    ///
    /// KIM only reads the ready replicas and `Available`, which may describe the old version.
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

/// Returns the desired replicas of a Deployment; one by default.
pub(super) fn replicas(deployment: &Value) -> u64 {
    deployment
        .pointer("/spec/replicas")
        .and_then(Value::as_u64)
        .unwrap_or(1)
}

/// Returns whether an object is being deleted.
pub(super) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Returns a number in an object; zero if it is absent.
pub(super) fn number(object: &Value, pointer: &str) -> u64 {
    object
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

/// Returns a string in an object.
pub(super) fn text<'v>(object: &'v Value, pointer: &str) -> Option<&'v str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// Returns a value of a ConfigMap.
pub(super) fn data<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.get("data")?.get(key)?.as_str()
}

/// Returns an annotation.
pub(super) fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Returns a label.
pub(super) fn label<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
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
