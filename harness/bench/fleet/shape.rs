//! Which parts of an object server-side apply may own one by one.
//!
//! The API server knows that from its schema; we know it from the names of fields, for the kinds that we serve.
//! Invariant: every list and map that is not named here is what the schema makes of most: lists are atomic, maps are
//! owned key by key. Deliberately absent: types (a string where a number belongs is caught by validation, if at all).

use serde_json::Value;

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
