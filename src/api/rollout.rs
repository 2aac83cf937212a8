//! The custom resource `RuntimeBootstrapperRollout`: progress and pause of the writes of the controller to all runtimes.
//!
//! The controller creates one object for each of [`CONFIGURATION`], [`WEBHOOK`] and [`SIGNAL`] and owns its status.
//! Operators own the spec.

#![allow(
    clippy::duplicated_attributes,
    reason = "each printcolumn has the same keys"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};

use crate::bootstrapper::Condition;

/// Kind of the custom resource.
pub const KIND: &str = "RuntimeBootstrapperRollout";

/// Plural of the custom resource.
pub const PLURAL: &str = "runtimebootstrapperrollouts";

/// Name of the object for the lane of the same name in mode `direct`: pull Secret, ClusterTrustBundle and ConfigMap.
pub const CONFIGURATION: &str = "configuration";

/// Name of the object for the lane of the same name in mode `direct`: the manifests of the webhook.
pub const WEBHOOK: &str = "webhook";

/// Name of the object for the signals of mode `signal`.
pub const SIGNAL: &str = "signal";

/// Condition: all runtimes have the revision, except runtimes that failed or are unreachable.
pub const COMPLETED: &str = "Completed";

/// Condition: no other runtime starts with the revision, because of a pause or a limit.
pub const STOPPED: &str = "Stopped";

/// Annotation on the object [`WEBHOOK`] that selects an earlier revision: its hash from `status.history`, or `previous`.
pub const ROLLBACK_ANNOTATION: &str = "rt-bootstrapper.kyma-project.io/rollback";

/// Value of [`ROLLBACK_ANNOTATION`] that selects the revision that was completed before the revision of the controller's flags.
pub const ROLLBACK_PREVIOUS: &str = "previous";

/// Maximum number of runtimes in `status.failedRuntimes`.
pub const MAX_FAILED_RUNTIMES: usize = 20;

/// Desired state of a rollout. An empty spec is valid.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    CustomResource,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1alpha1",
    kind = "RuntimeBootstrapperRollout",
    plural = "runtimebootstrapperrollouts",
    shortname = "rtbr",
    namespaced,
    status = "RolloutStatus",
    derive = "PartialEq",
    doc = "RuntimeBootstrapperRollout shows and pauses what the controller writes to all runtimes. The controller creates the objects configuration, webhook and signal.",
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(
        name = "Completed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Completed")].status"#
    ),
    printcolumn(
        name = "Stopped",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Stopped")].reason"#
    ),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Done", type_ = "integer", json_path = ".status.runtimes.done"),
    printcolumn(
        name = "Total",
        type_ = "integer",
        json_path = ".status.runtimes.total"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.runtimes.failed"
    ),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeBootstrapperRolloutSpec {
    /// When true, no other runtime starts with a new revision. Runtimes that started are completed, and a new runtime gets the
    /// last completed revision.
    #[serde(default)]
    pub paused: bool,
}

/// Observed state of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: Completed, Stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
    /// Hash of the revision that is rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
    /// Version of the webhook in the revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,
    /// Hash of the last completed revision. New runtimes, and those whose step has not come, have this revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub completed_revision: Option<String>,
    /// Current step and number of steps, such as 2/4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub step: Option<String>,
    /// Number of runtimes by their state.
    #[serde(default)]
    pub runtimes: RolloutCounts,
    /// Names of runtimes that failed, at most twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 63)))]
    pub failed_runtimes: Vec<String>,
    /// Completed revisions, the last one first, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<CompletedRevision>,
}

/// Number of runtimes by their state in a rollout.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct RolloutCounts {
    /// All runtimes of the rollout.
    #[serde(default)]
    pub total: u32,
    /// Runtimes that have not started.
    #[serde(default)]
    pub waiting: u32,
    /// Runtimes that started and do not have the revision yet.
    #[serde(default)]
    pub progressing: u32,
    /// Runtimes that have the revision and are observed until the soak duration has passed.
    #[serde(default)]
    pub soaking: u32,
    /// Runtimes that have the revision.
    #[serde(default)]
    pub done: u32,
    /// Runtimes that failed after they started.
    #[serde(default)]
    pub failed: u32,
    /// Runtimes that were unreachable before they started.
    #[serde(default)]
    pub unreachable: u32,
}

/// A revision that was completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletedRevision {
    /// Hash of the revision.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// Version of the webhook in the revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,
    /// Time at which the revision was completed (RFC 3339).
    #[schemars(length(max = 35), extend("format" = "date-time"))]
    pub completion_time: String,
}

/// Returns the CustomResourceDefinition.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    RuntimeBootstrapperRollout::crd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_says_what_the_constants_say() {
        let crd = crd();
        assert_eq!(crd.spec.names.kind, KIND);
        assert_eq!(crd.spec.names.plural, PLURAL);
        assert_eq!(
            crd.metadata.name.unwrap(),
            format!("{PLURAL}.{}", crate::bootstrapper::GROUP)
        );
    }
}
