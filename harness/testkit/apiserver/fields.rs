//! Field sets: who owns which parts of an object, in the form of `fieldsV1`, and which parts may be owned one by one.
//!
//! An API server takes the latter from its schema; here it follows from the names of fields, for the kinds that are
//! served. Lists and maps that are not named are what most schemas make of them: lists are atomic, maps are owned key by
//! key. A set has no empty branches, so two sets are equal exactly when they own the same.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A tree of path elements (`f:name`, `k:{…}`, `v:…`).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    /// Whether the place itself is owned, not only what is in it.
    pub(super) member: bool,
    pub(super) inside: BTreeMap<String, Self>,
}

impl Fields {
    fn place() -> Self {
        Self {
            member: true,
            inside: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.inside.is_empty()
    }

    /// Everything that a value of this shape has.
    pub(super) fn of(value: &Value, shape: Shape) -> Self {
        let inside: BTreeMap<String, Self> = children(value, shape)
            .into_iter()
            .map(|(element, child, shape)| {
                let mut fields = Self::of(child, shape);
                fields.member |= element.starts_with("k:");
                (element, fields)
            })
            .collect();
        if inside.is_empty() {
            return Self::place();
        }
        Self {
            member: false,
            inside,
        }
    }

    /// Adds what the other has.
    pub(super) fn add(&mut self, other: &Self) {
        self.member |= other.member;
        for (element, fields) in &other.inside {
            self.inside.entry(element.clone()).or_default().add(fields);
        }
    }

    /// Without the places that the other has.
    pub(super) fn without(&self, other: &Self) -> Self {
        let inside = self.inside.iter().map(|(element, fields)| {
            let rest = match other.inside.get(element) {
                Some(other) => fields.without(other),
                None => fields.clone(),
            };
            (element.clone(), rest)
        });
        Self {
            member: self.member && !other.member,
            inside: inside.filter(|(_, rest)| !rest.is_empty()).collect(),
        }
    }

    /// The places that both have.
    pub(super) fn common(&self, other: &Self) -> Self {
        let both = self
            .inside
            .iter()
            .filter_map(|(element, fields)| Some((element, fields, other.inside.get(element)?)));
        let inside = both.map(|(element, one, two)| (element.clone(), one.common(two)));
        Self {
            member: self.member && other.member,
            inside: inside.filter(|(_, rest)| !rest.is_empty()).collect(),
        }
    }

    /// Its places, as messages of an API server write them: `.data.key`, `.webhooks[name="a"].clientConfig`.
    pub(super) fn places(&self) -> Vec<String> {
        let mut places = Vec::new();
        self.collect("", &mut places);
        places
    }

    fn collect(&self, path: &str, places: &mut Vec<String>) {
        if self.member {
            places.push(path.to_owned());
        }
        for (element, fields) in &self.inside {
            fields.collect(&format!("{path}{}", written(element)), places);
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let own = (self.member && !self.inside.is_empty())
            .then(|| (".".to_owned(), Value::Object(Map::new())));
        let inside = self
            .inside
            .iter()
            .map(|(element, fields)| (element.clone(), fields.to_json()));
        Value::Object(own.into_iter().chain(inside).collect())
    }

    pub(super) fn from_json(value: &Value) -> Self {
        let Some(map) = value.as_object().filter(|map| !map.is_empty()) else {
            return Self::place();
        };
        let inside = map.iter().filter(|(element, _)| *element != ".");
        Self {
            member: map.contains_key("."),
            inside: inside
                .map(|(element, fields)| (element.clone(), Self::from_json(fields)))
                .collect(),
        }
    }
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

fn written(element: &str) -> String {
    let Some(key) = element.strip_prefix("k:") else {
        let name = element.strip_prefix("f:");
        return name.map_or_else(
            || format!("[={}]", &element[2..]),
            |name| format!(".{name}"),
        );
    };
    let parsed: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
    let parts: Vec<String> = parsed
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!("[{}]", parts.join(","))
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
            Value::Object(_) if ATOMIC_MAPS.contains(&field) => Self::Atomic,
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
    let fields: std::collections::BTreeMap<&str, Value> = keys
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
const ATOMIC_MAPS: [&str; 12] = [
    "configMapKeyRef",
    "fieldRef",
    "resourceFieldRef",
    "secretKeyRef",
    "selector",
    "labelSelector",
    "matchLabels",
    "namespaceSelector",
    "nodeSelector",
    "objectSelector",
    "podSelector",
    "roleRef",
];

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_is_written_as_an_api_server_writes_it() {
        let value = json!({
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 443, "name": "https"}]},
        });
        let fields = Fields::of(&value, Shape::Map);
        let expected = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {
                "f:selector": {},
                "f:ports": {"k:{\"port\":443,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:name": {}, "f:port": {},
                }},
            },
        });
        assert_eq!(fields.to_json(), expected);
        assert_eq!(Fields::from_json(&expected), fields);
    }

    #[test]
    fn sets_are_compared_place_by_place() {
        let set = |value: Value| Fields::of(&value, Shape::Map);
        let one = set(json!({"data": {"a": 1, "b": 2}}));
        let two = set(json!({"data": {"b": 3, "c": 4}, "type": "x"}));
        assert_eq!(one.common(&two).places(), [".data.b"]);
        assert_eq!(one.without(&two).places(), [".data.a"]);
        let mut both = one.clone();
        both.add(&two);
        assert_eq!(both.places(), [".data.a", ".data.b", ".data.c", ".type"]);
        assert!(one.without(&one).is_empty());
    }
}
