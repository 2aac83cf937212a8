//! What the controller says about a runtime.

use serde::{Deserialize, Serialize};

/// What is on the runtime, and what the controller makes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuntimeBootstrapperStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Reachable`, `Installed`, `ConfigurationSynchronized`, `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crds", schemars(length(max = 8)))]
    #[cfg_attr(feature = "crds", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    )))]
    pub conditions: Vec<Condition>,
    /// The runtime id, by the label of the Runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 253)))]
    pub runtime_id: Option<String>,
    /// UID of the runtime's namespace `kube-system`: another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub cluster_id: Option<String>,
    /// The three objects on the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<SynchronizedContent>,
    /// The webhook on the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookStatus>,
}

/// The three objects on a runtime, as salted hashes of their content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SynchronizedContent {
    /// Of the pull Secret; absent if it is not there or not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub pull_secret: Option<String>,
    /// Of the ClusterTrustBundle; absent if it is not there or not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub trust_bundle: Option<String>,
    /// Of the webhook's document; absent if it is not there or not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub configuration: Option<String>,
    /// Of the three together; absent while the runtime lacks any part of what is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub version: Option<String>,
    /// When the content last became what it is (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 35), extend("format" = "date-time")))]
    pub time: Option<String>,
}

/// The webhook on a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WebhookStatus {
    /// The version that its Deployment says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 63)))]
    pub version: Option<String>,
    /// Replicas that are ready.
    #[serde(default)]
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub ready_replicas: i32,
    /// Replicas that there should be.
    #[serde(default)]
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub replicas: i32,
    /// Hash of the manifests that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crds", schemars(length(max = 64)))]
    pub manifest_hash: Option<String>,
}

/// A condition of the standard shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "crds", schemars(length(min = 1, max = 64)))]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The generation of the spec that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed (RFC 3339).
    #[cfg_attr(feature = "crds", schemars(length(max = 35), extend("format" = "date-time")))]
    pub last_transition_time: String,
    /// Why, in one CamelCase word.
    #[cfg_attr(feature = "crds", schemars(length(min = 1, max = 64)))]
    pub reason: String,
    /// Why, for people.
    #[cfg_attr(feature = "crds", schemars(length(max = 2048)))]
    pub message: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// It cannot be told.
    Unknown,
}
