//! What the API server is to have, and the next write that gets it there. Pure.

use api::names::{FALLBACK_POLICY, OWN_LABEL};
use kube::core::DynamicObject;
use policy::admission::{PolicyTooLarge, fallback_spec};
use serde_json::{Value, json};

use crate::certificate::Observed;
use crate::snapshot::ActiveRevision;

pub(super) const GROUP_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The policy and its binding, in the order in which they are made.
pub(super) const KINDS: [&str; 2] = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// Kind of the owner of both.
pub(super) const OWNER_KIND: &str = "MutatingWebhookConfiguration";

/// The objects of [`KINDS`] as they were observed last.
pub(super) type ObservedObjects = [Observed<DynamicObject>; 2];

/// What the API server is to have.
#[derive(Debug)]
pub(super) enum Desired {
    /// Document, pull Secret or trust bundle were not observed yet.
    Unknown,
    /// The document changes no Pod.
    Nothing,
    TooLarge(PolicyTooLarge),
    /// The `spec` of each object, and the revision of the policy.
    Specs([Value; 2], String),
}

/// The next write; the number is an index of [`KINDS`].
#[derive(Debug, PartialEq)]
pub(super) enum Write {
    Create(usize),
    Replace(usize),
    Delete(usize),
}

impl Desired {
    pub(super) fn of(active: &ActiveRevision, namespace: &str) -> Self {
        let configuration = active.configuration.as_ref();
        let Some(configuration) = configuration.filter(|_| active.is_observed()) else {
            return Self::Unknown;
        };
        let secret = &active.pull_secret.known;
        match fallback_spec(configuration, secret, active.trust_bundle, namespace) {
            Err(error) => Self::TooLarge(error),
            Ok(None) => Self::Nothing,
            Ok(Some(policy)) => {
                let binding = json!({"policyName": FALLBACK_POLICY});
                Self::Specs([policy.spec, binding], policy.revision)
            }
        }
    }

    /// The revision of a policy that the API server has stored.
    pub(super) fn stored_revision(&self, observed: &ObservedObjects) -> Option<&str> {
        match self {
            Self::Specs(_, revision) if is_known(observed) && self.next(observed).is_none() => {
                Some(revision)
            }
            _ => None,
        }
    }

    /// The policy first, because a binding without a policy is a mistake; deleted in the other order.
    pub(super) fn next(&self, observed: &ObservedObjects) -> Option<Write> {
        if !is_known(observed) {
            return None;
        }
        match self {
            Self::Unknown => None,
            Self::Nothing | Self::TooLarge(_) => {
                let is_present = |index: &usize| matches!(observed[*index], Observed::Present(_));
                [1, 0].into_iter().find(is_present).map(Write::Delete)
            }
            Self::Specs(specs, _) => [0, 1].into_iter().find_map(|index| match &observed[index] {
                Observed::Unknown => None,
                Observed::Absent => Some(Write::Create(index)),
                Observed::Present(object) => {
                    let is_same = is_as_written(object, &specs[index]);
                    (!is_same).then_some(Write::Replace(index))
                }
            }),
        }
    }
}

fn is_known(observed: &ObservedObjects) -> bool {
    !observed.iter().any(|it| matches!(it, Observed::Unknown))
}

/// Whether an object is as it was written. Every field with a default is written, so what differs is another client's; that
/// of a later API server is written again with the longest backoff, and a metric tells.
fn is_as_written(object: &DynamicObject, spec: &Value) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    let has_owner = owners.any(|it| it.kind == OWNER_KIND);
    has_owner && object.data["spec"] == *spec
}

pub(super) fn object(kind: &str, spec: &Value, owner: &Value, version: Option<&str>) -> Value {
    json!({
        "apiVersion": GROUP_VERSION, "kind": kind,
        "metadata": {
            "name": FALLBACK_POLICY, "labels": {OWN_LABEL.0: OWN_LABEL.1}, "ownerReferences": [owner],
            "resourceVersion": version,
        },
        "spec": spec,
    })
}
