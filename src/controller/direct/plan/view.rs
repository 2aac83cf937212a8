//! The output of a plan: the objects that would be written, the fields in which they differ, and the resulting conditions.
//!
//! Invariant: the output contains no content of an object, only paths of fields and the salted hashes from annotations.

use std::collections::BTreeMap;

use api::bootstrapper::{Condition, ConditionStatus};
use api::kcp::{CONTENT_HASH, MANIFEST_HASH, OWNER_CONFIG_MAP};
use component_base::telemetry::error_chain;
use policy::sync::manifests::Installation;
use policy::sync::observed::Observed;
use policy::sync::plan::{Action, Step};
use policy::sync::status::{Deferral, LaneOutcome, Outcome};
use policy::sync::target::Target;
use policy::sync::{Lane, ObjectNames, SourceKind, differing_fields};
use serde::Serialize;
use serde_json::Value;

/// Writes of the controller on one runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimePlan {
    /// Namespace and name of the Runtime.
    pub runtime: String,
    /// The runtime ID; absent if the Runtime has none, or shares its ID with another Runtime.
    pub runtime_id: Option<String>,
    /// UID of the cluster of the kubeconfig; absent if the cluster was not reached.
    #[serde(rename = "clusterUID")]
    pub cluster_uid: Option<String>,
    /// Goal of the reconcile: `Sync`, `Delete`, `Orphan`; absent if the controller writes nothing on the runtime.
    pub goal: Option<&'static str>,
    /// Reason why the controller does not write on the runtime at all.
    pub unmanaged: Option<&'static str>,
    /// Writes on KCP before those on the runtime.
    pub kcp: Vec<String>,
    /// Reason why there is no plan: the runtime is unreachable, or must not be written to.
    pub blocked: Option<String>,
    /// Reason why the writes are deferred.
    pub withheld: Option<&'static str>,
    /// Rollouts in which no other runtime starts. Only the leader can determine whether this runtime waits for them.
    pub rollouts: Vec<String>,
    /// Steps before those of the lanes.
    pub common: Vec<Vec<PlannedWrite>>,
    /// The lanes.
    pub lanes: Vec<PlannedLane>,
    /// Reasons why sources of the configuration are not written.
    pub held: Vec<String>,
    /// The conditions after the writes, if all of them succeed.
    pub conditions: Vec<PlannedCondition>,
}

/// Planned writes of one lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLane {
    /// Name of the lane.
    pub name: &'static str,
    /// Reason why the lane, or an object of it, must not be written.
    pub blocked: Option<String>,
    /// Steps in order; the writes of a step run concurrently.
    pub steps: Vec<Vec<PlannedWrite>>,
}

/// One planned write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWrite {
    /// `create`, `apply` or `delete`; `transfer` moves the fields of another field manager to the controller.
    pub action: &'static str,
    /// `apiVersion` of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: &'static str,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Paths of the fields that differ.
    pub fields: Vec<String>,
    /// Hash of the content on the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_hash: Option<String>,
    /// Hash of the content that would be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_hash: Option<String>,
}

/// One planned condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

/// The observed objects by target.
type Live<'a> = BTreeMap<Target, &'a Value>;

impl RuntimePlan {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            runtime: format!("{namespace}/{name}"),
            ..Self::default()
        }
    }

    pub(super) fn unmanaged(self, reason: &'static str) -> Self {
        Self {
            unmanaged: Some(reason),
            ..self
        }
    }

    /// Adds the result of a plan.
    pub(super) fn fill(
        &mut self,
        observed: &Observed,
        (names, installation): (&ObjectNames, &Installation),
        outcome: Outcome<'_>,
        conditions: Vec<Condition>,
    ) {
        self.goal = Some(outcome.goal.into());
        self.cluster_uid.clone_from(&observed.cluster);
        self.withheld = match outcome.lanes.configuration {
            LaneOutcome::Deferred(Deferral::Paused) => Some("spec.paused is true"),
            LaneOutcome::Deferred(Deferral::Rollout) => {
                Some("the rollout has not reached the runtime")
            }
            LaneOutcome::Applied | LaneOutcome::NotReconciled => None,
        };
        let planned = |it: Condition| PlannedCondition {
            kind: it.kind,
            status: it.status,
            reason: it.reason,
            message: it.message,
        };
        self.conditions = conditions.into_iter().map(planned).collect();
        let unreached = outcome.connection_error.map(|it| error_chain(it));
        let Some(plan) = outcome.plan else {
            self.blocked = unreached;
            return;
        };
        let live = live(observed, names, installation);
        let steps = |steps: &[Step]| -> Vec<Vec<PlannedWrite>> {
            let step = |step: &Step| step.iter().map(|it| write(it, &live)).collect();
            steps.iter().map(step).collect()
        };
        self.blocked = plan.blocked.as_ref().map(|it| error_chain(it));
        if self.blocked.is_some() {
            return;
        }
        let deferred = |is_inaccessible: bool| -> Vec<String> {
            let deferred = plan.deferred.iter();
            let deferred = deferred.filter(|it| it.is_inaccessible() == is_inaccessible);
            deferred.map(|it| error_chain(it)).collect()
        };
        let inaccessible = deferred(true).join("; ");
        self.held = deferred(false);
        self.common = steps(&plan.common);
        for lane in Lane::ALL {
            let planned = plan.lanes.get(lane);
            let blocked = planned.blocked.as_ref().map(|it| error_chain(it));
            let is_incomplete = lane == Lane::Configuration && !inaccessible.is_empty();
            let unsynchronized = is_incomplete.then(|| inaccessible.clone());
            let failure = outcome.failures.get(lane).map(|it| it.message.clone());
            let mut planned = steps(&planned.steps);
            if lane == Lane::Configuration && !plan.revocations.is_empty() {
                planned.splice(..0, steps(std::slice::from_ref(&plan.revocations)));
            }
            if lane == Lane::Webhook {
                planned.extend(steps(&plan.additional));
            }
            if lane == Lane::Webhook && !plan.last.is_empty() {
                planned.extend(steps(std::slice::from_ref(&plan.last)));
            }
            self.lanes.push(PlannedLane {
                name: lane.name(),
                blocked: blocked.or(failure).or(unsynchronized),
                steps: planned,
            });
        }
    }

    /// Returns whether the plan contains a write, including deferred writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        let mut steps = self.common.iter();
        let mut lanes = self.lanes.iter().flat_map(|it| &it.steps);
        !self.kcp.is_empty() || steps.next().is_some() || lanes.next().is_some()
    }

    /// Returns whether the runtime or a lane cannot be written to.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some() || self.lanes.iter().any(|it| it.blocked.is_some())
    }
}

fn live<'a>(observed: &'a Observed, names: &ObjectNames, installation: &Installation) -> Live<'a> {
    let marker = Target::config_map(&names.namespace, OWNER_CONFIG_MAP);
    let source = |kind| names.target(kind, observed.trust_bundles.as_deref());
    let single = [
        (Some(marker), &observed.marker),
        (source(SourceKind::Configuration), &observed.configuration),
        (source(SourceKind::PullSecret), &observed.pull_secret),
        (source(SourceKind::TrustBundle), &observed.trust_bundle),
        (installation.deployment().cloned(), &observed.deployment),
    ];
    let single = single
        .into_iter()
        .filter_map(|(target, object)| Some((target?, object.as_ref()?)));
    let installed = observed.installed.iter().flatten();
    let installed = installed.map(|(target, object)| (target.clone(), object));
    single.chain(installed).collect()
}

fn write(action: &Action, live: &Live<'_>) -> PlannedWrite {
    let target = action.target();
    let current = live.get(target).copied();
    let (verb, fields, desired) = match action {
        Action::Create { object, .. } => (action.verb(), Vec::new(), Some(&**object)),
        Action::Apply { object, .. } => {
            let fields = current.map(|it| differing_fields(object, it));
            let verb = if current.is_some() { "apply" } else { "create" };
            (verb, fields.unwrap_or_default(), Some(&**object))
        }
        Action::Delete { .. } | Action::Transfer { .. } | Action::RemoveFields { .. } => {
            (action.verb(), Vec::new(), None)
        }
    };
    PlannedWrite {
        action: verb,
        api_version: target.api_version(),
        kind: target.kind(),
        namespace: target.namespace().map(str::to_owned),
        name: target.name().to_owned(),
        fields,
        current_hash: current.and_then(hash),
        desired_hash: desired.and_then(hash),
    }
}

/// Returns the hash in an annotation of an object. Other clients can write the annotation, so only a valid hash is returned.
fn hash(object: &Value) -> Option<String> {
    let annotations = object.pointer("/metadata/annotations")?;
    let found = [CONTENT_HASH, MANIFEST_HASH].map(|key| annotations.get(key));
    let text = found.into_iter().flatten().find_map(Value::as_str)?;
    let is_hash = text.len() <= 64 && text.chars().all(|it| it.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
