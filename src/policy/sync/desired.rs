//! The desired objects of all runtimes, computed once for each state of the sources.
//!
//! The ConfigMap is annotated with the hashes of the objects that it refers to, so that the webhook activates a
//! revision only when all of them are present; an object that the document does not refer to is not required. A
//! document is not written while an object that it refers to has an invalid source.

use std::fmt;
use std::sync::Arc;

use api::bootstrapper::ConfigurationStatus;
use api::kcp::{CONTENT_HASH, REQUIRES_NONE};
use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::ObjectNames;
use super::SourceKind;
use super::compatibility::Requirement;
use super::content::Hash;
use super::history::{Absence, SourceHistory};
use super::plan::SyncDeferred;
use super::sources::{Document, PullSecret, SourceState, Sources, TrustBundle};

/// The desired state of an object on runtimes.
#[derive(Clone, PartialEq)]
pub enum DesiredObject {
    /// The object is applied.
    Present {
        /// The object for server-side apply, including annotations.
        object: Arc<Value>,
        /// Hash of the content.
        hash: Hash,
    },
    /// The object is deleted: its source was synchronized under this name and then deleted.
    Removed,
    /// The object is not changed.
    Untouched(UntouchedReason),
}

/// Reason why an object is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UntouchedReason {
    /// No name is configured for the object.
    Disabled,
    /// The source is not watched.
    Unmanaged,
    /// The document cannot be written, because this source is invalid.
    InvalidReference(SourceKind),
    /// The source is invalid or missing, which is reported.
    Deferred(SyncDeferred),
}

/// The desired objects of all runtimes.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The pull Secret.
    pub pull_secret: DesiredObject,
    /// The ClusterTrustBundle, in [`TRUST_BUNDLE_VERSION`].
    pub trust_bundle: DesiredObject,
    /// The ClusterTrustBundle in `v1`, if it is present, for clusters that serve `v1`. It is computed once, because a
    /// bundle may be large.
    pub trust_bundle_v1: Option<Arc<Value>>,
    /// The webhook's ConfigMap.
    pub configuration: DesiredObject,
    /// The webhook that the document requires.
    pub requirement: Requirement,
    /// Revision of the complete configuration: a hash of all three objects. `None` while the document cannot be
    /// written because of an invalid source.
    pub complete_revision: Option<Hash>,
    /// Hash of the desired state of all three objects, also while the configuration is incomplete. A rollout uses
    /// this hash, so that a change is rolled out in steps also while a source is invalid.
    pub revision: Hash,
}

/// The API version in which ClusterTrustBundles are computed.
pub const TRUST_BUNDLE_VERSION: &str = "v1beta1";

impl Desired {
    /// Computes the desired objects.
    #[must_use]
    pub fn new(sources: &Sources, history: &SourceHistory, names: &ObjectNames) -> Self {
        let absent = |kind| absent(kind, sources, history);
        let pull_secret = desired_object(
            (SourceKind::PullSecret, names),
            &sources.pull_secret,
            absent(SourceKind::PullSecret),
            |name, it| (pull_secret(name, &names.namespace, it), it.hash),
        );
        let trust_bundle = desired_object(
            (SourceKind::TrustBundle, names),
            &sources.trust_bundle,
            absent(SourceKind::TrustBundle),
            |name, it| (trust_bundle(name, it), it.hash),
        );
        // The objects that the document refers to.
        let document = sources.configuration.valid();
        let mut parts = vec![
            (SourceKind::PullSecret, &pull_secret),
            (SourceKind::TrustBundle, &trust_bundle),
        ];
        parts.retain(|(kind, _)| {
            document.is_some_and(|it| !it.references.names_other_object(*kind, names))
        });
        let invalid = parts.iter().find(|(_, part)| part.has_invalid_source());
        let configuration = match invalid {
            Some((kind, _)) => DesiredObject::Untouched(UntouchedReason::InvalidReference(*kind)),
            None => desired_object(
                (SourceKind::Configuration, names),
                &sources.configuration,
                absent(SourceKind::Configuration),
                |name, it| (config_map(name, &names.namespace, it, &parts), it.hash),
            ),
        };
        let revision = revision([&pull_secret, &trust_bundle, &configuration]);
        Self {
            // Without the document the configuration is incomplete.
            complete_revision: (!configuration.has_invalid_source()).then_some(revision),
            revision,
            requirement: sources
                .configuration
                .valid()
                .map_or(Requirement::Any, |it| it.requirement.clone()),
            pull_secret,
            trust_bundle_v1: trust_bundle.in_version("v1"),
            trust_bundle,
            configuration,
        }
    }

    /// Returns the ClusterTrustBundle in a version that a cluster serves, if it is present.
    pub(super) fn served_bundle(&self, version: &str) -> Option<Arc<Value>> {
        match &self.trust_bundle_v1 {
            Some(object) if version == "v1" => Some(Arc::clone(object)),
            _ => self.trust_bundle.in_version(version),
        }
    }

    /// Returns whether a runtime has the desired configuration, according to its status. For an incomplete
    /// configuration only the objects that can be written are compared.
    #[must_use]
    pub fn is_synchronized(&self, status: Option<&ConfigurationStatus>) -> bool {
        if let Some(revision) = self.complete_revision {
            return status.and_then(|it| it.revision.as_deref()) == Some(&*revision.to_string());
        }
        SourceKind::ALL.into_iter().all(|kind| {
            let reported = status.and_then(|it| kind.hash(it));
            match self.get(kind) {
                DesiredObject::Present { hash, .. } => reported == Some(&*hash.to_string()),
                DesiredObject::Removed => reported.is_none(),
                DesiredObject::Untouched(_) => true,
            }
        })
    }

    /// Returns the desired state of one object.
    #[must_use]
    pub fn get(&self, kind: SourceKind) -> &DesiredObject {
        match kind {
            SourceKind::PullSecret => &self.pull_secret,
            SourceKind::TrustBundle => &self.trust_bundle,
            SourceKind::Configuration => &self.configuration,
        }
    }
}

impl DesiredObject {
    /// Returns a ClusterTrustBundle in another version of its API.
    fn in_version(&self, version: &str) -> Option<Arc<Value>> {
        let Self::Present { object, .. } = self else {
            return None;
        };
        if version == TRUST_BUNDLE_VERSION {
            return Some(Arc::clone(object));
        }
        let mut served = Value::clone(object);
        served["apiVersion"] = format!("certificates.k8s.io/{version}").into();
        Some(Arc::new(served))
    }

    /// Returns whether an object keeps older content because of an invalid source.
    fn has_invalid_source(&self) -> bool {
        matches!(
            self,
            Self::Untouched(
                UntouchedReason::InvalidReference(_)
                    | UntouchedReason::Deferred(SyncDeferred::InvalidSource { .. })
            )
        )
    }

    /// Returns the hash of the synchronized content of a missing source, until the end of its grace period.
    pub(super) fn pending_hash(&self) -> Option<Hash> {
        match self {
            Self::Untouched(UntouchedReason::Deferred(SyncDeferred::DeletionPending {
                hash,
                ..
            })) => Some(*hash),
            _ => None,
        }
    }

    /// Returns the hash of the content that a runtime has or gets; `None` also if it is not known.
    fn hash(&self) -> Option<Hash> {
        match self {
            Self::Present { hash, .. } => Some(*hash),
            // The object of a missing source does not change before the end of the grace period.
            _ => self.pending_hash(),
        }
    }
}

/// `Debug` output with the hash only, since an object may contain credentials.
impl fmt::Debug for DesiredObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present { hash, .. } => write!(formatter, "Present({hash})"),
            Self::Removed => formatter.write_str("Removed"),
            Self::Untouched(reason) => write!(formatter, "Untouched({reason:?})"),
        }
    }
}

fn desired_object<T>(
    (kind, names): (SourceKind, &ObjectNames),
    source: &SourceState<T>,
    absent: DesiredObject,
    object: impl FnOnce(&str, &T) -> (Value, Hash),
) -> DesiredObject {
    let Some(name) = names.get(kind).filter(|name| !name.is_empty()) else {
        return DesiredObject::Untouched(UntouchedReason::Disabled);
    };
    match source {
        SourceState::Valid(content) => {
            let (object, hash) = object(name, content);
            DesiredObject::Present {
                object: Arc::new(object),
                hash,
            }
        }
        SourceState::Unmanaged => DesiredObject::Untouched(UntouchedReason::Unmanaged),
        SourceState::Invalid(reason) => deferred(SyncDeferred::InvalidSource {
            kind,
            reason: reason.clone(),
        }),
        SourceState::Absent => absent,
    }
}

/// Returns the desired state of an object whose source is absent.
fn absent(kind: SourceKind, sources: &Sources, history: &SourceHistory) -> DesiredObject {
    let object = sources.names.reference(kind);
    match history.absence(kind, sources.names.get(kind)) {
        Absence::NeverRolledOut => deferred(SyncDeferred::SourceNotFound { kind, object }),
        Absence::Pending { hash, at } => {
            deferred(SyncDeferred::DeletionPending { object, hash, at })
        }
        Absence::Deleted => DesiredObject::Removed,
    }
}

fn deferred(deferred: SyncDeferred) -> DesiredObject {
    DesiredObject::Untouched(UntouchedReason::Deferred(deferred))
}

fn pull_secret(name: &str, namespace: &str, content: &PullSecret) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": { CONTENT_HASH: content.hash.to_string() },
        },
        "type": DOCKER_CONFIG_TYPE,
        "data": { DOCKER_CONFIG_KEY: STANDARD.encode(&content.docker_config) },
    })
}

fn trust_bundle(name: &str, content: &TrustBundle) -> Value {
    let mut spec = Map::new();
    if let Some(signer) = &content.signer_name {
        spec.insert("signerName".to_owned(), signer.as_str().into());
    }
    spec.insert("trustBundle".to_owned(), content.pem.as_str().into());
    json!({
        "apiVersion": format!("certificates.k8s.io/{TRUST_BUNDLE_VERSION}"),
        "kind": "ClusterTrustBundle",
        "metadata": {
            "name": name,
            "annotations": { CONTENT_HASH: content.hash.to_string() },
        },
        "spec": spec,
    })
}

fn config_map(
    name: &str,
    namespace: &str,
    content: &Document,
    requires: &[(SourceKind, &DesiredObject)],
) -> Value {
    let mut annotations = Map::new();
    annotations.insert(CONTENT_HASH.to_owned(), content.hash.to_string().into());
    for (kind, part) in requires {
        let text = match part.hash() {
            Some(hash) => hash.to_string(),
            None if **part == DesiredObject::Removed => REQUIRES_NONE.to_owned(),
            // If a hash is not known, the webhook uses such an object in any revision.
            None => continue,
        };
        let key = kind.requires_key();
        annotations.extend(key.map(|key| (key.to_owned(), text.into())));
    }
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
        "data": content.data,
    })
}

fn revision(parts: [&DesiredObject; 3]) -> Hash {
    let texts = parts.map(|part| match part.hash() {
        Some(hash) => hash.to_string(),
        None if *part == DesiredObject::Removed => "removed".to_owned(),
        None => "untouched".to_owned(),
    });
    Hash::of_parts(texts)
}
