//! Server-side apply, and the field owners after any other write.
//!
//! The functions are pure: they map the live object and its owners to the next object and owners. If a manager repeats an
//! apply, nothing changes. The rules are those of the documentation of server-side apply; lists keep the order of the live
//! object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{self, Fields, Shape, at, children, collect, element_key, has_within};
use super::object::KEPT_APART;
use super::request::Target;
use super::status::Complaint;

/// Operation with which a manager became the owner of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// One entry of `metadata.managedFields`, without its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "fieldsType", rename = "FieldsV1")]
pub(super) struct Manager {
    #[serde(rename = "manager")]
    pub(super) name: String,
    pub(super) operation: Operation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subresource: Option<String>,
    pub(super) api_version: String,
    #[serde(rename = "fieldsV1", with = "fields")]
    pub(super) fields: Fields,
}

impl Manager {
    /// Returns the writer of a target, without fields.
    pub(super) fn of(name: &str, operation: Operation, target: &Target) -> Self {
        Self {
            name: name.to_owned(),
            operation,
            subresource: target.status.then(|| "status".to_owned()),
            api_version: target.kind.api_version.to_owned(),
            fields: Fields::new(),
        }
    }

    /// Returns the fields that identify an entry.
    fn key(&self) -> (Operation, &str, Option<&str>) {
        (self.operation, &self.name, self.subresource.as_deref())
    }
}

/// An object without the fields that the API server writes itself, and its owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) content: Value,
    pub(super) managers: Vec<Manager>,
}

/// Merges an applied configuration into the live object. Without force, a change of fields of other managers is a conflict.
pub(super) fn apply(
    live: &Owned,
    configuration: &Value,
    applier: Manager,
    force: bool,
) -> Result<Owned, Vec<Complaint>> {
    let is_applier = |it: &Manager| it.key() == applier.key();
    let (own, mut others): (Vec<Manager>, Vec<Manager>) =
        owners(live, &applier).into_iter().partition(is_applier);
    let now = &fields::all(configuration) - &server_owned();
    let mut content = live.content.clone();
    merge(&mut content, configuration, Shape::Map);
    if let Some(before) = own.first() {
        let kept = others.iter().flat_map(|other| &other.fields).chain(&now);
        let kept = kept.cloned().collect();
        prune((&mut content, Shape::Map), "", &before.fields, &kept);
    }
    let changed = changes(&live.content, &content);
    let conflicts = conflicts(&others, &changed);
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for other in &mut others {
        other.fields = &other.fields - &changed;
    }
    others.push(Manager {
        fields: now,
        ..applier
    });
    Ok(Owned {
        content,
        managers: orderly(others),
    })
}

/// Returns the owners. An object without owners is treated as written by a manager before the first apply.
fn owners(live: &Owned, applier: &Manager) -> Vec<Manager> {
    if !live.managers.is_empty() || live.content.is_null() {
        return live.managers.clone();
    }
    vec![Manager {
        name: "before-first-apply".to_owned(),
        operation: Operation::Update,
        subresource: None,
        api_version: applier.api_version.clone(),
        fields: &changes(&Value::Null, &live.content) - &server_owned(),
    }]
}

/// Returns the object and its owners after a write other than an apply: the writer owns the fields that it changed. `custom` is
/// for custom resources, whose maps are not Go structs.
pub(super) fn update(live: &Owned, content: Value, writer: &Manager, custom: bool) -> Owned {
    let mut changed = &changes(&live.content, &content) - &server_owned();
    // A map of a custom resource that did not exist before has its own path, also at the top level.
    let fields = content.as_object().into_iter().flatten();
    for (field, _) in fields.filter(|(field, _)| custom && *field != "metadata") {
        let place = at("", &format!("f:{field}"));
        if live.content[field].is_null() && has_within(&changed, &place) {
            changed.insert(place);
        }
    }
    let present = fields::with_inner_places(&content);
    let mut managers = live.managers.clone();
    if !managers.iter().any(|it| it.key() == writer.key()) {
        managers.push(writer.clone());
    }
    for manager in &mut managers {
        // A manager does not own a removed field.
        manager.fields = &manager.fields & &present;
        manager.fields = if manager.key() == writer.key() {
            &manager.fields | &changed
        } else {
            &manager.fields - &changed
        };
    }
    Owned {
        content,
        managers: orderly(managers),
    }
}
/// Sorts managers by operation, applies first, and by name, and removes managers without fields.
fn orderly(mut managers: Vec<Manager>) -> Vec<Manager> {
    managers.retain(|manager| !manager.fields.is_empty());
    managers.sort_by(|one, two| one.key().cmp(&two.key()));
    managers
}

/// Returns the conflicts: changed fields that other managers own.
fn conflicts(others: &[Manager], changed: &Fields) -> Vec<Complaint> {
    let of = |other: &Manager| {
        let using = match other.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {}", other.api_version),
        };
        let text = format!("conflict with {:?}{using}", other.name);
        let places = (&other.fields & changed).into_iter();
        places.map(move |it| (fields::written(&it), "FieldManagerConflict", text.clone()))
    };
    others.iter().flat_map(of).collect()
}

fn merge(live: &mut Value, configuration: &Value, shape: Shape) {
    match (&mut *live, configuration, shape) {
        (Value::Object(live), Value::Object(configuration), Shape::Map) => {
            for (key, value) in configuration {
                let slot = live.entry(key).or_insert(Value::Null);
                merge(slot, value, Shape::of(key, value));
            }
        }
        (Value::Array(live), Value::Array(configuration), Shape::Keyed(keys)) => {
            for item in configuration {
                let key = element_key(item, keys);
                match live.iter_mut().find(|it| element_key(it, keys) == key) {
                    Some(found) => merge(found, item, Shape::Map),
                    None => live.push(item.clone()),
                }
            }
        }
        (Value::Array(live), Value::Array(configuration), Shape::Set) => {
            let new = configuration.iter().filter(|item| !live.contains(item));
            let new: Vec<Value> = new.cloned().collect();
            live.extend(new);
        }
        (live, configuration, _) => configuration.clone_into(live),
    }
}

/// Removes fields that were applied before and have no owner, and the maps and lists that become empty.
fn prune((value, shape): (&mut Value, Shape), path: &str, before: &Fields, kept: &Fields) {
    let stays = |element: &str, child: &mut Value, shape: Shape| {
        let place = at(path, element);
        let was_own = before.contains(&place);
        if !has_within(before, &place) {
            return true;
        }
        if was_own && !has_within(kept, &place) {
            return false;
        }
        prune((child, shape), &place, before, kept);
        was_own || kept.contains(&place) || !is_hollow(child)
    };
    match (value, shape) {
        (Value::Object(map), Shape::Map) => map.retain(|key, child| {
            let shape = Shape::of(key, child);
            stays(&format!("f:{key}"), child, shape)
        }),
        (Value::Array(items), Shape::Keyed(keys)) => {
            items.retain_mut(|item| stays(&element_key(item, keys), item, Shape::Map));
        }
        (Value::Array(items), Shape::Set) => {
            items.retain_mut(|item| stays(&format!("v:{item}"), item, Shape::Atomic));
        }
        _ => {}
    }
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the paths of the new value that differ from the old value. Maps and lists that did not exist before have their own
/// paths.
fn changes(old: &Value, new: &Value) -> Fields {
    fn compare(old: &Value, (new, shape): (&Value, Shape), path: &str, changed: &mut Fields) {
        if old == new {
            return;
        }
        let comparable = old.is_object() == new.is_object() && old.is_array() == new.is_array();
        let inside = children(new, shape);
        if !comparable || inside.is_empty() {
            return collect((new, shape), path, &is_own, changed);
        }
        let before = children(old, shape).into_iter();
        let before: BTreeMap<String, &Value> = before.map(|(key, it, _)| (key, it)).collect();
        for (element, child, shape) in inside {
            let place = at(path, &element);
            if let Some(old) = before.get(&element) {
                compare(old, (child, shape), &place, changed);
                continue;
            }
            if is_own(&element) {
                changed.insert(place.clone());
            }
            collect((child, shape), &place, &is_own, changed);
        }
    }
    // Every object has these fields, even an empty one.
    fn is_own(element: &str) -> bool {
        !matches!(element, "f:metadata" | "f:spec" | "f:status" | "f:template")
    }
    let mut changed = Fields::new();
    compare(old, (new, Shape::Map), "", &mut changed);
    changed
}

/// Returns the fields that the API server writes itself; they have no owner.
fn server_owned() -> Fields {
    let top = ["f:apiVersion", "f:kind", "f:metadata"].map(|field| at("", field));
    let metadata = at("", "f:metadata");
    let inner = KEPT_APART.map(|field| at(&metadata, &format!("f:{field}")));
    top.into_iter().chain(inner).collect()
}
