//! What stands on the runtime before anything is watched: the Kyma's type, and who watches what for whom.

use serde_json::{Value, json};

/// Who is told of Kymas' specs.
pub(super) const LIFECYCLE: &str = "lifecycle-manager";
/// Who is told of Kymas' statuses.
pub(super) const STATUS: &str = "status-manager";
/// Who is told of things that have no spec, no namespace, or are a subresource.
pub(super) const MODULE: &str = "module-manager";
/// Who believes a runtime by its domain alone.
pub(super) const PINNED: &str = "pinned-manager";
/// All of them.
pub(super) const WATCHER_MANAGERS: [&str; 4] = [LIFECYCLE, STATUS, MODULE, PINNED];

/// The label of what is watched.
pub(super) const WATCHED_BY: &str = "operator.kyma-project.io/watched-by";

/// The file for `manifests watcher --watchers-file`; JSON is YAML.
pub(super) fn watchers() -> Value {
    let kyma = json!({ (WATCHED_BY): "kyma" });
    let pinned = json!({ (WATCHED_BY): "pinned" });
    let entry = |name: &str, manager: &str, (group, version, resource): (&str, &str, &str)| {
        json!({
            "namespace": "kcp-system", "name": name, "manager": manager, "field": "spec",
            "resource": { "group": group, "version": version, "resource": resource },
        })
    };
    let kymas = (GROUP, "*", "kymas");
    let mut watchers = [
        entry("kymas", LIFECYCLE, kymas),
        entry("statuses", STATUS, kymas),
        entry("config-maps", MODULE, ("", "v1", "configmaps")),
        entry(
            "roles",
            MODULE,
            ("rbac.authorization.k8s.io", "v1", "clusterroles"),
        ),
        entry("scales", MODULE, ("apps", "v1", "deployments/scale")),
        entry("pinned", PINNED, ("", "v1", "configmaps")),
    ];
    watchers[1]["field"] = json!("status");
    for labelled in [0, 1, 2, 3] {
        watchers[labelled]["labels"] = kyma.clone();
    }
    // A Scale has no labels.
    watchers[5]["labels"] = pinned;
    json!(watchers)
}

/// The custom resource, as far as it matters here.
pub(super) fn kyma_type() -> Value {
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

/// The Kyma's group.
pub(super) const GROUP: &str = "operator.kyma-project.io";
/// Its version.
pub(super) const VERSION: &str = "v1beta2";
