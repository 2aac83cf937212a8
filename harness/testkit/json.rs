//! Objects of the Kubernetes API as JSON: what is read of them, and those that many tests make.

use serde_json::Value;

/// A text; empty where there is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none where there is no list.
pub fn items(value: &Value) -> std::slice::Iter<'_, Value> {
    value
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The condition of an object's status that has this type; null where there is none.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let found = items(&object["status"]["conditions"]).find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}
