//! Field managers of an object, and migration of field ownership without a change of the object.
//!
//! Ownership is migrated as Kubernetes documents it for client-side apply
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#transferring-ownership-between-managers>): a
//! patch merges entries of `metadata.managedFields` into the `Apply` entry of the new manager, whose next apply removes
//! the fields that it does not contain. The patch contains the resource version that was read, so that the API server
//! returns 409 if the object was changed since. FieldsV1 is a tree of names, so that the union of two sets is a merge.

use api::kcp::{CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER, LIFECYCLE_MANAGER_FIELD_MANAGER};
use api::names::CA_BUNDLE_MANAGER;
use serde_json::{Map, Value, json};

use super::observed::{annotation, text};

/// The manager of one entry of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manager<'a> {
    /// `manager`.
    pub name: &'a str,
    /// `operation`: `Apply` or `Update`.
    pub operation: &'a str,
    /// `subresource`, empty for the object itself.
    pub subresource: &'a str,
}

impl<'a> Manager<'a> {
    fn of(entry: &'a Value) -> Self {
        let of = |pointer| text(entry, pointer).unwrap_or_default();
        Self {
            name: of("/manager"),
            operation: of("/operation"),
            subresource: of("/subresource"),
        }
    }

    fn is(self, name: &str, operation: &str) -> bool {
        self.subresource.is_empty() && self.name == name && self.operation == operation
    }
}

/// Returns whether the manager is KIM.
pub(super) fn is_kim(manager: Manager<'_>) -> bool {
    manager.subresource.is_empty() && manager.name == KIM_FIELD_MANAGER
}

/// Returns whether the manager is the lifecycle-manager, which installs the public watcher.
#[must_use]
pub fn is_lifecycle_manager(manager: Manager<'_>) -> bool {
    manager.subresource.is_empty() && manager.name == LIFECYCLE_MANAGER_FIELD_MANAGER
}

/// Returns whether to migrate the fields of an object that was adopted already: fields that KIM applied since, and
/// fields that had no manager at adoption.
pub(super) fn is_kim_or_unknown(manager: Manager<'_>) -> bool {
    is_kim(manager) || (manager.subresource.is_empty() && manager.name == BEFORE_FIRST_APPLY)
}

/// Returns whether to migrate the fields of a manifest object when it is adopted.
///
/// KIM creates objects under the default manager, which is the name of its binary. The public webhook applies its
/// webhook configuration under the manager that the webhook of this project uses for `caBundle`. Therefore the
/// managers that keep their fields are listed: the controller, the webhook, and the controllers of Kubernetes.
#[must_use]
pub fn is_installer(manager: Manager<'_>) -> bool {
    let keeps_fields = match manager.name {
        CONTROLLER_FIELD_MANAGER => manager.operation == APPLY,
        CA_BUNDLE_MANAGER => manager.operation == UPDATE,
        name => name == KUBE_CONTROLLER_MANAGER,
    };
    manager.subresource.is_empty() && !keeps_fields
}

/// Returns whether a manager owns a field of the object other than its status.
pub(super) fn managed_by(live: &Value, name: &str) -> bool {
    has(live, |it| it.subresource.is_empty() && it.name == name)
}

/// Returns whether the controller has applied the object.
pub(super) fn applied_by_controller(live: &Value) -> bool {
    has(live, |it| it.is(CONTROLLER_FIELD_MANAGER, APPLY))
}

/// Returns whether a manager owns an item of nested lists that are merged by name. `path` contains the field and the
/// name of the item, from the outer list to the inner one.
pub(super) fn owns_item(live: &Value, name: &str, path: &[(&str, &Value)]) -> bool {
    let owned = entries(live).iter().filter(|it| {
        let manager = Manager::of(it);
        manager.subresource.is_empty() && manager.name == name
    });
    let mut fields = owned.map(|it| &it["fieldsV1"]);
    fields.any(|fields| {
        let mut items = path.iter();
        let item = items.try_fold(fields, |fields, (list, name)| {
            fields
                .get(format!("f:{list}"))?
                .get(format!("k:{}", json!({ "name": name })))
        });
        item.is_some()
    })
}

/// Returns whether the object has an entry of a matching manager.
pub fn has(live: &Value, matches: impl Fn(Manager<'_>) -> bool) -> bool {
    entries(live).iter().any(|it| matches(Manager::of(it)))
}

/// Returns the JSON patch that migrates the fields of some managers to another manager, and removes annotations.
///
/// The `caBundle` of a mutating webhook is migrated to the manager of the webhook, the only manager that writes the
/// field. Without a `caBundle` the API server cannot call the webhook. `None` if there is nothing to migrate, or the
/// object was read without its resource version or without fields of a manager.
pub(super) fn migrate(
    live: &Value,
    matches: impl Fn(Manager<'_>) -> bool,
    to: &str,
    annotations: &[&str],
) -> Option<Value> {
    let present = |key: &&str| annotation(live, key).is_some();
    let removed_annotations: Vec<&str> = annotations.iter().copied().filter(present).collect();
    let is_moved = has(live, &matches);
    if removed_annotations.is_empty() && !is_moved {
        return None;
    }
    // An object that was read without the fields would lose their managers.
    if is_moved && entries(live).iter().any(|it| it["fieldsV1"].is_null()) {
        return None;
    }
    let version = text(live, "/metadata/resourceVersion")?;
    let mut patch =
        vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
    for key in &removed_annotations {
        let key = key.replace('~', "~0").replace('/', "~1");
        patch.push(json!({ "op": "remove", "path": format!("/metadata/annotations/{key}") }));
    }
    if is_moved {
        let has_bundle = text(live, "/kind") == Some("MutatingWebhookConfiguration");
        let managed = merge_entries(entries(live), matches, to, has_bundle, &removed_annotations);
        patch.push(json!({ "op": "replace", "path": "/metadata/managedFields", "value": managed }));
    }
    Some(Value::Array(patch))
}

fn merge_entries(
    entries: &[Value],
    matches: impl Fn(Manager<'_>) -> bool,
    to: &str,
    has_bundle: bool,
    removed_annotations: &[&str],
) -> Vec<Value> {
    let (migrated, mut kept): (Vec<Value>, Vec<Value>) = entries
        .iter()
        .cloned()
        .partition(|it| matches(Manager::of(it)));
    let version = migrated.last().map(|it| it["apiVersion"].clone());
    let version = version.unwrap_or_default();
    let (mut fields, mut bundles) = (json!({}), json!({}));
    for entry in &migrated {
        let owned = &entry["fieldsV1"];
        let (rest, bundle) = if has_bundle {
            split_ca_bundle(owned)
        } else {
            (owned.clone(), json!({}))
        };
        merge(&mut fields, &rest);
        merge(&mut bundles, &bundle);
    }
    let annotations = fields.pointer_mut("/f:metadata/f:annotations");
    if let Some(owned) = annotations.and_then(Value::as_object_mut) {
        owned.retain(|field, _| {
            !removed_annotations
                .iter()
                .any(|key| *field == format!("f:{key}"))
        });
    }
    add_to_entry(&mut kept, (CA_BUNDLE_MANAGER, UPDATE), &version, &bundles);
    add_to_entry(&mut kept, (to, APPLY), &version, &fields);
    kept
}

/// Adds fields to the entry of a manager.
fn add_to_entry(entries: &mut Vec<Value>, to: (&str, &str), version: &Value, fields: &Value) {
    if *fields == json!({}) {
        return;
    }
    let found = entries.iter_mut().find(|it| Manager::of(it).is(to.0, to.1));
    if let Some(entry) = found {
        merge(&mut entry["fieldsV1"], fields);
        return;
    }
    entries.push(json!({
        "manager": to.0, "operation": to.1, "apiVersion": version,
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
}

/// Splits a set of fields into the fields without `caBundle` and the removed fields.
fn split_ca_bundle(fields: &Value) -> (Value, Value) {
    let (mut others, mut bundles) = (Map::new(), Map::new());
    for (field, below) in fields.as_object().into_iter().flatten() {
        if field == "f:caBundle" {
            bundles.insert(field.clone(), below.clone());
            continue;
        }
        let (other, bundle) = split_ca_bundle(below);
        others.insert(field.clone(), other);
        if bundle != json!({}) {
            bundles.insert(field.clone(), bundle);
        }
    }
    (others.into(), bundles.into())
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            merge(into.entry(key.as_str()).or_insert_with(|| json!({})), value);
        }
    }
}

fn entries(live: &Value) -> &[Value] {
    live.pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// The manager that the API server records for fields that had no manager before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager of the controllers of Deployments and PodDisruptionBudgets, which also write annotations.
const KUBE_CONTROLLER_MANAGER: &str = "kube-controller-manager";
