//! What is installed on the runtime: the kind Kyma, and the Watchers with their managers.

use serde_json::{Value, json};

/// Manager of the field spec of Kymas.
pub(crate) const LIFECYCLE: &str = "lifecycle-manager";
/// Manager that accepts a runtime by its domain.
pub(super) const PINNED: &str = "pinned-manager";
/// All managers. The status manager gets events for the field status of Kymas, the module manager for kinds without a spec
/// and for a subresource.
pub(super) const MANAGERS: [&str; 4] = [LIFECYCLE, "status-manager", "module-manager", PINNED];

/// Label by which Watchers select objects.
pub(crate) const WATCHED_BY: &str = "operator.kyma-project.io/watched-by";

/// The file for `manifests watcher --watchers-file`; JSON is YAML. A Scale has no labels.
pub(crate) fn watchers() -> Value {
    let entries = [
        ("kymas", LIFECYCLE, "spec", KYMAS, Some("kyma")),
        ("statuses", "status-manager", "status", KYMAS, Some("kyma")),
        (
            "config-maps",
            "module-manager",
            "spec",
            ["", "v1", "configmaps"],
            Some("kyma"),
        ),
        ("roles", "module-manager", "spec", ROLES, Some("kyma")),
        (
            "scales",
            "module-manager",
            "spec",
            ["apps", "v1", "deployments/scale"],
            None,
        ),
        (
            "pinned",
            PINNED,
            "spec",
            ["", "v1", "configmaps"],
            Some("pinned"),
        ),
    ];
    let watchers = entries.map(
        |(name, manager, field, [group, version, resource], label)| {
            let mut watcher = json!({
                "namespace": "kcp-system", "name": name, "manager": manager, "field": field,
                "resource": { "group": group, "version": version, "resource": resource },
            });
            if let Some(label) = label {
                watcher["labels"] = json!({ (WATCHED_BY): label });
            }
            watcher
        },
    );
    json!(watchers)
}

/// The CustomResourceDefinition of Kymas, without a schema.
pub(super) fn kyma_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("kymas.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "plural": "kymas", "singular": "kyma", "kind": "Kyma", "listKind": "KymaList" },
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    })
}

/// A Kyma that the Watchers select.
pub(crate) fn kyma() -> Value {
    json!({
        "kind": "Kyma", "metadata": { "labels": { (WATCHED_BY): "kyma" } },
        "spec": { "channel": "regular" },
    })
}

/// Group of Kymas.
pub(crate) const GROUP: &str = "operator.kyma-project.io";
/// Version of Kymas.
pub(crate) const VERSION: &str = "v1beta2";
const KYMAS: [&str; 3] = [GROUP, "*", "kymas"];
const ROLES: [&str; 3] = ["rbac.authorization.k8s.io", "v1", "clusterroles"];
