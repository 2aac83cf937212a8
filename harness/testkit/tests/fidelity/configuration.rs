//! A ConfigMap of two managers: applied, misused, edited, removed.

use serde_json::{Value, json};

use super::{Call, Content, GENTLE, OURS, THEIRS};

const CONFIG: &str = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";

fn config_map(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "rt-bootstrapper-config",
            "annotations": {"rt-bootstrapper.kyma-project.io/content-hash": "abc"},
            "labels": {"fidelity": "yes"},
        },
        "data": data,
    })
}

#[rustfmt::skip]
pub(super) fn configuration() -> Vec<Call> {
    let both = config_map(&json!({"a": "1", "b": "2"}));
    let mut unmarked = config_map(&json!({"a": "1"}));
    unmarked["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    let apply =
        |what: &str, query: &'static str, body: &Value| Call::apply(what, CONFIG, query, body);
    let named = json!({"name": "rt-bootstrapper-config"});
    let theirs = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data});
    let list = |selector: &'static str| Call {
        query: selector,
        ..Call::new(selector, "GET", "/api/v1/namespaces/kyma-system/configmaps")
    };
    vec![
        Call::new("absent", "GET", CONFIG),
        Call::new("delete what is absent", "DELETE", CONFIG),
        Call::patch("patch what is absent", CONFIG, &json!([])),
        apply("made", OURS, &both),
        apply("applied again", OURS, &both),
        Call::new("read", "GET", CONFIG),
        apply("one key changed", OURS, &config_map(&json!({"a": "9", "b": "2"}))),
        apply("key and annotation no longer applied", OURS, &unmarked),
        apply("another manager adds a key", THEIRS, &theirs(json!({"c": "3"}))),
        apply("another manager shares a key", THEIRS, &theirs(json!({"a": "1", "c": "3"}))),
        apply("conflict with the other", GENTLE, &config_map(&json!({"a": "1", "c": "4"}))),
        apply(
            "two conflicts",
            THEIRS,
            &json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "rt-bootstrapper-config", "labels": {"fidelity": "no"}}, "data": {"a": "7", "c": "3"}}),
        ),
        apply("forced", OURS, &both),
        apply("all taken over", OURS, &config_map(&json!({"a": "1", "b": "2", "c": "4"}))),
        apply("the other lets go", THEIRS, &theirs(json!({}))),
        list("labelSelector=fidelity%3Dyes"),
        list("labelSelector=fidelity%3Dno"),
        list("fieldSelector=metadata.name%3Drt-bootstrapper-config"),
    ]
}

#[rustfmt::skip]
pub(super) fn bad_bodies() -> Vec<Call> {
    let other_name =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}});
    let other_namespace = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config", "namespace": "other"}});
    let other_kind = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rt-bootstrapper-config"}});
    let numbers = config_map(&json!({"a": 1}));
    let good = config_map(&json!({}));
    let absent = CONFIG.replace("kyma-system", "absent");
    let text = |what: &str, text: &str| Call {
        body: Content::Text(text.to_owned()),
        ..Call::apply(what, CONFIG, OURS, &Value::Null)
    };
    let media_type = |content_type: &'static str| Call {
        content_type,
        ..Call::apply(content_type, CONFIG, OURS, &good)
    };
    vec![
        Call::apply("no manager", CONFIG, "force=true", &good),
        Call::apply("an absent namespace", &absent, OURS, &good),
        Call::apply("no name", CONFIG, OURS, &json!({"apiVersion": "v1", "kind": "ConfigMap"})),
        Call::apply("another name", CONFIG, OURS, &other_name),
        Call::apply("another namespace", CONFIG, OURS, &other_namespace),
        Call::apply("another kind", CONFIG, OURS, &other_kind),
        Call::apply("numbers for text", CONFIG, OURS, &numbers),
        text("no YAML", "{{{"),
        text("no object", "[1]"),
        text("nothing", ""),
        media_type("text/plain"),
        media_type("application/json"),
    ]
}

#[rustfmt::skip]
pub(super) fn edits() -> Vec<Call> {
    let patch = |what: &str, operations: Value| Call::patch(what, CONFIG, &operations);
    let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    vec![
        patch("edited", json!([test("/metadata/resourceVersion", "VERSION"), add("/data/a", json!("edited"))])),
        patch("edited to the same", json!([add("/data/a", json!("edited"))])),
        patch("a test that fails", json!([test("/data/a", "other"), add("/data/a", json!("x"))])),
        patch("a version that is old", json!([test("/metadata/resourceVersion", "1")])),
        patch(
            "a version that is claimed",
            json!([
                add("/metadata/resourceVersion", json!("1")),
                add("/data/a", json!("x"))
            ]),
        ),
        patch("a place that is not there", json!([{"op": "remove", "path": "/data/absent"}])),
        patch("no operations", json!({"op": "add"})),
    ]
}

/// Edits of `managedFields`, as one who takes over from another manager makes them.
pub(super) fn owners_rewritten() -> Vec<Call> {
    let patch = |what: &str, managers: Value| {
        let operation = json!({"op": "add", "path": "/metadata/managedFields", "value": managers});
        Call::patch(what, CONFIG, &json!([operation]))
    };
    let apply = |what: &str, data: Value| Call::apply(what, CONFIG, GENTLE, &config_map(&data));
    let ours = json!([{
        "manager": "ours", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}},
    }]);
    vec![
        patch("owners rewritten", ours),
        apply("applied over an edit", json!({"a": "1"})),
        patch("owners removed", json!([{}])),
        apply("applied where nobody owns", json!({"a": "2"})),
    ]
}

pub(super) fn posts() -> Vec<Call> {
    let collection = "/api/v1/namespaces/kyma-system/configmaps";
    let posted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "posted"}, "data": {"a": "1"}});
    vec![
        Call::post("posted", collection, &posted),
        Call::post("posted again", collection, &posted),
        Call::post("posted to an object", CONFIG, &posted),
    ]
}

pub(super) fn removal() -> Vec<Call> {
    vec![
        Call::new("delete a ConfigMap", "DELETE", CONFIG),
        Call::new("it is gone", "GET", CONFIG),
        Call::apply("made anew", CONFIG, OURS, &config_map(&json!({"a": "1"}))),
    ]
}
