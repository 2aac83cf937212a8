//! Server-side apply, and who owns what after any other write.
//!
//! Pure: the live object and its owners in, the next ones out. Invariant: what a manager applies again is no change.
//! Source of the rules: the documentation of server-side apply. Deliberately absent: conversion between versions,
//! subresources, lists whose order an applier moves.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{Fields, Shape, children, element_key};
use super::object::KEPT_APART;

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Whether it wrote the subresource `status`.
    pub(super) status: bool,
    pub(super) api_version: String,
    pub(super) fields: Fields,
}

/// An object as the API server keeps it: without what it writes itself, and its owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) content: Value,
    pub(super) managers: Vec<Manager>,
}

/// Who writes, and how hard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applier<'a> {
    pub(super) name: &'a str,
    pub(super) api_version: &'a str,
    pub(super) status: bool,
    /// Whether the kind is one of a CustomResourceDefinition, whose maps are no structs of Go.
    pub(super) custom: bool,
    pub(super) force: bool,
}

/// A field that another manager owns and that was to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) field: String,
}

/// Merges an applied configuration into what is there.
///
/// # Errors
/// With every conflict, unless forced.
pub(super) fn apply(
    live: &Owned,
    configuration: &Value,
    applier: Applier<'_>,
) -> Result<Owned, Vec<Conflict>> {
    let is_applier = |it: &Manager| is_entry(it, applier, Operation::Apply);
    let (own, mut others): (Vec<Manager>, Vec<Manager>) =
        owners(live, applier).into_iter().partition(is_applier);
    let now = Fields::of(configuration, Shape::Map).without(&server_owned());
    let mut content = live.content.clone();
    merge(&mut content, configuration, Shape::Map);
    if let Some(before) = own.first() {
        let mut kept = now.clone();
        for other in &others {
            kept.add(&other.fields);
        }
        prune(&mut content, Shape::Map, &before.fields, &kept);
    }
    let changed = changes(&live.content, &content, Shape::Map);
    let conflicts = conflicts(&others, &changed);
    if !applier.force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for other in &mut others {
        other.fields = other.fields.without(&changed);
    }
    others.push(Manager {
        name: applier.name.to_owned(),
        operation: Operation::Apply,
        status: applier.status,
        api_version: applier.api_version.to_owned(),
        fields: now,
    });
    Ok(Owned {
        content,
        managers: orderly(others),
    })
}

/// The owners; what nobody owns is treated as written by somebody before the first apply.
fn owners(live: &Owned, applier: Applier<'_>) -> Vec<Manager> {
    if !live.managers.is_empty() || live.content.is_null() {
        return live.managers.clone();
    }
    vec![Manager {
        name: "before-first-apply".to_owned(),
        operation: Operation::Update,
        status: false,
        api_version: applier.api_version.to_owned(),
        fields: added(&live.content, Shape::Map).without(&server_owned()),
    }]
}

/// Who owns what after a write that was no apply: the writer owns what it changed.
pub(super) fn update(live: &Owned, content: Value, writer: Applier<'_>) -> Owned {
    let mut changed = changes(&live.content, &content, Shape::Map).without(&server_owned());
    if writer.custom {
        // A map that was not there before is a place of its own, also at the top.
        for (element, fields) in &mut changed.inside {
            let is_new = element
                .strip_prefix("f:")
                .is_some_and(|it| live.content[it].is_null());
            fields.member |= is_new && element != "f:metadata";
        }
    }
    let mut present = Fields::of(&content, Shape::Map);
    keep_inner_places(&mut present);
    let mut managers = live.managers.clone();
    for manager in &mut managers {
        if !is_entry(manager, writer, Operation::Update) {
            manager.fields = manager.fields.without(&changed);
        }
        // An owner of something that is gone owns it no longer.
        manager.fields = manager.fields.common(&present);
    }
    if !changed.is_empty() {
        let own = managers
            .iter_mut()
            .find(|it| is_entry(it, writer, Operation::Update));
        match own {
            Some(own) => own.fields.add(&changed),
            None => managers.push(Manager {
                name: writer.name.to_owned(),
                operation: Operation::Update,
                status: writer.status,
                api_version: writer.api_version.to_owned(),
                fields: changed,
            }),
        }
    }
    Owned {
        content,
        managers: orderly(managers),
    }
}

/// Whether an entry is that of the writer.
fn is_entry(entry: &Manager, writer: Applier<'_>, operation: Operation) -> bool {
    (entry.name.as_str(), entry.operation, entry.status) == (writer.name, operation, writer.status)
}

/// Appliers first, each kind by name, and nobody who owns nothing.
fn orderly(mut managers: Vec<Manager>) -> Vec<Manager> {
    managers.retain(|manager| !manager.fields.is_empty());
    managers.sort_by(|one, two| {
        (one.operation, &one.name, one.status).cmp(&(two.operation, &two.name, two.status))
    });
    managers
}

fn conflicts(others: &[Manager], changed: &Fields) -> Vec<Conflict> {
    let of = |other: &Manager| {
        let places = other.fields.common(changed).places();
        let Manager {
            name,
            operation,
            api_version,
            ..
        } = other.clone();
        places.into_iter().map(move |field| Conflict {
            manager: name.clone(),
            operation,
            api_version: api_version.clone(),
            field,
        })
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

/// Removes what was applied before and nobody wants any more; what becomes empty by that goes too.
fn prune(value: &mut Value, shape: Shape, before: &Fields, kept: &Fields) {
    match (&mut *value, shape) {
        (Value::Object(map), Shape::Map) => {
            map.retain(|key, child| {
                let shape = Shape::of(key, child);
                stays(&format!("f:{key}"), child, shape, (before, kept))
            });
        }
        (Value::Array(items), Shape::Keyed(keys)) => items.retain_mut(|item| {
            let element = element_key(item, keys);
            stays(&element, item, Shape::Map, (before, kept))
        }),
        (Value::Array(items), Shape::Set) => items
            .retain_mut(|item| stays(&format!("v:{item}"), item, Shape::Atomic, (before, kept))),
        _ => {}
    }
}

fn stays(
    element: &str,
    child: &mut Value,
    shape: Shape,
    (before, kept): (&Fields, &Fields),
) -> bool {
    let Some(before) = before.inside.get(element) else {
        return true;
    };
    let nothing = Fields::default();
    let kept = kept.inside.get(element).unwrap_or(&nothing);
    if before.member && kept.is_empty() {
        return false;
    }
    prune(child, shape, before, kept);
    before.member || kept.member || !is_hollow(child)
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// The places that are in the new value and differ from the old one.
pub(super) fn changes(old: &Value, new: &Value, shape: Shape) -> Fields {
    if old == new {
        return Fields::default();
    }
    let comparable = old.is_object() == new.is_object() && old.is_array() == new.is_array();
    let new_children = children(new, shape);
    if !comparable || new_children.is_empty() {
        return added(new, shape);
    }
    let old_children: BTreeMap<String, &Value> = children(old, shape)
        .into_iter()
        .map(|(element, child, _)| (element, child))
        .collect();
    let mut changed = Fields::default();
    for (element, child, shape) in new_children {
        let fields = if let Some(old) = old_children.get(&element) {
            changes(old, child, shape)
        } else {
            let mut fields = added(child, shape);
            fields.member |= !ALWAYS_THERE.contains(&element.as_str());
            fields
        };
        if !fields.is_empty() {
            changed.inside.insert(element, fields);
        }
    }
    changed
}

/// The places of a value that was not there before: maps and lists are places of their own then.
pub(super) fn added(value: &Value, shape: Shape) -> Fields {
    let inside = children(value, shape);
    let mut fields = Fields {
        member: inside.is_empty(),
        inside: BTreeMap::new(),
    };
    for (element, child, shape) in inside {
        let mut inner = added(child, shape);
        inner.member |= !ALWAYS_THERE.contains(&element.as_str());
        fields.inside.insert(element, inner);
    }
    fields
}

/// A map may be owned as a place of its own although it has entries.
pub(super) fn keep_inner_places(fields: &mut Fields) {
    fields.member = true;
    fields.inside.values_mut().for_each(keep_inner_places);
}

/// What every object has, also an empty one.
const ALWAYS_THERE: [&str; 4] = ["f:metadata", "f:spec", "f:status", "f:template"];

/// What the API server fills in itself; nobody owns it.
fn server_owned() -> Fields {
    let place = || Value::Object(Map::new());
    let mut metadata: Map<String, Value> = KEPT_APART
        .iter()
        .map(|field| (format!("f:{field}"), place()))
        .collect();
    metadata.insert(".".to_owned(), place());
    Fields::from_json(&serde_json::json!({
        "f:apiVersion": {},
        "f:kind": {},
        "f:metadata": metadata,
    }))
}

#[cfg(test)]
mod tests;
