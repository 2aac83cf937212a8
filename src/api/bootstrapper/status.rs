//! Status of a `RuntimeBootstrapper`: the state of a runtime that the controller observed.

use serde::{Deserialize, Serialize};

/// Observed state of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuntimeBootstrapperStatus {
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: Reachable, IdentityVerified, Installed, ConfigurationSynchronized, Ready, WatcherInstalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crds", schemars(length(max = 8)))]
    #[cfg_attr(feature = "crds", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    )))]
    pub conditions: Vec<Condition>,
    /// Runtime ID, from the label `kyma-project.io/runtime-id` of the Runtime.
    #[serde(rename = "runtimeID", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 253)))]
    pub runtime_id: Option<String>,
    /// UID of the Namespace kube-system of the runtime. A different cluster is rejected.
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub cluster_uid: Option<String>,
    /// Configuration that is on the runtime, as salted hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationStatus>,
    /// State of the webhook on the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookStatus>,
}

/// Configuration on a runtime, as salted hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// Hash of the synchronized pull Secret; absent when the object does not exist or is not managed by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub pull_secret_hash: Option<String>,
    /// Hash of the synchronized ClusterTrustBundle; absent when the object does not exist or is not managed by the
    /// controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub trust_bundle_hash: Option<String>,
    /// Hash of the synchronized ConfigMap; absent when the object does not exist or is not managed by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub config_map_hash: Option<String>,
    /// Hash of the complete configuration; absent while incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub revision: Option<String>,
    /// Time at which the revision last changed (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 35), extend("format" = "date-time")))]
    pub last_update_time: Option<String>,
}

/// State of the webhook on a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WebhookStatus {
    /// Version of the webhook, from a label of its Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 63)))]
    pub version: Option<String>,
    /// Number of ready replicas.
    #[serde(default)]
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub ready_replicas: i32,
    /// Desired number of replicas.
    #[serde(default)]
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub replicas: i32,
    /// Hash of the applied manifests; absent while they are incomplete or the webhook is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub manifest_hash: Option<String>,
    /// Revision of the RuntimeBootstrapperRollout webhook that was last written to the runtime, completely or in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub update_revision: Option<String>,
}

/// A condition with the fields of the Kubernetes type `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "crds", schemars(length(min = 1, max = 64)))]
    pub kind: String,
    /// Status of the condition: True, False or Unknown.
    pub status: ConditionStatus,
    /// Generation of the spec that the condition describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time at which the status last changed (RFC 3339).
    #[cfg_attr(feature = "crds", schemars(length(max = 35), extend("format" = "date-time")))]
    pub last_transition_time: String,
    /// Machine-readable reason of the status, in CamelCase.
    #[cfg_attr(feature = "crds", schemars(length(min = 1, max = 64)))]
    pub reason: String,
    /// Human-readable explanation of the last transition.
    #[cfg_attr(feature = "crds", schemars(length(max = 2048)))]
    pub message: String,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The controller could not determine the status.
    Unknown,
}

impl Condition {
    /// Returns this condition with the transition time of the previous condition of its type, if the status is equal.
    #[must_use]
    pub fn after<'c>(mut self, previous: impl IntoIterator<Item = &'c Self>) -> Self {
        let mut previous = previous.into_iter();
        if let Some(same) = previous.find(|it| it.kind == self.kind && it.status == self.status) {
            self.last_transition_time
                .clone_from(&same.last_transition_time);
        }
        self
    }

    /// Adds this condition to those of an object, or replaces the one of its type; see [`after`](Self::after).
    pub fn set_in(self, conditions: &mut Vec<Self>) {
        let condition = self.after(&*conditions);
        match conditions.iter_mut().find(|it| it.kind == condition.kind) {
            Some(previous) => *previous = condition,
            None => conditions.push(condition),
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}
