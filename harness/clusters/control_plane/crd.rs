//! The definition of `Runtime` that a control plane without its manager lacks.

use api::runtimes::{RUNTIME_GROUP, RUNTIME_KIND, RUNTIME_PLURAL, RUNTIME_VERSION};
use serde_json::{Value, json};

/// Label of what the harness created: nothing else is overwritten.
pub(super) const OWN: &str = "harness.kyma-project.io/created";

/// Only what a structural schema must have.
pub(super) fn runtime_crd() -> Value {
    let schema = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"state": {
                    "type": "string",
                    "enum": ["Pending", "Ready", "Terminating", "Failed"],
                }},
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{RUNTIME_PLURAL}.{RUNTIME_GROUP}"), "labels": {(OWN): "true"},
        },
        "spec": {
            "group": RUNTIME_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": RUNTIME_KIND, "listKind": "RuntimeList",
                "plural": RUNTIME_PLURAL, "singular": "runtime",
            },
            "versions": [{
                "name": RUNTIME_VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
