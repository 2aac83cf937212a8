//! The runtimes of KCP that get a watcher: each Kyma, and each RuntimeBootstrapper without a Kyma.
//!
//! If a runtime has both, its Kyma is used. A Kyma and a RuntimeBootstrapper with the same runtime ID belong to the
//! same runtime. The same name is sufficient, too, because KEB names both by the runtime ID.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use api::bootstrapper::{GROUP, KIND, PLURAL, VERSION, WATCHER_INSTALLED};
use api::kcp::{
    ACCEPT_CLUSTER_UID_ANNOTATION, KYMA_KIND, KYMA_PLURAL, KYMA_VERSION, RUNTIME_ID, SKR_DOMAIN,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt as _};
use policy::certificates::Kyma;
use serde::Deserialize;

use crate::clients::RuntimeId;

pub use self::share::{KymaOptions, Kymas, share};

pub(crate) use self::left::{LeftWatcher, WATCHER_FINALIZER, keep_earlier_ids};
pub(crate) use self::queue::{ReconcileStarts, Trigger, resynced};
pub(crate) use self::share::{KnownKymas, UnknownOwner};

mod left;
mod merge;
mod queue;
mod share;

/// A Kyma as read from a list or a watch, or a RuntimeBootstrapper without a Kyma. Clones share the fields, because the watch and
/// the store contain each runtime.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "KymaObject")]
pub(crate) struct KymaView(Arc<Fields>);

#[derive(Clone, Debug)]
struct Fields {
    /// Metadata without labels and annotations: each map takes half a kilobyte, and there are thousands of runtimes.
    metadata: ObjectMeta,
    details: Details,
}

/// The fields of labels, annotations and status.
#[derive(Clone, Debug)]
struct Details {
    /// Shared with the states of the runtime.
    runtime_id: Option<RuntimeId>,
    domain: Option<String>,
    accepted_cluster: Option<String>,
    /// Hash of all labels and annotations.
    metadata_hash: u64,
    is_bootstrapper: bool,
}

/// A runtime in less memory than a [`KymaView`], without its name and namespace: an empty [`ObjectMeta`] takes 300 bytes.
struct CompactView {
    uid: Option<String>,
    deletion_timestamp: Option<Time>,
    details: Details,
}

/// A RuntimeBootstrapper as read from a list or a watch. It can represent a runtime if its runtime ID is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "BootstrapperObject")]
struct BootstrapperView {
    view: KymaView,
    /// Whether the condition `WatcherInstalled` exists.
    has_condition: bool,
    is_paused: bool,
}

#[derive(Deserialize)]
struct KymaObject {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct BootstrapperObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PausedSpec,
    #[serde(default)]
    status: BootstrapperStatus,
}

#[derive(Default, Deserialize)]
struct PausedSpec {
    #[serde(default)]
    paused: bool,
}

#[derive(Default, Deserialize)]
struct BootstrapperStatus {
    #[serde(rename = "runtimeID")]
    runtime_id: Option<String>,
    #[serde(default)]
    conditions: Vec<ConditionType>,
}

#[derive(Deserialize)]
struct ConditionType {
    r#type: String,
}

impl From<KymaObject> for KymaView {
    fn from(object: KymaObject) -> Self {
        let mut metadata = object.metadata;
        let labels = metadata.labels.take().unwrap_or_default();
        let mut annotations = metadata.annotations.take().unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (&labels, &annotations).hash(&mut hasher);
        Self(Arc::new(Fields {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                // The watch continues from the version of its last event.
                resource_version: metadata.resource_version,
                deletion_timestamp: metadata.deletion_timestamp,
                ..ObjectMeta::default()
            },
            details: Details {
                runtime_id: labels.get(RUNTIME_ID).map(|it| RuntimeId::new(it)),
                domain: annotations.remove(SKR_DOMAIN),
                accepted_cluster: annotations.remove(ACCEPT_CLUSTER_UID_ANNOTATION),
                metadata_hash: hasher.finish(),
                is_bootstrapper: false,
            },
        }))
    }
}

impl From<BootstrapperObject> for BootstrapperView {
    fn from(object: BootstrapperObject) -> Self {
        let BootstrapperObject {
            metadata,
            spec,
            status,
        } = object;
        let mut view: KymaView = KymaObject { metadata }.into();
        let details = &mut Arc::make_mut(&mut view.0).details;
        details.runtime_id = status.runtime_id.map(|it| RuntimeId::new(&it));
        details.is_bootstrapper = true;
        let mut conditions = status.conditions.iter();
        Self {
            view,
            has_condition: conditions.any(|it| it.r#type == WATCHER_INSTALLED),
            is_paused: spec.paused,
        }
    }
}

impl From<KymaView> for CompactView {
    fn from(view: KymaView) -> Self {
        let Fields { metadata, details } = Arc::unwrap_or_clone(view.0);
        Self {
            uid: metadata.uid,
            deletion_timestamp: metadata.deletion_timestamp,
            details,
        }
    }
}

impl CompactView {
    fn view(&self, name: &str, namespace: &str) -> KymaView {
        KymaView(Arc::new(Fields {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                uid: self.uid.clone(),
                deletion_timestamp: self.deletion_timestamp.clone(),
                ..ObjectMeta::default()
            },
            details: self.details.clone(),
        }))
    }
}

impl KymaView {
    /// Returns a view of a deleted Kyma, of which only the name is known.
    fn gone(name: &str, namespace: &str) -> Self {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        KymaObject { metadata }.into()
    }

    /// Returns the fields that determine the certificate.
    pub(crate) fn kyma(&self) -> Kyma {
        Kyma {
            namespace: self.namespace().unwrap_or_default(),
            name: self.name_any(),
            runtime_id: self.runtime_id().map(RuntimeId::to_string),
            domain: self.0.details.domain.clone(),
        }
    }

    /// Returns whether two versions of an object are equal, ignoring the spec of a Kyma and the status, which
    /// controllers write often.
    fn is_equivalent(&self, other: &Self) -> bool {
        let (own, other) = (&self.0, &other.0);
        own.metadata.uid == other.metadata.uid
            && own.metadata.deletion_timestamp == other.metadata.deletion_timestamp
            && own.details.is_bootstrapper == other.details.is_bootstrapper
            && own.details.metadata_hash == other.details.metadata_hash
            && own.details.runtime_id == other.details.runtime_id
    }

    /// Returns the runtime ID of the label, or of the status of a RuntimeBootstrapper.
    pub(crate) fn runtime_id(&self) -> Option<&RuntimeId> {
        self.0.details.runtime_id.as_ref()
    }

    /// Returns the UID of the cluster that an operator accepted by an annotation.
    pub(crate) fn accepted_cluster(&self) -> Option<&String> {
        self.0.details.accepted_cluster.as_ref()
    }

    /// Returns whether this is a RuntimeBootstrapper without a Kyma.
    pub(crate) fn is_bootstrapper(&self) -> bool {
        self.0.details.is_bootstrapper
    }

    /// Returns whether the DNS name for a certificate is known.
    pub(crate) fn has_domain(&self) -> bool {
        let domain = self.0.details.domain.as_ref();
        domain.is_some_and(|it| !it.is_empty())
    }

    /// Returns the reference for Events.
    pub(crate) fn reference(&self) -> ObjectReference {
        let mut reference = self.object_ref(&());
        if self.is_bootstrapper() {
            reference.api_version = Some(format!("{GROUP}/{VERSION}"));
            reference.kind = Some(KIND.to_owned());
        }
        reference
    }
}

impl Resource for KymaView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KYMA_KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        KYMA_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        KYMA_PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut Arc::make_mut(&mut self.0).metadata
    }
}

impl Resource for BootstrapperView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        self.view.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.view.meta_mut()
    }
}
