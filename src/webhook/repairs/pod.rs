//! A stored Pod, and the information that is kept about it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource as _, ResourceExt as _};
use kube_derive::Resource;
use partial_json::{Summarize, Summary, Text};
use policy::admission::review::{self, Subject};
use policy::admission::{
    Annotations, Context, Decision, Reason, decide_unsent, has_other_trust_bundle, has_trust_bundle,
};
use policy::repairs::{
    Deviation, PodConditions, PodKey, PodState, PodTimes, RevisionTimes, TrackedPod, UnstartedPod,
    judge,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::snapshot::{ActiveRevision, KnownNamespace};
use crate::stored::ManagedFields;
use crate::survive;

/// Kinds of owners that replace an evicted Pod. A Job would count the eviction as a failure.
const REPLACING: &[(&str, &str)] = &[
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
];

/// Maximum difference of the times that a creation writes into an object.
const CREATION: SignedDuration = SignedDuration::from_secs(1);

/// Maximum time from the creation of a missed Pod until it is found, also if the webhook was down; longer than the clocks of a
/// cluster differ.
const FOUND_WITHIN: SignedDuration = SignedDuration::from_mins(30);

/// Maximum length of a text about a Pod in an Event, in characters.
pub(super) const LONGEST_NOTE: usize = 600;

/// A stored Pod. Clients can create Pods with many different large fields. Therefore the text of the API server is kept (a
/// page of Pods is kept until each is judged), and the parser takes an amount of memory that does not depend on the content
/// of the Pod.
#[derive(Clone, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[serde(from = "Box<RawValue>")]
pub(super) struct StoredPod {
    /// Name, namespace, UID, version and creation time. No other field is set. Empty if the text is not a Pod.
    metadata: ObjectMeta,
    terminating: bool,
    /// Time of the last write of a field manager of this product's annotations.
    annotated: Option<Timestamp>,
    /// Whether the Pod has the marker of the webhook.
    marked: bool,
    /// Value of [`OWN_LABEL`](api::names::OWN_LABEL).
    own_label: Option<Box<str>>,
    /// UID of the controller that replaces the Pod after its eviction.
    owner: Option<Box<str>>,
    is_ready: bool,
    /// The text of the API server; `None` if the parser panicked.
    json: Option<Box<RawValue>>,
}

/// The fields that identify a stored Pod whose text made the parser of [`Fields`] panic.
#[derive(Default, Deserialize)]
struct Identity {
    #[serde(default)]
    metadata: IdentityFields,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityFields {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Fields of a stored Pod that are read in addition to the decision.
#[derive(Default, Deserialize)]
pub(super) struct Fields<'a> {
    #[serde(default, borrow)]
    metadata: Metadata<'a>,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    #[serde(borrow)]
    creation_timestamp: Option<Text<'a>>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    labels: Option<Labels<'a>>,
    annotations: Option<Annotations>,
    #[serde(default)]
    owner_references: Summary<Owner>,
    #[serde(default)]
    managed_fields: Summary<ManagedFields>,
}

/// The label [`OWN_LABEL`](api::names::OWN_LABEL).
#[derive(Deserialize)]
struct Labels<'a> {
    #[serde(borrow, rename = "app.kubernetes.io/name")]
    name: Option<Text<'a>>,
}

/// UID of the controller that replaces the Pod.
#[derive(Default)]
struct Owner(Option<Box<str>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(default, borrow)]
    api_version: Text<'a>,
    #[serde(default, borrow)]
    kind: Text<'a>,
    #[serde(default, borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

impl<'de> Summarize<'de> for Owner {
    type Item = OwnerReference<'de>;

    fn add(&mut self, owner: OwnerReference<'de>) {
        let replaces = REPLACING.contains(&(&*owner.api_version, &*owner.kind));
        if owner.controller == Some(true) && replaces {
            self.0 = Some((*owner.uid).into());
        }
    }
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Summary<PodConditions>,
}

impl From<Box<RawValue>> for StoredPod {
    fn from(json: Box<RawValue>) -> Self {
        Self::read(json, |text| {
            partial_json::from_str(text, usize::MAX).unwrap_or_default()
        })
    }
}

impl From<Identity> for Fields<'_> {
    fn from(Identity { metadata }: Identity) -> Self {
        Self {
            metadata: Metadata {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                ..Metadata::default()
            },
            ..Self::default()
        }
    }
}

impl StoredPod {
    /// Reads a Pod with this parser. A Pod that makes it panic must not end the repairs of each leader in turn, so it is read without
    /// the fields that only its judgment needs.
    pub(super) fn read(json: Box<RawValue>, parse: impl FnOnce(&str) -> Fields<'_>) -> Self {
        let parsed = survive(|| parse(json.get()));
        let is_read = parsed.is_some();
        let identity = || serde_json::from_str::<Identity>(json.get()).unwrap_or_default();
        let Fields { metadata, status } = parsed.unwrap_or_else(|| identity().into());
        let created = metadata.creation_timestamp.and_then(|it| it.parse().ok());
        Self {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                creation_timestamp: created.map(Time),
                ..ObjectMeta::default()
            },
            terminating: metadata.deletion_timestamp.is_some(),
            annotated: metadata.managed_fields.0.annotated,
            marked: metadata.annotations.is_some_and(Annotations::marked),
            own_label: metadata
                .labels
                .and_then(|it| it.name)
                .map(|it| (*it).into()),
            owner: metadata.owner_references.0.0,
            is_ready: status.conditions.0.is_ready,
            json: is_read.then_some(json),
        }
    }
}

impl std::fmt::Debug for StoredPod {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "StoredPod({})", self.name_any())
    }
}

/// Basis of the judgment of Pods.
pub(super) struct Basis<'a> {
    pub(super) active: &'a ActiveRevision,
    /// The namespace of the webhook, whose own Pods are not judged.
    pub(super) product_namespace: &'a str,
    pub(super) revision: RevisionTimes,
    /// Whether the API server evaluates the fallback policy.
    pub(super) fallback_policy: bool,
}

/// Judges a stored Pod of a Namespace, as [`StoredPod::judge`] does.
pub(super) type Judge = fn(&StoredPod, Option<&KnownNamespace>, &Basis<'_>) -> Option<JudgedPod>;

/// The Pod cannot be judged, because of an internal error.
pub(super) struct Panicked;

/// A covered Pod.
pub(super) struct JudgedPod {
    pub(super) tracked: TrackedPod,
    /// Human-readable text about the missing changes of a missed Pod.
    pub(super) note: Option<String>,
    /// Set if the Pod mounts the trust bundle and has not started.
    pub(super) unstarted: Option<UnstartedPod>,
}

impl StoredPod {
    pub(super) fn key(&self) -> PodKey {
        PodKey {
            namespace: self.namespace().unwrap_or_default().into(),
            name: self.name_any().into(),
        }
    }

    /// Returns the object reference for Events.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            resource_version: self.resource_version(),
            ..self.object_ref(&())
        }
    }

    /// Whether the Pod was created longer ago than a leader needs to find it.
    pub(super) fn is_old(&self) -> bool {
        let created = self.metadata.creation_timestamp.as_ref();
        created.is_some_and(|it| Timestamp::now().duration_since(it.0) > FOUND_WITHIN)
    }

    /// Judges the Pod by this function. Returns an error if the function panics, or if the parser panicked before.
    pub(super) fn judge_with(
        &self,
        judge: Judge,
        namespace: Option<&KnownNamespace>,
        basis: &Basis<'_>,
    ) -> Result<Option<JudgedPod>, Panicked> {
        if self.json.is_none() {
            return Err(Panicked);
        }
        survive(|| judge(self, namespace, basis)).ok_or(Panicked)
    }

    /// Judges the Pod. Returns `None` if it is not covered or cannot be parsed as a Pod.
    pub(super) fn judge(
        &self,
        namespace: Option<&KnownNamespace>,
        basis: &Basis<'_>,
    ) -> Option<JudgedPod> {
        let json = self.json.as_ref()?.get();
        let created = self.metadata.creation_timestamp.as_ref()?.0;
        let name = self.metadata.namespace.as_deref().unwrap_or_default();
        let body = review::of_created_pod(name, json);
        let Ok(Subject::Pod(mut request)) = review::parse(body.as_bytes()).map(|it| it.subject)
        else {
            return None;
        };
        // A terminating Pod is judged like any other Pod, because it shows that its owner is being disrupted.
        request.object.metadata.deletion_timestamp = None;
        let context = basis.active.context(name, namespace, false)?;
        let (product, label) = (basis.product_namespace, self.own_label.as_deref());
        let decision = decide_unsent(&request, product, label, &context);
        let selects = basis.active.reads_labels();
        let own = self.annotated.filter(|it| *it > created + CREATION);
        let by_document = context.configuration.namespace_features(name);
        let available = context.configuration.available();
        let annotations = request.object.metadata.annotations.unwrap_or_default();
        let times = PodTimes {
            created,
            opted_in: own.max(namespace.and_then(|it| it.opted_in(available))),
            selected: namespace.and_then(|it| it.labelled).filter(|_| selects),
            has_other_bundle: self.marked
                && has_other_trust_bundle(context.configuration, &request.object),
            required: match own {
                Some(_) => by_document.difference(context.configuration.opt_out()),
                // It has not opted out since its creation either, and has opted in since then.
                None if self.annotated.is_some() => {
                    by_document.union(annotations.requested(available))
                }
                None => by_document,
            },
        };
        let deviation = match judge(&decision, times, &basis.revision) {
            PodState::NotCovered => return None,
            PodState::Current | PodState::OptedInLater => None,
            PodState::Deviates(deviation) => Some(deviation),
        };
        // A Pod that the policy adapted has no marker.
        let by_policy = || {
            let context = Context {
                fallback_policy: true,
                ..context
            };
            let decision = decide_unsent(&request, product, label, &context);
            let mut findings = decision.findings.iter();
            findings.any(|it| it.reason == Reason::AppliedByPolicy)
        };
        let is_adapted = self.marked || (basis.fallback_policy && by_policy());
        let adapted = is_adapted && deviation.is_none() && !decision.changed();
        Some(JudgedPod {
            tracked: self.tracked(deviation, adapted),
            note: deviation
                .filter(|it| it.is_missed())
                .map(|_| note(&decision)),
            unstarted: (times.has_other_bundle
                || has_trust_bundle(context.configuration, &request.object))
            .then(|| UnstartedPod::of(json))
            .flatten(),
        })
    }

    fn tracked(&self, deviation: Option<Deviation>, adapted: bool) -> TrackedPod {
        TrackedPod {
            uid: self.uid().unwrap_or_default().into(),
            owner: self.owner.clone(),
            ready: self.is_ready,
            terminating: self.terminating,
            deviation,
            adapted,
        }
    }
}

/// Returns a text with the first three changes that a missed Pod lacks.
fn note(decision: &Decision<'_>) -> String {
    let applied = decision.findings.iter().filter(|it| it.reason.applied());
    let texts: Vec<String> = applied.take(3).map(|it| it.reason.to_string()).collect();
    let text = format!(
        "created without changes of the webhook: {}",
        texts.join("; ")
    );
    text.chars().take(LONGEST_NOTE).collect()
}
