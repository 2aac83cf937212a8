//! A Pod as it is stored, and what is kept of it.

use api::names::{MARKER, OWN_LABEL};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use kube_derive::Resource;
use policy::admission::review::{self, Subject};
use policy::admission::{Context, Decision, Reason, decide_unsent, has_trust_bundle};
use policy::repairs::{
    Deviation, PodKey, PodState, PodTimes, RevisionTimes, TrackedPod, UnstartedPod, judge,
};
use serde::Deserialize;
use serde_json::Value;

use crate::snapshot::{ActiveRevision, KnownNamespace};
use crate::watches::annotated;

/// The owners that replace an evicted Pod. A Job would count the eviction as a failure.
const REPLACING: &[(&str, &str)] = &[
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
];

/// The times that a creation leaves in an object may differ by the second that ends meanwhile.
const CREATION: SignedDuration = SignedDuration::from_secs(1);

/// Longest text about a Pod in an Event, in characters.
pub(super) const LONGEST_NOTE: usize = 600;

/// A stored Pod: what a decision reads of it, and the few fields that are no part of the decision. A page of Pods is kept
/// until it is judged, so a Pod is text: as a tree with managed fields and status it takes ten times the memory.
#[derive(Clone, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[serde(try_from = "Value")]
pub(super) struct StoredPod {
    /// Without managed fields.
    metadata: ObjectMeta,
    /// When a field manager of our annotations wrote last.
    annotated: Option<Timestamp>,
    is_ready: bool,
    unstarted: Option<UnstartedPod>,
    /// The JSON of what a decision reads, without the mark of its deletion: a terminating Pod is judged like any other,
    /// because it shows that its owner is being disrupted.
    json: Box<str>,
}

/// What is read of a stored Pod beside the decision.
#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: PodStatus,
}

/// A text is not a Pod. The Pod is not quoted, because its environment may hold secrets.
#[derive(Debug, thiserror::Error)]
#[error("invalid Pod")]
pub(super) struct InvalidPod;

impl TryFrom<Value> for StoredPod {
    type Error = InvalidPod;

    fn try_from(mut json: Value) -> Result<Self, InvalidPod> {
        let Fields {
            mut metadata,
            status,
        } = Fields::deserialize(&json).map_err(|_| InvalidPod)?;
        let unstarted = UnstartedPod::of(&json);
        let annotated = annotated(&metadata);
        metadata.managed_fields = None;
        if let Some(pod) = json.as_object_mut() {
            pod.remove("status");
        }
        if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("deletionTimestamp");
        }
        let mut conditions = status.conditions.iter().flatten();
        Ok(Self {
            metadata,
            annotated,
            is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
            unstarted,
            json: json.to_string().into(),
        })
    }
}

impl std::fmt::Debug for StoredPod {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "StoredPod({})", self.name_any())
    }
}

/// What Pods are judged by.
pub(super) struct Basis<'a> {
    pub(super) active: &'a ActiveRevision,
    pub(super) revision: RevisionTimes,
    /// Whether the API server evaluates the fallback policy.
    pub(super) fallback_policy: bool,
}

/// A covered Pod.
pub(super) struct JudgedPod {
    pub(super) tracked: TrackedPod,
    /// What a missed Pod lacks, for people.
    pub(super) note: Option<String>,
    /// Set if it mounts the trust bundle and has not started.
    pub(super) unstarted: Option<UnstartedPod>,
}

impl StoredPod {
    pub(super) fn key(&self) -> PodKey {
        PodKey {
            namespace: self.namespace().unwrap_or_default().into(),
            name: self.name_any().into(),
        }
    }

    /// The reference of Events.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            resource_version: self.resource_version(),
            ..self.object_ref(&())
        }
    }

    /// Judges the Pod; `None` if it is not covered or cannot be read as a Pod.
    pub(super) fn judge(
        &self,
        namespace: Option<&KnownNamespace>,
        basis: &Basis<'_>,
    ) -> Option<JudgedPod> {
        let created = self.metadata.creation_timestamp.as_ref()?.0;
        let name = self.metadata.namespace.as_deref().unwrap_or_default();
        let body = review::of_created_pod(name, &self.json);
        let Ok(Subject::Pod(request)) = review::parse(body.as_bytes()).map(|it| it.subject) else {
            return None;
        };
        let context = Context {
            configuration: basis.active.configuration.as_deref()?,
            namespace: namespace.map(|it| &it.view),
            pull_secret: &basis.active.pull_secret.known,
            trust_bundle: basis.active.trust_bundle,
            fallback_policy: false,
        };
        let label = self.labels().get(OWN_LABEL.0).map(String::as_str);
        let decision = decide_unsent(&request, label, &context);
        let selects = context.configuration.pull_secret().namespaces.is_some();
        let times = PodTimes {
            created,
            opted_in: self.opted_in(created, namespace),
            selected: namespace.and_then(|it| it.labelled).filter(|_| selects),
        };
        let deviation = match judge(&decision, times, &basis.revision) {
            PodState::NotCovered => return None,
            PodState::Current | PodState::OptedInLater => None,
            PodState::Deviates(deviation) => Some(deviation),
        };
        // One that the policy adapted has no marker.
        let by_policy = || {
            let context = Context {
                fallback_policy: true,
                ..context
            };
            let decision = decide_unsent(&request, label, &context);
            let mut findings = decision.findings.iter();
            findings.any(|it| it.reason == Reason::AppliedByPolicy)
        };
        let is_adapted = self.is_marked() || (basis.fallback_policy && by_policy());
        let adapted = is_adapted && !decision.changed();
        Some(JudgedPod {
            tracked: self.tracked(deviation, adapted),
            note: deviation
                .filter(|it| it.is_missed())
                .map(|_| note(&decision)),
            unstarted: has_trust_bundle(context.configuration, &request.object)
                .then(|| self.unstarted.clone())
                .flatten(),
        })
    }

    fn is_marked(&self) -> bool {
        let marker = self.annotations().get(MARKER);
        marker.is_some_and(|it| it == "true")
    }

    fn tracked(&self, deviation: Option<Deviation>, adapted: bool) -> TrackedPod {
        TrackedPod {
            uid: self.uid().unwrap_or_default().into(),
            owner: self.owner(),
            ready: self.is_ready,
            terminating: self.metadata.deletion_timestamp.is_some(),
            deviation,
            adapted,
        }
    }

    fn owner(&self) -> Option<Box<str>> {
        let mut owners = self.owner_references().iter();
        let owner = owners.find(|it| it.controller == Some(true))?;
        REPLACING
            .contains(&(&owner.api_version, &owner.kind))
            .then(|| owner.uid.as_str().into())
    }

    fn opted_in(
        &self,
        created: Timestamp,
        namespace: Option<&KnownNamespace>,
    ) -> Option<Timestamp> {
        let own = self.annotated.filter(|it| *it > created + CREATION);
        own.max(namespace.and_then(|it| it.annotated))
    }
}

/// What a missed Pod lacks: the first three changes.
fn note(decision: &Decision<'_>) -> String {
    let applied = decision.findings.iter().filter(|it| it.reason.applied());
    let texts: Vec<String> = applied.take(3).map(|it| it.reason.to_string()).collect();
    let text = format!(
        "created without changes of the webhook: {}",
        texts.join("; ")
    );
    text.chars().take(LONGEST_NOTE).collect()
}
