//! Objects as clients send them: taken apart into content and owners.

use serde_json::{Map, Value};

use crate::fleet::fields::Fields;
use crate::fleet::kinds::Kind;
use crate::fleet::merge::{Manager, Operation};

/// `managedFields` of an object that a client sent back.
pub(in crate::fleet) fn managers_of(object: &Value) -> Vec<Manager> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let manager = |entry: &Value| {
        Some(Manager {
            name: entry["manager"].as_str()?.to_owned(),
            operation: match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                _ => Operation::Update,
            },
            api_version: entry["apiVersion"].as_str()?.to_owned(),
            fields: Fields::from_json(&entry["fieldsV1"]),
        })
    };
    entries.into_iter().flatten().filter_map(manager).collect()
}

/// Takes away what the store keeps beside the content.
pub(in crate::fleet) fn strip(kind: &Kind, object: &mut Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    if kind.generation {
        // The kinds with a generation are those whose status only its controller writes.
        object.remove("status");
    }
    let metadata = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        for field in KEPT_APART {
            metadata.remove(field);
        }
        metadata.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
    }
}

const KEPT_APART: [&str; 8] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];
