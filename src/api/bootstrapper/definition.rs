//! The custom resource and its definition.
//!
//! What the schema can say is said there, so that a mistake is refused at `kubectl apply`: every text and list is bounded,
//! policies are closed lists, and rules are CEL.

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

/// What is wanted for one runtime. The empty spec is right for most.
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
    doc = "The webhook and its configuration on one runtime: created, it is installed and kept in step; deleted, it goes. It has the name of the runtime's `Runtime`.",
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
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
    printcolumn(name = "Version", type_ = "string", json_path = ".status.webhook.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("the name is that of a Runtime, and so at most 63 characters long")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct RuntimeBootstrapperSpec {
    /// Settings of the webhook on this runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookSettings>,
    /// Nothing is written to the runtime any more; it is still observed. A deletion is carried out all the same.
    #[serde(default)]
    pub paused: bool,
    /// What becomes of the runtime when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How long a deletion waits for a runtime that cannot be reached, in seconds. After that the object goes, and what is
    /// on the runtime stays.
    #[serde(default = "deletion_deadline_seconds")]
    #[schemars(range(min = 60, max = 604_800))]
    pub deletion_deadline_seconds: i32,
}

/// What becomes of a runtime whose `RuntimeBootstrapper` is deleted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum DeletionPolicy {
    /// The webhook and everything that the controller wrote goes.
    #[default]
    Uninstall,
    /// Everything stays as it is, for today's installer to go on with.
    HandBack,
}

/// The definition of the custom resource, for a control plane.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    RuntimeBootstrapper::crd()
}

impl RuntimeBootstrapperSpec {
    /// How long a deletion waits for a runtime that cannot be reached.
    #[must_use]
    pub fn deletion_deadline(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.deletion_deadline_seconds).unwrap_or_default())
    }
}

impl Default for RuntimeBootstrapperSpec {
    fn default() -> Self {
        Self {
            webhook: None,
            paused: false,
            deletion_policy: DeletionPolicy::default(),
            deletion_deadline_seconds: deletion_deadline_seconds(),
        }
    }
}

/// An hour: longer than a control plane's maintenance usually takes, shorter than anybody waits for a deletion.
fn deletion_deadline_seconds() -> i32 {
    3600
}
