//! Server-side apply with ownership of map fields, and JSON merge, as far as plans need them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// Returns an object with a new resource version, as every write does.
pub(super) fn stored(mut object: Value) -> Value {
    let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
    object["metadata"]["resourceVersion"] = version.to_string().into();
    if object["metadata"].get("uid").is_none() {
        object["metadata"]["uid"] = format!("uid-{version}").into();
    }
    // The API server omits a field with this default value.
    if object["spec"]["paused"] == false {
        object["spec"].as_object_mut().unwrap().remove("paused");
    }
    object
}

/// Returns the result of a forced server-side apply. A list is one value, unless its items have names.
pub(super) fn apply(mut live: Value, object: &Value, manager: &str) -> Value {
    let owned = fields(object);
    let spec = live["spec"].clone();
    let entries: Vec<Value> = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let is_own = |entry: &&Value| entry["manager"] == manager && entry["operation"] == "Apply";
    let before = entries
        .iter()
        .find(is_own)
        .map_or(json!({}), |it| it["fieldsV1"].clone());
    let others: Vec<&Value> = entries.iter().filter(|entry| !is_own(entry)).collect();
    remove(
        &mut live,
        &before,
        &owned,
        &others.iter().map(|it| &it["fieldsV1"]).collect::<Vec<_>>(),
    );
    merge(&mut live, object);
    let mut entries: Vec<Value> = others.into_iter().cloned().collect();
    entries.push(json!({
        "manager": manager, "operation": "Apply", "apiVersion": object["apiVersion"],
        "fieldsType": "FieldsV1", "fieldsV1": owned,
    }));
    live["metadata"]["managedFields"] = json!(entries);
    if object["kind"] == "Deployment" && live["spec"] != spec {
        let generation = live["metadata"]["generation"].as_u64().unwrap_or_default();
        live["metadata"]["generation"] = json!(generation + 1);
    }
    stored(live)
}

pub(super) fn fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| {
                !matches!(key.as_str(), "apiVersion" | "kind" | "name" | "namespace")
            })
            .map(|(key, value)| {
                let below = if is_atomic(key) {
                    json!({})
                } else {
                    fields(value)
                };
                (format!("f:{key}"), below)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) if is_named(items) => items
            .iter()
            .map(|item| (key_of(item), fields(item)))
            .collect::<Map<_, _>>()
            .into(),
        _ => json!({}),
    }
}

/// Returns whether a list is merged by the names of its items.
fn is_named(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|it| it.get("name").is_some())
}

fn key_of(item: &Value) -> String {
    format!("k:{}", json!({ "name": item["name"] }))
}

/// Returns whether an apply replaces the whole field, which is a selector.
fn is_atomic(key: &str) -> bool {
    ["selector", "namespaceSelector", "objectSelector"].contains(&key)
}

/// Removes the fields that the manager owned and does not own any more, and that no other manager owns.
fn remove(live: &mut Value, before: &Value, now: &Value, others: &[&Value]) {
    let Some(before) = before.as_object() else {
        return;
    };
    for (field, below) in before {
        let shared: Vec<&Value> = others.iter().filter_map(|it| it.get(field)).collect();
        let kept = now.get(field);
        let is_gone = kept.is_none() && shared.is_empty();
        let child = match live {
            Value::Object(map) if is_gone => {
                map.remove(field.trim_start_matches("f:"));
                continue;
            }
            Value::Array(items) if is_gone => {
                items.retain(|item| key_of(item) != *field);
                continue;
            }
            Value::Object(map) => map.get_mut(field.trim_start_matches("f:")),
            Value::Array(items) => items.iter_mut().find(|item| key_of(item) == *field),
            _ => None,
        };
        if let Some(child) = child {
            remove(child, below, kept.unwrap_or(&json!({})), &shared);
        }
    }
}

pub(super) fn merge(live: &mut Value, object: &Value) {
    match (live, object) {
        (Value::Object(live), Value::Object(object)) => {
            for (key, value) in object {
                let slot = live.entry(key.as_str()).or_insert(Value::Null);
                if is_atomic(key) {
                    *slot = value.clone();
                } else {
                    merge(slot, value);
                }
            }
        }
        (Value::Array(live), Value::Array(items)) if is_named(items) => {
            for item in items {
                match live.iter_mut().find(|it| it["name"] == item["name"]) {
                    Some(live) => merge(live, item),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, object) => *live = object.clone(),
    }
}
