//! What every runtime should hold, computed once for each state of the sources.
//!
//! The ConfigMap carries the hashes of what its version requires, so that the webhook goes over to a version only when
//! all its parts are there; it requires nothing of an object that the document does not name. A document whose parts cannot be had is held back, whole.

use std::fmt;
use std::sync::Arc;

use api::bootstrapper::ConfigurationStatus;
use api::kcp::{CONTENT_HASH, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::SourceKind;
use super::compatibility::Requirement;
use super::content::Hash;
use super::known::{Absence, SourceHistory};
use super::observed::Names;
use super::sources::{Document, PullSecret, SourceState, Sources, TrustBundle};

/// What should become of an object on runtimes.
#[derive(Clone, PartialEq)]
pub enum DesiredObject {
    /// It should say this.
    Present {
        /// Ready for server-side apply, our annotations included.
        object: Arc<Value>,
        /// Hash of the content.
        hash: Hash,
    },
    /// It should go: its source was rolled out under its name, and was deleted.
    Removed,
    /// It stays as it is.
    Untouched(Why),
}

/// Why an object stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The operator gave it no name.
    Off,
    /// There is no source of its name, and there never was one.
    NotFound {
        /// The source, for messages.
        object: String,
    },
    /// Its source is not looked for.
    Unmanaged,
    /// Its source is invalid; the text says why, without anything secret.
    Invalid(String),
    /// It is the document, and this part of its version cannot be had.
    Held(SourceKind),
    /// Its source is missing: what was rolled out stays until the grace period ends.
    DeletionPending {
        /// The source, for messages.
        object: String,
        /// What was rolled out.
        hash: Hash,
        /// The end of the grace period.
        at: Timestamp,
    },
}

/// What every runtime should hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The pull Secret.
    pub pull_secret: DesiredObject,
    /// The ClusterTrustBundle, as an object of [`TRUST_BUNDLE_VERSION`]; a runtime may get it in another version.
    pub trust_bundle: DesiredObject,
    /// The webhook's ConfigMap.
    pub configuration: DesiredObject,
    /// What the document asks of the webhook.
    pub requirement: Requirement,
    /// The version of the whole: the same hash means the same three contents. `None` while the document is held back.
    pub version: Option<Hash>,
    /// Hash of what is wanted of the three objects, whether they make a complete version or not: the same hash means that
    /// the same is written. A rollout goes by it, so that a change waits for its wave also while a source is invalid.
    pub revision: Hash,
}

/// The version of the API in which the bundle's object is written down.
pub const TRUST_BUNDLE_VERSION: &str = "v1beta1";

impl Desired {
    /// Works out what every runtime should hold.
    #[must_use]
    pub fn new(sources: &Sources, known: &SourceHistory, names: &Names) -> Self {
        let absent = |kind| absent(kind, sources, known);
        let pull_secret = wanted(
            names.pull_secret.as_deref(),
            &sources.pull_secret,
            absent(SourceKind::PullSecret),
            |name, it| (pull_secret(name, &names.namespace, it), it.hash),
        );
        let trust_bundle = wanted(
            names.trust_bundle.as_deref(),
            &sources.trust_bundle,
            absent(SourceKind::TrustBundle),
            |name, it| (trust_bundle(name, it), it.hash),
        );
        let held = [
            (SourceKind::PullSecret, &pull_secret),
            (SourceKind::TrustBundle, &trust_bundle),
        ]
        .into_iter()
        .find(|(_, part)| matches!(part, DesiredObject::Untouched(Why::Invalid(_))));
        let configuration = match held {
            Some((kind, _)) if sources.configuration.valid().is_some() => {
                DesiredObject::Untouched(Why::Held(kind))
            }
            _ => wanted(
                Some(&names.configuration),
                &sources.configuration,
                absent(SourceKind::Configuration),
                |name, it| {
                    let requires = [
                        (SourceKind::PullSecret, REQUIRES_PULL_SECRET, &pull_secret),
                        (
                            SourceKind::TrustBundle,
                            REQUIRES_TRUST_BUNDLE,
                            &trust_bundle,
                        ),
                    ]
                    .into_iter()
                    .filter(|(kind, ..)| !it.mentions.another(*kind, names))
                    .map(|(_, key, part)| (key, part));
                    (config_map(name, &names.namespace, it, requires), it.hash)
                },
            ),
        };
        let revision = revision([&pull_secret, &trust_bundle, &configuration]);
        Self {
            // The parts alone are no version.
            version: (!configuration.is_held_back()).then_some(revision),
            revision,
            requirement: sources
                .configuration
                .valid()
                .map_or(Requirement::Any, |it| it.requirement),
            pull_secret,
            trust_bundle,
            configuration,
        }
    }

    /// Whether a runtime holds all of this already, by what its status says about it. Of an incomplete version that is
    /// every object that is wanted; what stays untouched may be anything.
    #[must_use]
    pub fn is_held(&self, said: Option<&ConfigurationStatus>) -> bool {
        if let Some(version) = self.version {
            return said.and_then(|it| it.revision.as_deref()) == Some(&*version.to_string());
        }
        SourceKind::ALL.into_iter().all(|kind| {
            let said = said.and_then(|it| match kind {
                SourceKind::PullSecret => it.pull_secret_hash.as_deref(),
                SourceKind::TrustBundle => it.trust_bundle_hash.as_deref(),
                SourceKind::Configuration => it.config_map_hash.as_deref(),
            });
            match self.get(kind) {
                DesiredObject::Present { hash, .. } => said == Some(&*hash.to_string()),
                DesiredObject::Removed => said.is_none(),
                DesiredObject::Untouched(_) => true,
            }
        })
    }

    /// One of the three.
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
    /// Whether the object keeps an older content because its source, or a part of its version, cannot be used.
    fn is_held_back(&self) -> bool {
        matches!(self, Self::Untouched(Why::Invalid(_) | Why::Held(_)))
    }
}

/// An object may hold credentials, so it is told by its hash.
impl fmt::Debug for DesiredObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present { hash, .. } => write!(formatter, "Present({hash})"),
            Self::Removed => formatter.write_str("Removed"),
            Self::Untouched(why) => write!(formatter, "Untouched({why:?})"),
        }
    }
}

fn wanted<T>(
    name: Option<&str>,
    reading: &SourceState<T>,
    absent: DesiredObject,
    object: impl FnOnce(&str, &T) -> (Value, Hash),
) -> DesiredObject {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return DesiredObject::Untouched(Why::Off);
    };
    match reading {
        SourceState::Valid(content) => {
            let (object, hash) = object(name, content);
            DesiredObject::Present {
                object: Arc::new(object),
                hash,
            }
        }
        SourceState::Unmanaged => DesiredObject::Untouched(Why::Unmanaged),
        SourceState::Invalid(error) => {
            DesiredObject::Untouched(Why::Invalid(super::status::chain(error)))
        }
        SourceState::Absent => absent,
    }
}

/// What becomes of an object whose source is absent.
fn absent(kind: SourceKind, sources: &Sources, known: &SourceHistory) -> DesiredObject {
    match known.absence(kind, sources.names.get(kind)) {
        Absence::NeverRolledOut => DesiredObject::Untouched(Why::NotFound {
            object: sources.names.reference(kind),
        }),
        Absence::Pending { hash, at } => DesiredObject::Untouched(Why::DeletionPending {
            object: sources.names.reference(kind),
            hash,
            at,
        }),
        Absence::Deleted => DesiredObject::Removed,
    }
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

fn config_map<'a>(
    name: &str,
    namespace: &str,
    content: &Document,
    requires: impl Iterator<Item = (&'a str, &'a DesiredObject)>,
) -> Value {
    let mut annotations = Map::new();
    annotations.insert(CONTENT_HASH.to_owned(), content.hash.to_string().into());
    for (key, part) in requires {
        let hash = match part {
            DesiredObject::Present { hash, .. }
            | DesiredObject::Untouched(Why::DeletionPending { hash, .. }) => hash.to_string(),
            DesiredObject::Removed => REQUIRES_NONE.to_owned(),
            // Not ours to judge: the webhook takes such a part as it comes.
            DesiredObject::Untouched(_) => continue,
        };
        annotations.insert(key.to_owned(), hash.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
        "data": content.data,
    })
}

fn revision(parts: [&DesiredObject; 3]) -> Hash {
    let texts = parts.map(|part| match part {
        // Nothing of a missing source changes before the end of the grace period.
        DesiredObject::Present { hash, .. }
        | DesiredObject::Untouched(Why::DeletionPending { hash, .. }) => hash.to_string(),
        DesiredObject::Removed => "removed".to_owned(),
        DesiredObject::Untouched(_) => "untouched".to_owned(),
    });
    Hash::of_parts(&[
        texts[0].as_bytes(),
        texts[1].as_bytes(),
        texts[2].as_bytes(),
    ])
}
