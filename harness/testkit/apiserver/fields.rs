//! Field sets: who owns which parts of an object, in the form of `fieldsV1`, and which parts may be owned one by one.
//!
//! An API server takes the latter from its schema; here it follows from the names of fields, for the kinds that are
//! served. Lists and maps that are not named are what most schemas make of them: lists are atomic, maps are owned key by
//! key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use serde_json::{Map, Value, json};

/// The places that field managers own. A place is the sequence of its path elements (`f:name`, `k:{…}`, `v:…`), each ended by
/// a NUL, so that what is inside a place follows it in the set and begins with it.
pub(super) type Fields = BTreeSet<String>;

/// Everything that a value of this shape has.
pub(super) fn all(value: &Value) -> Fields {
    let mut fields = Fields::new();
    let is_own = |element: &str| element.starts_with("k:");
    collect((value, Shape::Map), "", &is_own, &mut fields);
    fields
}

/// The same with every map and list as a place of its own.
pub(super) fn with_inner_places(value: &Value) -> Fields {
    let mut fields = Fields::new();
    collect((value, Shape::Map), "", &|_| true, &mut fields);
    fields
}

/// Adds the places of a value at a path: what has nothing inside, and elements that are places of their own.
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

/// The place of an element inside another one.
pub(super) fn at(path: &str, element: &str) -> String {
    format!("{path}{element}\0")
}

/// Whether the set has a place or something inside it.
pub(super) fn has_within(fields: &Fields, place: &str) -> bool {
    let mut following = fields.range::<str, _>((Bound::Included(place), Bound::Unbounded));
    following.next().is_some_and(|it| it.starts_with(place))
}

/// A place as messages of an API server write it: `.data.key`, `.webhooks[name="a"].clientConfig`.
pub(super) fn written(place: &str) -> String {
    place.split_terminator('\0').map(written_element).collect()
}

/// Writes the form of `fieldsV1`.
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

/// Reads the form of `fieldsV1`.
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

/// What a value contains, each with its path element and its own shape; nothing if it is owned as one.
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

/// How a value is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As one: scalars, most lists, some maps.
    Atomic,
    /// A map, key by key.
    Map,
    /// A list of objects that these of their fields tell apart.
    Keyed(&'static [&'static str]),
    /// A list of scalars that are told apart by themselves.
    Set,
}

impl Shape {
    /// The shape of the value of a field of that name.
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

/// A list such as `items` or `ports` of another kind has the name but not the keys.
fn identified(items: &[Value], keys: &[&str]) -> bool {
    items
        .iter()
        .all(|item| keys.first().is_some_and(|key| item.get(key).is_some()))
}

/// What tells an element of a keyed list apart, as field sets write it; absent keys have their default.
pub(super) fn element_key(item: &Value, keys: &[&str]) -> String {
    let fields: BTreeMap<&str, Value> = keys
        .iter()
        .filter_map(|key| {
            let default = || (*key == "protocol").then(|| Value::from("TCP"));
            Some((*key, item.get(key).cloned().or_else(default)?))
        })
        .collect();
    // A map of strings and numbers can always be written.
    format!("k:{}", serde_json::to_string(&fields).unwrap_or_default())
}

/// Selectors and references are atomic in every kind that has one.
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
