//! Field sets: the owners of the fields of an object, in the format of `fieldsV1`, and the rules for which fields have their
//! own owner.
//!
//! An API server derives these rules from its schema; here they follow from the names of fields, for the kinds that are served.
//! Other lists and maps have the default of most schemas: lists are atomic, and maps are owned key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use serde_json::{Map, Value, json};

/// Paths of fields that field managers own. A path is the sequence of its elements (`f:name`, `k:{…}`, `v:…`), each followed by
/// a NUL. So the paths below a path follow it in the set and have it as a prefix.
pub(super) type Fields = BTreeSet<String>;

/// Returns the paths of all leaves of an object, and of the elements of keyed lists.
pub(super) fn all(value: &Value) -> Fields {
    let mut fields = Fields::new();
    let is_own = |element: &str| element.starts_with("k:");
    collect((value, Shape::Map), "", &is_own, &mut fields);
    fields
}

/// Returns the paths of all leaves of an object, and of every map, list and element.
pub(super) fn with_inner_places(value: &Value) -> Fields {
    let mut fields = Fields::new();
    collect((value, Shape::Map), "", &|_| true, &mut fields);
    fields
}

/// Adds the paths of a value at `path`: of leaves, and of elements for which `is_own` returns true.
pub(super) fn collect(
    (value, shape): (&Value, Shape),
    path: &str,
    is_own: &impl Fn(&str) -> bool,
    fields: &mut Fields,
) {
    let inside = children(value, shape);
    if inside.is_empty() {
        fields.insert(path.to_owned());
    }
    for (element, child, shape) in inside {
        let place = at(path, &element);
        if is_own(&element) {
            fields.insert(place.clone());
        }
        collect((child, shape), &place, is_own, fields);
    }
}

/// Returns the path of an element below `path`.
pub(super) fn at(path: &str, element: &str) -> String {
    format!("{path}{element}\0")
}

/// Whether the set contains a path or a path below it.
pub(super) fn has_within(fields: &Fields, place: &str) -> bool {
    let mut following = fields.range::<str, _>((Bound::Included(place), Bound::Unbounded));
    following.next().is_some_and(|it| it.starts_with(place))
}

/// Returns a path in the format of the API server's messages: `.data.key`, `.webhooks[name="a"].clientConfig`.
pub(super) fn written(place: &str) -> String {
    place.split_terminator('\0').map(written_element).collect()
}

/// Serializes paths in the format of `fieldsV1`.
pub(super) fn serialize<S: Serializer>(fields: &Fields, into: S) -> Result<S::Ok, S::Error> {
    let mut root = json!({});
    let mut places = fields.iter().peekable();
    while let Some(place) = places.next() {
        let mut node = &mut root;
        for element in place.split_terminator('\0') {
            node = &mut node[element];
            if node.is_null() {
                *node = json!({});
            }
        }
        if places.peek().is_some_and(|next| next.starts_with(place)) {
            node["."] = json!({});
        }
    }
    root.serialize(into)
}

/// Deserializes paths from the format of `fieldsV1`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
    fn read(value: &Value, path: &str, fields: &mut Fields) {
        let inside = value.as_object().filter(|map| !map.is_empty());
        if inside.is_none_or(|map| map.contains_key(".")) {
            fields.insert(path.to_owned());
        }
        for (element, child) in inside.into_iter().flatten().filter(|(it, _)| *it != ".") {
            read(child, &at(path, element), fields);
        }
    }
    let mut fields = Fields::new();
    read(&Value::deserialize(from)?, "", &mut fields);
    Ok(fields)
}

/// Returns the children of a value, each with its path element and its shape. An atomic value has none.
pub(super) fn children(value: &Value, shape: Shape) -> Vec<(String, &Value, Shape)> {
    match (value, shape) {
        (Value::Object(map), Shape::Map) => map
            .iter()
            .map(|(key, child)| (format!("f:{key}"), child, Shape::of(key, child)))
            .collect(),
        (Value::Array(items), Shape::Keyed(keys)) => items
            .iter()
            .map(|item| (element_key(item, keys), item, Shape::Map))
            .collect(),
        (Value::Array(items), Shape::Set) => items
            .iter()
            .map(|item| (format!("v:{item}"), item, Shape::Atomic))
            .collect(),
        _ => Vec::new(),
    }
}

fn written_element(element: &str) -> String {
    if let Some(name) = element.strip_prefix("f:") {
        return format!(".{name}");
    }
    let Some(key) = element.strip_prefix("k:") else {
        return format!("[={}]", &element[2..]);
    };
    let parsed: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
    let parts = parsed.iter().map(|(name, value)| format!("{name}={value}"));
    format!("[{}]", parts.collect::<Vec<_>>().join(","))
}

/// Granularity of the ownership of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// The value has one owner: scalars, most lists, some maps.
    Atomic,
    /// A map: each key has its owners.
    Map,
    /// A list of objects, which are identified by these fields.
    Keyed(&'static [&'static str]),
    /// A list of scalars, which are identified by their values.
    Set,
}

impl Shape {
    /// Returns the shape of the value of a field with this name.
    pub(super) fn of(field: &str, value: &Value) -> Self {
        match value {
            Value::Object(_) if is_atomic(field) => Self::Atomic,
            Value::Object(_) => Self::Map,
            Value::Array(_) if field == "finalizers" => Self::Set,
            Value::Array(items) if items.iter().all(Value::is_object) => LISTS
                .iter()
                .find(|(name, keys)| *name == field && identified(items, keys))
                .map_or(Self::Atomic, |(_, keys)| Self::Keyed(keys)),
            _ => Self::Atomic,
        }
    }
}

/// Whether all items have the first key field. Other lists named `items` or `ports` do not.
fn identified(items: &[Value], keys: &[&str]) -> bool {
    items
        .iter()
        .all(|item| keys.first().is_some_and(|key| item.get(key).is_some()))
}

/// Returns the identifier of an element of a keyed list in the format of field sets; absent keys have their default.
pub(super) fn element_key(item: &Value, keys: &[&str]) -> String {
    let fields: BTreeMap<&str, Value> = keys
        .iter()
        .filter_map(|key| {
            let default = || (*key == "protocol").then(|| Value::from("TCP"));
            Some((*key, item.get(key).cloned().or_else(default)?))
        })
        .collect();
    // A map of strings and numbers can always be serialized.
    format!("k:{}", serde_json::to_string(&fields).unwrap_or_default())
}

/// Whether a map is atomic: selectors and references are, in every kind that has them.
fn is_atomic(map: &str) -> bool {
    let map = map.to_lowercase();
    map.ends_with("selector") || map.ends_with("ref") || map == "matchlabels"
}

const LISTS: [(&str, &[&str]); 14] = [
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("matchConditions", &["name"]),
    ("ownerReferences", &["uid"]),
    ("ports", &["containerPort", "protocol"]),
    ("ports", &["port", "protocol"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
    ("webhooks", &["name"]),
];
