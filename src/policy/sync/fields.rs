//! Which manager owns which fields of an object, and how ownership is handed over without a change of content.
//!
//! It is handed over as Kubernetes documents it for client-side apply
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#transferring-ownership-between-managers>): a patch
//! merges entries of `metadata.managedFields` into the entry of operation `Apply` of the new manager, whose next apply then
//! removes the fields that it does not name. The patch has the resource version that was read, so that the API server
//! answers 409 if the object was written since. FieldsV1 is a tree of names: the union of two sets is a merge.

use api::kcp::{CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER};
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

/// Whether KIM applied the fields.
pub(super) fn is_kim(manager: Manager<'_>) -> bool {
    manager.subresource.is_empty() && manager.name == KIM_FIELD_MANAGER
}

/// Whether the fields are taken over also from an object that is adopted already: those that KIM applied since, and those of
/// an object that had no managers when it was adopted.
pub(super) fn is_kim_or_unknown(manager: Manager<'_>) -> bool {
    is_kim(manager) || (manager.subresource.is_empty() && manager.name == BEFORE_FIRST_APPLY)
}

/// Whether the fields are taken over when an object of the manifests is adopted.
///
/// KIM creates objects under the default manager, which is the name of its binary, and the public webhook applies the webhook
/// configuration as a whole under the manager that our webhook uses for the `caBundle`. So the managers that are spared are
/// listed: the controller itself, our webhook, and the controllers of Kubernetes.
#[must_use]
pub fn is_installer(manager: Manager<'_>) -> bool {
    let is_spared = match manager.name {
        CONTROLLER_FIELD_MANAGER => manager.operation == APPLY,
        CA_BUNDLE_MANAGER => manager.operation == UPDATE,
        name => name == KUBE_CONTROLLER_MANAGER,
    };
    manager.subresource.is_empty() && !is_spared
}

/// Whether a manager owns a field of the object other than its status.
pub(super) fn managed_by(live: &Value, name: &str) -> bool {
    has(live, |it| it.subresource.is_empty() && it.name == name)
}

/// Whether the controller has applied the object.
pub(super) fn applied_by_controller(live: &Value) -> bool {
    has(live, |it| it.is(CONTROLLER_FIELD_MANAGER, APPLY))
}

/// Whether the object has an entry of such a manager.
pub(super) fn has(live: &Value, is_given: impl Fn(Manager<'_>) -> bool) -> bool {
    entries(live).iter().any(|it| is_given(Manager::of(it)))
}

/// The JSON patch that hands the fields of some managers over to another one, and removes annotations.
///
/// A `caBundle` is handed over to the manager of the webhook: nothing but the webhook writes it, and without it no Pod is
/// sent. `None` if there is nothing to do, or the object has no resource version.
pub(super) fn transfer(
    live: &Value,
    is_given: impl Fn(Manager<'_>) -> bool,
    to: &str,
    annotations: &[&str],
) -> Option<Value> {
    let present = |key: &&str| annotation(live, key).is_some();
    let gone: Vec<&str> = annotations.iter().copied().filter(present).collect();
    let is_moved = has(live, &is_given);
    if gone.is_empty() && !is_moved {
        return None;
    }
    let version = text(live, "/metadata/resourceVersion")?;
    let mut patch =
        vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
    for key in &gone {
        let key = key.replace('~', "~0").replace('/', "~1");
        patch.push(json!({ "op": "remove", "path": format!("/metadata/annotations/{key}") }));
    }
    if is_moved {
        let managed = handed_over(entries(live), is_given, to, &gone);
        patch.push(json!({ "op": "replace", "path": "/metadata/managedFields", "value": managed }));
    }
    Some(Value::Array(patch))
}

fn handed_over(
    entries: &[Value],
    is_given: impl Fn(Manager<'_>) -> bool,
    to: &str,
    gone: &[&str],
) -> Vec<Value> {
    let (given, mut kept): (Vec<Value>, Vec<Value>) = entries
        .iter()
        .cloned()
        .partition(|it| is_given(Manager::of(it)));
    let version = given.last().map(|it| it["apiVersion"].clone());
    let version = version.unwrap_or_default();
    let (mut fields, mut bundles) = (json!({}), json!({}));
    for entry in &given {
        let (rest, bundle) = split(&entry["fieldsV1"]);
        merge(&mut fields, &rest);
        merge(&mut bundles, &bundle);
    }
    let annotations = fields.pointer_mut("/f:metadata/f:annotations");
    if let Some(owned) = annotations.and_then(Value::as_object_mut) {
        owned.retain(|field, _| !gone.iter().any(|key| *field == format!("f:{key}")));
    }
    join(&mut kept, (CA_BUNDLE_MANAGER, UPDATE), &version, &bundles);
    join(&mut kept, (to, APPLY), &version, &fields);
    kept
}

/// Adds fields to the entry of a manager.
fn join(entries: &mut Vec<Value>, to: (&str, &str), version: &Value, fields: &Value) {
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

/// A set of fields without any `caBundle`, and the rest of it.
fn split(fields: &Value) -> (Value, Value) {
    let (mut others, mut bundles) = (Map::new(), Map::new());
    for (field, below) in fields.as_object().into_iter().flatten() {
        if field == "f:caBundle" {
            bundles.insert(field.clone(), below.clone());
            continue;
        }
        let (other, bundle) = split(below);
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

/// The manager under which the API server notes the fields of an object that had no managers before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager of the controllers of Deployments and PodDisruptionBudgets, for annotations beside the status.
const KUBE_CONTROLLER_MANAGER: &str = "kube-controller-manager";
