//! Compares the result of the schema for documents with the result of the parser of the webhook.

use std::path::{Path, PathBuf};

use rstest::rstest;

use super::*;
use validator::violations;

mod validator;

/// Returns a document with all keys, composed of the examples.
fn full() -> Value {
    let schema = schema();
    let properties = schema["properties"].as_object().unwrap().iter();
    let examples = properties.map(|(key, it)| (key.clone(), it["examples"][0].clone()));
    Value::Object(examples.collect())
}

fn loads(document: &Value) -> bool {
    Document::parse(&document.to_string()).is_ok()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Adds all keys below a schema, with their schemas.
fn keys<'s>(schema: &'s Value, at: &str, found: &mut Vec<(String, &'s Value)>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{key}");
        found.push((at.clone(), inner));
        keys(inner, &at, found);
        keys(&inner["items"], &at, found);
    }
}

#[test]
fn every_key_has_a_description_and_examples_that_are_valid() {
    let schema = schema();
    let mut found = Vec::new();
    keys(&schema, "", &mut found);
    assert!(found.len() > 12, "{found:?}");
    for (key, schema) in found {
        let description = schema["description"].as_str().unwrap_or_default();
        assert!(
            description.len() > 15 && !description.contains('\n'),
            "{key}: {description:?}"
        );
        let examples = schema["examples"]
            .as_array()
            .unwrap_or_else(|| panic!("{key} has no examples"));
        let default = schema.get("default");
        for value in examples.iter().chain(default) {
            assert_eq!(
                violations(schema, value),
                Vec::<String>::new(),
                "{key}: {value}"
            );
        }
    }
}

#[test]
fn annotations_are_about_keys_of_the_types() {
    let schema = schema();
    for (path, _) in annotations() {
        assert!(
            schema
                .pointer(&pointer(path))
                .is_some_and(|it| it["description"].is_string()),
            "{path}"
        );
    }
}

#[test]
fn defaults_are_those_of_the_reader() {
    let written = |key: &str| schema()["properties"][key]["default"].clone();
    let document = |key: &str| {
        let document = json!({"overrides": {}, key: written(key)});
        Document::parse(&document.to_string()).unwrap()
    };
    let empty = Document::parse(r#"{"overrides": {}}"#).unwrap();
    for key in ["availableFeatures", "namespaceFeatures", "imagePullSecret"] {
        assert_eq!(document(key), empty, "{key}");
    }
}

/// Each value of a full document is replaced by values of other types, and each key is removed.
#[test]
fn a_document_that_the_reader_rejects_is_rejected_by_the_schema() {
    let (schema, full) = (schema(), full());
    assert!(loads(&full));
    assert_eq!(violations(&schema, &full), Vec::<String>::new());
    let mut rejected = 0;
    for pointer in pointers(&full) {
        for changed in changes(&full, &pointer) {
            if !loads(&changed) {
                rejected += 1;
                assert!(
                    !violations(&schema, &changed).is_empty(),
                    "{pointer}: {changed}"
                );
            }
        }
    }
    assert!(rejected > 100, "only {rejected} documents were rejected");
}

fn pointers(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => {
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            object.iter().map(|(key, it)| (escaped(key), it)).collect()
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, it)| (index.to_string(), it))
            .collect(),
        _ => Vec::new(),
    };
    let below = inner.into_iter().flat_map(|(key, it)| {
        let below = pointers(it).into_iter();
        below
            .map(move |rest| format!("/{key}{rest}"))
            .collect::<Vec<_>>()
    });
    std::iter::once(String::new()).chain(below).collect()
}

fn changes(full: &Value, pointer: &str) -> Vec<Value> {
    let others = [
        json!(null),
        json!(true),
        json!(1),
        json!("text"),
        json!(""),
        json!([]),
        json!([1]),
        json!({}),
        json!({"x": 1}),
    ];
    let mut changed: Vec<Value> = Vec::new();
    for other in others {
        let mut document = full.clone();
        *document.pointer_mut(pointer).unwrap() = other;
        changed.push(document);
    }
    let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
    let mut document = full.clone();
    if let Some(Value::Object(parent)) = document.pointer_mut(parent)
        && parent.remove(key).is_some()
    {
        changed.push(document);
    }
    changed
}

/// Documents with a null or an additional key load. The schema accepts null for an absent key, and reports unknown keys.
#[rstest]
#[case::only_overrides(json!({"overrides": {}}), &[])]
#[case::schema_key(json!({"$schema": "https://example.com/schema.json", "overrides": {}}), &[])]
#[case::null_means_absent(json!({"overrides": {}, "clusterTrustBundle": null, "namespaceFeatures": {"a": null}}), &[])]
#[case::unknown_key(json!({"overrides": {}, "availableFeature": []}), &["/availableFeature: unknown key"])]
#[case::unknown_key_below(json!({"overrides": {}, "imagePullSecret": {"injct": "always"}}), &["/imagePullSecret/injct: unknown key"])]
#[case::unmountable(
    json!({"overrides": {}, "clusterTrustBundle": {"name": "n", "certWritePath": "p", "volumeMountPath": "m", "volumeName": "v"}}),
    &["/clusterTrustBundle/volumeMountPath: pattern"]
)]
fn what_loads_is_judged(#[case] document: Value, #[case] expected: &[&str]) {
    assert!(loads(&document));
    assert_eq!(violations(&schema(), &document), expected);
}

#[test]
fn every_document_of_the_repository_is_valid() {
    let schema = schema();
    let mut checked = Vec::new();
    for folder in [
        "",
        "docs",
        "scenarios",
        "scenarios/fixtures",
        "scenarios/fixtures/admission",
        "src/policy/admission/tests/example",
    ] {
        for file in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            for document in documents(&path, &text) {
                assert_eq!(
                    violations(&schema, &document),
                    Vec::<String>::new(),
                    "{}",
                    path.display()
                );
                checked.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    for file in [
        "README.md",
        "webhook.md",
        "eu-sovereign.yaml",
        "configuration.json",
    ] {
        assert!(
            checked.iter().any(|it| it == file),
            "no document in {file}: {checked:?}"
        );
    }
}

/// Returns all JSON objects with the required key in any text, and the key `config` of a scenario (a manifest next to it
/// has several documents and no such key).
fn documents(path: &Path, text: &str) -> Vec<Value> {
    if path.extension().is_some_and(|it| it == "yaml") {
        let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        let configurations = all.iter().filter_map(|it| it.get("config").cloned());
        return configurations.collect();
    }
    if path.extension().is_none_or(|it| it != "md" && it != "json") {
        return Vec::new();
    }
    let starts = text.match_indices('{').map(|(start, _)| &text[start..]);
    starts
        .filter_map(|rest| {
            serde_json::Deserializer::from_str(rest)
                .into_iter::<Value>()
                .next()?
                .ok()
        })
        // The schema of scenarios also has a key with this name.
        .filter(|it| {
            it.get("overrides")
                .is_some_and(|it| it.get("description").is_none())
        })
        .collect()
}
