//! The desired state in the API server, and the next write towards it. Pure functions.

use api::names::{FALLBACK_POLICY, OWN_LABEL};
use kube::core::DynamicObject;
use policy::admission::{PolicyTooLarge, fallback_spec};
use serde_json::{Value, json};

use crate::certificate::Observed;
use crate::snapshot::ActiveRevision;

pub(super) const GROUP_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The policy and its binding, in the order of their creation.
pub(super) const KINDS: [&str; 2] = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// Kind of the owner of both.
pub(super) const OWNER_KIND: &str = "MutatingWebhookConfiguration";

/// The objects of [`KINDS`] in their last observed state.
pub(super) type ObservedObjects = [Observed<DynamicObject>; 2];

/// Desired state in the API server.
#[derive(Debug)]
pub(super) enum Desired {
    /// Document, pull Secret or trust bundle are not observed yet.
    Unknown,
    /// The document changes no Pod.
    Nothing,
    TooLarge(PolicyTooLarge),
    /// The `spec` of each object, and the revision of the policy.
    Specs([Value; 2], String),
}

/// The next write. The number is an index of [`KINDS`].
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

    /// Returns the revision of the policy that the API server has stored.
    pub(super) fn stored_revision(&self, observed: &ObservedObjects) -> Option<&str> {
        match self {
            Self::Specs(_, revision) if is_known(observed) && self.next(observed).is_none() => {
                Some(revision)
            }
            _ => None,
        }
    }

    /// Returns the next write: the policy comes first, because a binding without a policy is an error. Deletion uses the
    /// reverse order.
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

/// Returns whether an object is unchanged since it was written. Each field with a default is written, so a difference is a
/// change of another client. A field of a later API server causes a write with the longest backoff, which a metric shows.
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
