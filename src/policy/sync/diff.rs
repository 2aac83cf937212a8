//! Comparison of a desired object with a live object: whether the live object contains all desired fields.
//!
//! Fields that the API server or the webhook adds (defaults, `clusterIP`, `caBundle`) are not differences. Lists that
//! server-side apply merges are compared by their keys, all others by position, so that an additional RBAC rule or
//! subject is a difference. Selectors, rules, and the match conditions of a webhook are compared as a whole, since an
//! additional field selects fewer objects.

use serde_json::{Map, Value, json};

/// Returns whether `live` contains all fields of `desired`. `apiVersion` and `kind` of the object are not compared:
/// items of lists have none, and the version is the version of the request.
pub(crate) fn is_applied(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind"))
            .all(|(key, value)| member(key, value, live)),
        _ => desired == live,
    }
}

/// Returns the paths of the fields that differ, such as `spec.containers[manager].image`; empty if an apply would
/// change nothing. The paths contain names and keys only, never values.
#[must_use]
pub fn differing_fields(desired: &Value, live: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    if let (Value::Object(desired), Value::Object(live)) = (desired, live) {
        for (key, value) in desired {
            if !matches!(key.as_str(), "apiVersion" | "kind") {
                collect((key, value), live, "", &mut paths);
            }
        }
    } else if desired != live {
        paths.push(String::new());
    }
    paths
}

fn collect(
    (key, desired): (&str, &Value),
    live: &Map<String, Value>,
    parent: &str,
    paths: &mut Vec<String>,
) {
    if member(key, desired, live) {
        return;
    }
    let path = joined(parent, key);
    match (desired, live.get(key)) {
        (Value::Object(desired), Some(Value::Object(live))) if !is_selector(key, desired) => {
            for (key, value) in desired {
                collect((key, value), live, &path, paths);
            }
        }
        (Value::Array(desired), Some(Value::Array(live))) => {
            collect_items((key, desired), live, path, paths);
        }
        _ => paths.push(path),
    }
}

fn collect_items(
    (key, desired): (&str, &[Value]),
    live: &[Value],
    path: String,
    paths: &mut Vec<String>,
) {
    let Some(merge_key) = item_key(key, desired) else {
        return paths.push(path);
    };
    for item in desired {
        let name = item.get(merge_key);
        let path = format!("{path}[{}]", name.and_then(Value::as_str).unwrap_or("?"));
        let found = live.iter().find(|it| it.get(merge_key) == name);
        if key == "webhooks" && found.is_some_and(|it| conditions_to_keep(item, it).is_some()) {
            paths.push(joined(&path, CONDITIONS));
        }
        match (item, found) {
            (Value::Object(item), Some(Value::Object(found))) => {
                for (key, value) in item {
                    collect((key, value), found, &path, paths);
                }
            }
            _ => paths.push(path),
        }
    }
}

fn joined(parent: &str, key: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    match (parent, key.chars().all(is_plain)) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{parent}.{key}"),
        (_, false) => format!("{parent}[\"{key}\"]"),
    }
}

fn member(key: &str, desired: &Value, live: &Map<String, Value>) -> bool {
    match (desired, live.get(key)) {
        (Value::Null, None | Some(Value::Null)) => true,
        // The API server drops empty values.
        (Value::Object(map), None) => map.is_empty(),
        (Value::Array(items), None) => items.is_empty(),
        // The API server also drops `paused: false` of a Deployment and `globalDefault: false` of a PriorityClass. Other
        // booleans may default to true.
        (Value::Bool(false), None) => ["paused", "globalDefault"].contains(&key),
        (_, None) => false,
        (_, Some(live)) => within(key, desired, live),
    }
}

fn within(key: &str, desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let all = |some: &Map<String, Value>, of: &Map<String, Value>| {
                some.iter().all(|(key, value)| member(key, value, of))
            };
            all(desired, live) && (!is_selector(key, desired) || all(live, desired))
        }
        (Value::Array(desired), Value::Array(live)) => list(key, desired, live),
        _ => desired == live,
    }
}

fn list(key: &str, desired: &[Value], live: &[Value]) -> bool {
    let Some(merge_key) = item_key(key, desired) else {
        let same = |(desired, live): (&Value, &Value)| {
            within("", desired, live) && !(is_rule_list(key) && is_narrower(desired, live))
        };
        return desired.len() == live.len() && desired.iter().zip(live).all(same);
    };
    desired.iter().all(|item| {
        live.iter()
            .find(|it| it.get(merge_key) == item.get(merge_key))
            .is_some_and(|it| {
                within("", item, it)
                    && (key != "webhooks" || conditions_to_keep(item, it).is_none())
            })
    })
}

/// Returns the desired ones of a live webhook's match conditions, if it has others. A webhook is called only if all its
/// conditions are true, and server-side apply keeps those of other clients.
fn conditions_to_keep(desired: &Value, live: &Value) -> Option<Vec<Value>> {
    let desired = desired[CONDITIONS].as_array().into_iter().flatten();
    let names: Vec<_> = desired.map(|it| &it["name"]).collect();
    let live = live[CONDITIONS].as_array()?;
    let kept = live.iter().filter(|it| names.contains(&&it["name"]));
    let kept: Vec<_> = kept.cloned().collect();
    (kept.len() < live.len()).then_some(kept)
}

/// Returns the JSON patch that removes the match conditions of other clients from a webhook configuration.
pub(crate) fn remove_conditions_patch(desired: &Value, live: &Value) -> Option<Value> {
    let version = live.pointer("/metadata/resourceVersion")?;
    let mut operations =
        vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
    let entries = desired["webhooks"].as_array().into_iter().flatten();
    let live = live["webhooks"].as_array().into_iter().flatten();
    for (index, live) in live.enumerate() {
        let mut entries = entries.clone();
        let desired = entries.find(|it| it["name"] == live["name"]);
        if let Some(kept) = desired.and_then(|it| conditions_to_keep(it, live)) {
            let path = format!("/webhooks/{index}/{CONDITIONS}");
            operations.push(json!({ "op": "replace", "path": path, "value": kept }));
        }
    }
    (operations.len() > 1).then_some(Value::Array(operations))
}

/// Returns the merge key of a list, if all its items have it.
fn item_key(list: &str, desired: &[Value]) -> Option<&'static str> {
    // Lists with the same name may differ: the `ports` of a Service have names, the `ports` of a NetworkPolicy do not.
    merge_key(list).filter(|key| desired.iter().all(|item| item.get(key).is_some()))
}

/// Returns whether a field is a selector of a webhook, NetworkPolicy or Service, or a block of addresses, which
/// server-side apply replaces as a whole. The selector of a Deployment has separate fields and is immutable.
fn is_selector(key: &str, selector: &Map<String, Value>) -> bool {
    match key {
        "namespaceSelector" | "objectSelector" | "podSelector" | "ipBlock" => true,
        "selector" => !selector.contains_key("matchLabels"),
        _ => false,
    }
}

/// Returns whether a list contains the rules or the peers of a NetworkPolicy, or the rules of a Role or webhook. Server-side
/// apply replaces these lists as a whole.
fn is_rule_list(key: &str) -> bool {
    ["ingress", "egress", "from", "to", "rules"].contains(&key)
}

/// Returns whether a live rule has a field that the desired rule does not have, so that it matches less. The only field that
/// the API server adds is the scope of a webhook's rule, which matches everything.
fn is_narrower(desired: &Value, live: &Value) -> bool {
    let mut fields = live.as_object().into_iter().flatten();
    fields.any(|(key, value)| desired.get(key).is_none() && !(key == "scope" && value == "*"))
}

const CONDITIONS: &str = "matchConditions";

/// Returns the merge key of a list in server-side apply, for the lists in the manifests of the webhook.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "env" | "volumes" | "webhooks" | "matchConditions"
        | "imagePullSecrets" | "ports" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "topologySpreadConstraints" => Some("topologyKey"),
        _ => None,
    }
}
