//! The custom resource and its definition.
//!
//! The schema rejects mistakes at `kubectl apply`: every text and list is bounded, policies are enums, and further rules
//! are CEL expressions.

#![expect(
    unreachable_pub,
    reason = "the schema's derive copies our public structs into functions of its own"
)]

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use kube_derive::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{RuntimeBootstrapperStatus, WebhookSettings};

#[cfg(test)]
mod tests;

/// Desired state of one runtime. An empty spec is valid and has all defaults.
#[derive(Clone, Debug, PartialEq, Eq, CustomResource, KubeSchema, Serialize, Deserialize)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1alpha1",
    kind = "RuntimeBootstrapper",
    plural = "runtimebootstrappers",
    shortname = "rtb",
    namespaced,
    status = "RuntimeBootstrapperStatus",
    derive = "PartialEq",
    doc = "RuntimeBootstrapper installs the webhook on one runtime and keeps its configuration synchronized. Its name is the name of the Runtime.",
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(
        name = "Synchronized",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ConfigurationSynchronized")].status"#
    ),
    printcolumn(
        name = "Reachable",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Reachable")].status"#
    ),
    printcolumn(
        name = "Watcher",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="WatcherInstalled")].status"#
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.webhook.version"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    ),
    printcolumn(
        name = "Runtime ID",
        type_ = "string",
        priority = 1,
        json_path = ".status.runtimeID"
    ),
    printcolumn(
        name = "Shoot",
        type_ = "string",
        priority = 1,
        json_path = r".metadata.labels['kyma-project\.io/shoot-name']"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("must be the name of a Runtime: at most 63 characters")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct RuntimeBootstrapperSpec {
    /// Settings of the webhook on this runtime; they override those of the controller's flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookSettings>,
    /// When true, nothing is written to the runtime. Deletion is still carried out.
    #[serde(default)]
    pub paused: bool,
    /// What happens to the objects on the runtime when this object is deleted: Delete removes them, Orphan leaves them for KIM.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Seconds to wait for an unreachable runtime before the finalizer is removed and the objects on the runtime are left
    /// behind.
    #[serde(default = "deletion_timeout_seconds")]
    #[schemars(range(min = 60, max = 604_800))]
    pub deletion_timeout_seconds: i32,
}

/// What happens to the objects on a runtime when its `RuntimeBootstrapper` is deleted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum DeletionPolicy {
    /// The webhook and all objects that the controller wrote are deleted.
    #[default]
    Delete,
    /// All objects are left as they are, for KIM.
    Orphan,
}

/// Returns the definition of the custom resource, for a control plane.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    RuntimeBootstrapper::crd()
}

impl RuntimeBootstrapperSpec {
    /// Returns the time that a deletion waits for an unreachable runtime.
    #[must_use]
    pub fn deletion_timeout(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.deletion_timeout_seconds).unwrap_or_default())
    }
}

impl Default for RuntimeBootstrapperSpec {
    fn default() -> Self {
        Self {
            webhook: None,
            paused: false,
            deletion_policy: DeletionPolicy::default(),
            deletion_timeout_seconds: deletion_timeout_seconds(),
        }
    }
}

/// Returns one hour, which is longer than the usual maintenance of a control plane.
fn deletion_timeout_seconds() -> i32 {
    3600
}
