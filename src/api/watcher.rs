//! The custom resource `Watcher`: the watched resource on runtimes, and the component on KCP that gets the events.
//!
//! Kind, fields and status are those of the public lifecycle-manager, so that its Watchers are valid here without a change,
//! and Watchers of this project are valid there. The schema also rejects values at `kubectl apply` that no controller could
//! use.

#![allow(
    clippy::duplicated_attributes,
    reason = "each printcolumn has the same keys"
)]

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::CustomResourceExt as _;
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bootstrapper::Condition;

/// Kind of the custom resource.
pub const KIND: &str = "Watcher";

/// Plural of the custom resource.
pub const PLURAL: &str = "watchers";

/// API version.
pub const VERSION: &str = "v1beta2";

/// Label with the manager of a Watcher that has no `spec.manager`.
pub const MANAGED_BY_LABEL: &str = "operator.kyma-project.io/managed-by";

/// Finalizer: the VirtualService is deleted before the Watcher.
pub const FINALIZER: &str = "operator.kyma-project.io/watcher";

/// Condition: the VirtualService routes events to the component.
pub const VIRTUAL_SERVICE: &str = "VirtualService";

/// Condition: the watcher on all runtimes has the webhook of the Watcher.
pub const RUNTIMES_CONFIGURED: &str = "RuntimesConfigured";

/// Desired state: the watched resource, and the component that gets the events.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, schemars::JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Watcher",
    plural = "watchers",
    namespaced,
    status = "WatcherStatus",
    derive = "PartialEq",
    doc = "Watcher makes changes of a resource on all runtimes known to a component on KCP.",
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Resource",
        type_ = "string",
        json_path = ".spec.resourceToWatch.resource"
    ),
    printcolumn(name = "Field", type_ = "string", json_path = ".spec.field"),
    printcolumn(
        name = "Service",
        type_ = "string",
        json_path = ".spec.serviceInfo.name"
    ),
    printcolumn(
        name = "Manager",
        type_ = "string",
        priority = 1,
        json_path = ".spec.manager"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="VirtualService")].message"#
    ),
    printcolumn(
        name = "Runtimes",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="RuntimesConfigured")].message"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WatcherSpec {
    /// Service on KCP that gets the events.
    pub service_info: ServiceInfo,
    /// Component that gets the events; a segment of their URL. When absent, the value of the label
    /// operator.kyma-project.io/managed-by.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$")
    )]
    pub manager: Option<String>,
    /// Labels that a watched object has. When absent, objects with any labels are watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "maxProperties" = MAX_LABELS,
        "additionalProperties" = label_value(),
        "x-kubernetes-validations" = [label_keys_rule()]
    ))]
    pub labels_to_watch: Option<BTreeMap<String, String>>,
    /// Watched resource.
    pub resource_to_watch: WatchedResource,
    /// Field whose changes are reported.
    pub field: WatchedField,
    /// Gateways through which the events arrive.
    pub gateway: GatewayReference,
}

/// A Service on KCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceInfo {
    /// Name of the Service.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// Namespace of the Service.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i64,
}

/// A resource on runtimes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchedResource {
    /// API group; empty for the core group.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^(\*|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")
    )]
    pub group: String,
    /// API version, or * for all versions.
    #[schemars(
        length(max = 63),
        regex(pattern = r"^(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?)$")
    )]
    pub version: String,
    /// Plural name of the resource, or resource/subresource such as deployments/scale.
    #[schemars(
        length(max = 127),
        regex(pattern = r"^(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?)(/(\*|[a-z0-9]+))?$")
    )]
    pub resource: String,
}

/// The field of a watched resource whose changes are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchedField {
    /// The specification; of a resource without one, all of its content.
    Spec,
    /// The status.
    Status,
}

/// The selected Istio Gateways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
    /// Label selector of the Istio Gateways; an empty one selects all of the namespace.
    #[schemars(schema_with = "selector_schema")]
    pub selector: LabelSelector,
}

/// Maximum number of labels of a selector. An API server rejects a rule about the keys of a map of unlimited size.
const MAX_LABELS: u32 = 64;

/// Regular expression of the key of a label, apart from the length of its prefix ([`crate::syntax::is_label_key`]).
const LABEL_KEY: &str = concat!(
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
);

/// Returns the schema of the value of a label.
fn label_value() -> Value {
    json!({
        "type": "string",
        "maxLength": 63,
        "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
    })
}

/// Returns an expression that is true for the key of a label.
fn is_label_key(key: &str) -> String {
    format!("{key}.matches('{LABEL_KEY}') && {key}.split('/')[0].size() <= 253")
}

/// Returns the validation of the keys of labels.
fn label_keys_rule() -> Value {
    let rule = format!("self.all(key, {})", is_label_key("key"));
    json!({ "rule": rule, "message": "every key must be a valid label key: [prefix/]name" })
}

/// Returns the validations of a requirement of a label selector.
fn requirement_rules() -> Value {
    json!([
        {
            "rule": is_label_key("self.key"),
            "message": "must be a valid label key: [prefix/]name",
            "fieldPath": ".key",
        },
        {
            "rule": "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            "message": "the operators In and NotIn need at least one value",
        },
        {
            "rule": "self.operator in ['In', 'NotIn'] || !has(self.values) || self.values.size() == 0",
            "message": "the operators Exists and DoesNotExist take no values",
        },
    ])
}

/// Returns the schema of a label selector, without the descriptions of the Kubernetes API.
fn selector_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "description": "Label selector of the Istio Gateways; an empty one selects all of the namespace.",
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": MAX_LABELS,
                "additionalProperties": label_value(),
                "x-kubernetes-validations": [label_keys_rule()],
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "maxLength": 317 },
                        "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": {
                            "type": "array",
                            "maxItems": 256,
                            "x-kubernetes-list-type": "atomic",
                            "items": label_value(),
                        },
                    },
                    "x-kubernetes-validations": requirement_rules(),
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// Observed state of a Watcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatcherStatus {
    /// Summary of the conditions.
    pub state: WatcherState,
    /// Conditions: VirtualService, RuntimesConfigured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The state of a Watcher.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum WatcherState {
    /// Not observed yet.
    #[default]
    #[serde(rename = "")]
    Unknown,
    /// Being configured.
    Processing,
    /// Being deleted.
    Deleting,
    /// Configured.
    Ready,
    /// Not configured.
    Error,
    /// Configured, but events may not arrive.
    Warning,
    /// Written by another controller.
    Unmanaged,
}

/// Returns the CustomResourceDefinition.
///
/// The version `v1beta1` is not served. It is defined because an API server rejects a definition without a version in which
/// it once stored objects.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = Watcher::crd();
    let current = crd.spec.versions.iter().find(|it| it.name == VERSION);
    let earlier = current.map(|current| CustomResourceDefinitionVersion {
        name: "v1beta1".to_owned(),
        served: false,
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some(format!("use {VERSION}")),
        ..current.clone()
    });
    crd.spec.versions.extend(earlier);
    crd
}

impl Watcher {
    /// Returns the component that gets the events: `spec.manager`, or the label [`MANAGED_BY_LABEL`] if that is absent or empty.
    #[must_use]
    pub fn manager(&self) -> Option<&str> {
        let label = || self.metadata.labels.as_ref()?.get(MANAGED_BY_LABEL);
        let named = self.spec.manager.as_ref().filter(|it| !it.is_empty());
        named
            .or_else(label)
            .map(String::as_str)
            .filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests;
