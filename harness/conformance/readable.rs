//! The display format of a Pod or template in reports.

use serde_json::{Map, Value, json};
use testkit::json::{items, text};

/// Returns the fields of a Pod or template that a workload's owner writes and the webhook changes, without fields that every
/// Pod gets.
pub fn readable(pod: &Value) -> Value {
    let spec = &pod["spec"];
    let mut shown = fields(spec, &["imagePullSecrets", "volumes"]);
    for list in ["initContainers", "containers"] {
        let keys = ["name", "image", "env", "volumeMounts"];
        let containers: Vec<_> = items(&spec[list]).map(|it| fields(it, &keys)).collect();
        if !containers.is_empty() {
            shown.insert(list.to_owned(), json!(containers));
        }
    }
    json!({ "metadata": fields(&pod["metadata"], &["annotations"]), "spec": shown })
}

/// Returns the fields of `keys` that are set, without the token of the ServiceAccount, which the API server adds to every Pod.
fn fields(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let is_token = |item: &Value| text(&item["name"]).starts_with("kube-api-access-");
    let mut fields = Map::new();
    for key in keys {
        let mut value = object.get(*key).cloned().unwrap_or_default();
        if let Some(items) = value.as_array_mut() {
            items.retain(|item| !is_token(item));
        }
        if ![Value::Null, json!([]), json!({})].contains(&value) {
            fields.insert((*key).to_owned(), value);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_pod_has_written_fields_without_the_token() {
        let token = json!({ "name": "kube-api-access-x", "mountPath": "/t" });
        let mount = json!({ "name": "v", "mountPath": "/v" });
        let container = json!({
            "name": "c", "image": "i", "terminationMessagePath": "/x", "volumeMounts": [token, mount],
        });
        let pod = json!({
            "metadata": { "name": "p", "uid": "1", "annotations": { "a": "b" } },
            "spec": { "nodeName": "n", "containers": [container], "volumes": [token] },
        });
        let expected = json!({
            "metadata": { "annotations": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i", "volumeMounts": [mount] }] },
        });
        assert_eq!(readable(&pod), expected);
    }
}
