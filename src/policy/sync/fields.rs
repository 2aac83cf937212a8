//! Who owns which fields of an object, and how ownership goes from one writer to another without a change of content.
//!
//! Without it a field that today's installer wrote, and that we do not want, would stay for ever; and after the way back,
//! ours would. The patch tests the resource version: whoever wrote in between wins, and the next pass looks again.
//! Source: the API's `metadata.managedFields` (FieldsV1 is a tree of names, so the union of two sets is a merge).

use serde_json::{Map, Value, json};

use super::observed::{annotation, text};

/// Whether a writer owns a field of the object, its status aside.
pub(super) fn managed_by(live: &Value, manager: &str) -> bool {
    entries(live).iter().any(|entry| is_of(entry, &[manager]))
}

/// The JSON patch that hands the fields of some writers to another one, and takes annotations away.
///
/// `None` if there is nothing to do, or the object does not say its resource version.
pub(super) fn transfer(
    live: &Value,
    from: &[&str],
    to: &str,
    annotations: &[&str],
) -> Option<Value> {
    let gone: Vec<&str> = annotations
        .iter()
        .copied()
        .filter(|key| annotation(live, key).is_some())
        .collect();
    let entries = entries(live);
    let moves = entries.iter().any(|entry| is_of(entry, from));
    if gone.is_empty() && !moves {
        return None;
    }
    let version = text(live, "/metadata/resourceVersion")?;
    let mut patch =
        vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })];
    for key in &gone {
        let key = key.replace('~', "~0").replace('/', "~1");
        patch.push(json!({ "op": "remove", "path": format!("/metadata/annotations/{key}") }));
    }
    if moves {
        let managed = united(entries, from, to, &gone);
        patch.push(json!({ "op": "replace", "path": "/metadata/managedFields", "value": managed }));
    }
    Some(Value::Array(patch))
}

fn united(entries: &[Value], from: &[&str], to: &str, gone: &[&str]) -> Vec<Value> {
    let takes_part = |entry: &Value| is_of(entry, from) || is_applied_by(entry, to);
    let mut kept: Vec<Value> = entries
        .iter()
        .filter(|entry| !takes_part(entry))
        .cloned()
        .collect();
    let mut fields = Value::Object(Map::new());
    let mut api_version = Value::Null;
    for entry in entries.iter().filter(|entry| takes_part(entry)) {
        if let Some(owned) = entry.get("fieldsV1") {
            merge(&mut fields, owned);
        }
        api_version = entry.get("apiVersion").cloned().unwrap_or_default();
    }
    prune(&mut fields, gone);
    kept.push(json!({
        "manager": to,
        "operation": "Apply",
        "apiVersion": api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }));
    kept
}

/// Takes annotations out of a set of fields; they will not exist any more.
fn prune(fields: &mut Value, annotations: &[&str]) {
    let Some(owned) = fields
        .pointer_mut("/f:metadata/f:annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for key in annotations {
        owned.remove(&format!("f:{key}"));
    }
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            merge(into.entry(key.as_str()).or_insert_with(|| json!({})), value);
        }
    }
}

fn entries(live: &Value) -> &[Value] {
    live.pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn is_of(entry: &Value, managers: &[&str]) -> bool {
    text(entry, "/subresource").is_none_or(str::is_empty)
        && text(entry, "/manager").is_some_and(|it| managers.contains(&it))
}

fn is_applied_by(entry: &Value, manager: &str) -> bool {
    is_of(entry, &[manager]) && text(entry, "/operation") == Some("Apply")
}
