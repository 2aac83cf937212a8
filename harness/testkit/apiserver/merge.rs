//! Server-side apply, and who owns what after any other write.
//!
//! Pure: the live object and its owners in, the next ones out. What a manager applies again is no change. The rules are
//! those of the documentation of server-side apply; lists keep the order of the live object.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::fields::{self, Fields, Shape, at, children, collect, element_key, has_within};
use super::object::KEPT_APART;

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Operation {
    Apply,
    Update,
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
pub(super) fn apply(
    live: &Owned,
    configuration: &Value,
    applier: Applier<'_>,
) -> Result<Owned, Vec<Conflict>> {
    let is_applier = |it: &Manager| is_entry(it, applier, Operation::Apply);
    let (own, mut others): (Vec<Manager>, Vec<Manager>) =
        owners(live, applier).into_iter().partition(is_applier);
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
    if !applier.force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for other in &mut others {
        other.fields = &other.fields - &changed;
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

/// The owners; what has none is treated as written by a manager before the first apply.
fn owners(live: &Owned, applier: Applier<'_>) -> Vec<Manager> {
    if !live.managers.is_empty() || live.content.is_null() {
        return live.managers.clone();
    }
    vec![Manager {
        name: "before-first-apply".to_owned(),
        operation: Operation::Update,
        status: false,
        api_version: applier.api_version.to_owned(),
        fields: &changes(&Value::Null, &live.content) - &server_owned(),
    }]
}

/// Who owns what after a write that was no apply: the writer owns what it changed.
pub(super) fn update(live: &Owned, content: Value, writer: Applier<'_>) -> Owned {
    let mut changed = &changes(&live.content, &content) - &server_owned();
    // A map of a custom resource that was not there before is a place of its own, also at the top.
    let fields = content.as_object().into_iter().flatten();
    for (field, _) in fields.filter(|(field, _)| writer.custom && *field != "metadata") {
        let place = at("", &format!("f:{field}"));
        if live.content[field].is_null() && has_within(&changed, &place) {
            changed.insert(place);
        }
    }
    let present = fields::with_inner_places(&content);
    let mut managers = live.managers.clone();
    for manager in &mut managers {
        if !is_entry(manager, writer, Operation::Update) {
            manager.fields = &manager.fields - &changed;
        }
        // An owner of something that is gone owns it no longer.
        manager.fields = &manager.fields & &present;
    }
    let is_own = |it: &&mut Manager| is_entry(it, writer, Operation::Update);
    match managers.iter_mut().find(is_own) {
        Some(own) => own.fields.extend(changed),
        None => managers.push(Manager {
            name: writer.name.to_owned(),
            operation: Operation::Update,
            status: writer.status,
            api_version: writer.api_version.to_owned(),
            fields: changed,
        }),
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

/// Appliers first, each kind by name, without those that own nothing.
fn orderly(mut managers: Vec<Manager>) -> Vec<Manager> {
    managers.retain(|manager| !manager.fields.is_empty());
    managers.sort_by(|one, two| {
        (one.operation, &one.name, one.status).cmp(&(two.operation, &two.name, two.status))
    });
    managers
}

fn conflicts(others: &[Manager], changed: &Fields) -> Vec<Conflict> {
    let of = |other: &Manager| {
        let other = other.clone();
        let places = &other.fields & changed;
        places.into_iter().map(move |place| Conflict {
            manager: other.name.clone(),
            operation: other.operation,
            api_version: other.api_version.clone(),
            field: fields::written(&place),
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

/// Removes what was applied before and has no owner any more; what becomes empty by that is removed too.
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

/// The places that are in the new value and differ from the old one. Maps and lists that were not there before are places
/// of their own.
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
    // Every object has these, also an empty one.
    fn is_own(element: &str) -> bool {
        !matches!(element, "f:metadata" | "f:spec" | "f:status" | "f:template")
    }
    let mut changed = Fields::new();
    compare(old, (new, Shape::Map), "", &mut changed);
    changed
}

/// What the API server fills in itself; it has no owner.
fn server_owned() -> Fields {
    let top = ["f:apiVersion", "f:kind", "f:metadata"].map(|field| at("", field));
    let metadata = at("", "f:metadata");
    let inner = KEPT_APART.map(|field| at(&metadata, &format!("f:{field}")));
    top.into_iter().chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn applier(name: &str, force: bool) -> Applier<'_> {
        Applier {
            name,
            api_version: "v1",
            status: false,
            custom: false,
            force,
        }
    }

    fn applied(live: &Owned, name: &str, content: impl std::borrow::Borrow<Value>) -> Owned {
        apply(live, content.borrow(), applier(name, false)).unwrap()
    }

    /// What every manager owns: `a .data.one, b .data.two`.
    fn owners(owned: &Owned) -> String {
        let managers = owned.managers.iter();
        let places = managers.flat_map(|it| it.fields.iter().map(move |place| (&it.name, place)));
        let places = places.map(|(name, place)| format!("{name} {}", fields::written(place)));
        places.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn elements_of_a_keyed_list_are_owned_one_by_one() {
        let pods = |containers: &[(&str, &str)]| {
            let containers = containers
                .iter()
                .map(|(name, image)| json!({"name": name, "image": image}));
            let containers: Value = containers.collect();
            json!({"spec": {"template": {"spec": {"containers": containers}}}})
        };
        let live = applied(&Owned::default(), "a", pods(&[("web", "1"), ("log", "1")]));
        let both = applied(&live, "b", pods(&[("side", "2")]));
        let less = applied(&both, "a", pods(&[("web", "3")]));
        assert_eq!(less.content, pods(&[("web", "3"), ("side", "2")]));
    }

    #[test]
    fn an_atomic_value_is_replaced_as_one() {
        let first = json!({"spec": {"selector": {"x": "1"}, "args": ["a"]}});
        let second = json!({"spec": {"selector": {"y": "2"}, "args": ["b"]}});
        let live = applied(&Owned::default(), "a", first);
        assert_eq!(applied(&live, "a", &second).content, second);
    }

    #[rstest]
    #[case::changed(json!({"data": {"one": "other", "two": "2"}}), "a .data.two, kubectl .data.one")]
    #[case::added(json!({"data": {"one": "1", "two": "2", "three": "3"}}), "a .data.one, a .data.two, kubectl .data.three")]
    #[case::removed(json!({"data": {"two": "2"}}), "a .data.two")]
    fn a_writer_that_does_not_apply_owns_what_it_changed(
        #[case] content: Value,
        #[case] expected: &str,
    ) {
        let first = json!({"data": {"one": "1", "two": "2"}});
        let live = applied(&Owned::default(), "a", first);
        let next = update(&live, content, applier("kubectl", false));
        assert_eq!(owners(&next), expected);
    }
}
