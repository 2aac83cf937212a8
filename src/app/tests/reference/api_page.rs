//! Page `api`: the custom resources, their conditions and reasons, the configuration document, labels and annotations.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use policy::sync::status::{Reason, VariantArray as _};
use serde_json::Value;

use super::document_schema::schema;
use super::{code, heading, table};

/// Source files with constants of keys.
const SOURCES: [&str; 5] = [
    include_str!("../../../api/names.rs"),
    include_str!("../../../api/kcp.rs"),
    include_str!("../../../api/bootstrapper.rs"),
    include_str!("../../../api/rollout.rs"),
    include_str!("../../../api/watcher.rs"),
];

/// Returns the page.
pub(super) fn page() -> String {
    let about = "The custom resources `RuntimeBootstrapper`, `RuntimeBootstrapperRollout` and `Watcher` on KCP, the configuration document of the webhook, \
                 and the labels and annotations of all. The definitions are printed by `runtime-bootstrapper crds --watchers`, the JSON Schema of the document by \
                 `runtime-bootstrapper schema`.";
    [
        heading("API", about),
        custom_resource(&api::bootstrapper::crd()),
        conditions(),
        custom_resource(&api::rollout::crd()),
        custom_resource(&api::watcher::crd()),
        configuration(),
        features(),
        keys(),
    ]
    .concat()
}

fn custom_resource(definition: &CustomResourceDefinition) -> String {
    let definition = serde_json::to_value(definition).unwrap();
    let text = |pointer: &str| {
        definition
            .pointer(pointer)
            .unwrap()
            .as_str()
            .unwrap()
            .to_owned()
    };
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut rows = Vec::new();
    fields(schema, "", &mut rows);
    let short_name = definition.pointer("/spec/names/shortNames/0");
    let short_name = short_name.and_then(Value::as_str);
    let short_name = short_name.map(|it| format!(", short name `{it}`"));
    format!(
        "\n## {}\n\n`{}/{}`{}. {}\n{}",
        text("/spec/names/kind"),
        text("/spec/group"),
        version["name"].as_str().unwrap(),
        short_name.unwrap_or_default(),
        described(schema),
        table(&["field", "type", "default", "description"], &rows),
    )
}

fn configuration() -> String {
    let schema = schema();
    let mut rows = Vec::new();
    fields(&schema, "", &mut rows);
    format!(
        "\n## Configuration document\n\n{} How to create it: [webhook.md](../webhook.md#configuration-document).\n{}",
        described(&schema),
        table(&["key", "type", "default", "description"], &rows),
    )
}

/// Adds the fields of a schema with their nested fields.
fn fields(schema: &Value, path: &str, rows: &mut Vec<Vec<String>>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let default = field
            .get("default")
            .map(ToString::to_string)
            .unwrap_or_default();
        let default = if required.contains(&Value::from(key.as_str())) && default.is_empty() {
            "required".to_owned()
        } else {
            code(&default)
        };
        rows.push(vec![code(&path), kind(field), default, described(field)]);
        fields(field, &path, rows);
        fields(&field["items"], &format!("{path}[]"), rows);
    }
}

fn described(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.replace('\n', " ").trim_end().to_owned()
}

/// Returns the type with its restrictions.
fn kind(field: &Value) -> String {
    let choices = values(field);
    if !choices.is_empty() {
        return choices.join(", ");
    }
    let mut text = match &field["type"] {
        Value::Array(types) => types.iter().find(|it| *it != "null").unwrap(),
        one => one,
    }
    .as_str()
    .unwrap_or("any")
    .to_owned();
    if text == "array" {
        text = format!("list of {}", kind(&field["items"]));
    }
    if let Some(value) = field
        .get("additionalProperties")
        .filter(|it| it.is_object())
    {
        text = format!("map of {}", kind(value));
    }
    if let Some(format) = field["format"].as_str() {
        text.extend([format!(" ({format})")]);
    }
    match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) => text.extend([format!(", {least} to {most}")]),
        (Some(least), None) => text.extend([format!(", at least {least}")]),
        _ => {}
    }
    text
}

/// Returns the values of an enumeration. Values of lists of features are in a separate table.
fn values(field: &Value) -> Vec<String> {
    let one_of = field["oneOf"].as_array().into_iter().flatten();
    let texts: Vec<&str> = one_of
        .filter_map(|it| it["const"].as_str())
        .chain(
            field["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        )
        .collect();
    if texts.contains(&api::Feature::RegistryRewrite.key()) {
        return vec!["feature".to_owned()];
    }
    texts.into_iter().map(code).collect()
}

fn conditions() -> String {
    let found = constants();
    let rows: Vec<Vec<String>> = found
        .iter()
        .filter_map(|it| {
            let of_others = [
                api::rollout::COMPLETED,
                api::rollout::STOPPED,
                api::watcher::VIRTUAL_SERVICE,
                api::watcher::RUNTIMES_CONFIGURED,
            ];
            let about = it.about.strip_prefix("Condition: ")?;
            let is_other = of_others.contains(&&*it.value);
            (!is_other).then(|| vec![code(&it.value), sentence(about)])
        })
        .collect();
    assert_eq!(
        rows.len(),
        6,
        "the constants of conditions begin with `Condition: `"
    );
    let reasons: Vec<String> = Reason::VARIANTS.iter().map(|it| code(it.name())).collect();
    format!(
        "\n### Conditions\n{}\nReasons: {}. Their meanings are in [controller.md](../controller.md).\n",
        table(&["condition", "true when"], &rows),
        reasons.join(", "),
    )
}

fn features() -> String {
    let schema = schema();
    let listed = schema.pointer("/properties/namespaceFeatures/additionalProperties/items/oneOf");
    let rows: Vec<Vec<String>> = listed
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(|it| vec![code(it["const"].as_str().unwrap()), described(it)])
        .collect();
    format!(
        "\n## Features\n\nAnnotations of Namespaces and Pods, and values of the lists of features in the configuration document. \
         `all` is not a value of `availableFeatures`.\n{}",
        table(&["feature", "effect"], &rows),
    )
}

fn keys() -> String {
    let found = constants();
    let values: BTreeMap<&str, &str> = found
        .iter()
        .map(|it| (it.name.as_str(), it.value.as_str()))
        .collect();
    let is_key = |it: &&Constant| {
        let about = it.about.to_lowercase();
        let domain = it.value.split('/').next().unwrap_or_default();
        it.value.contains('/')
            && domain.contains('.')
            && ["label", "annotation", "finalizer"]
                .iter()
                .any(|word| about.contains(word))
    };
    let rows: Vec<Vec<String>> = found
        .iter()
        .filter(is_key)
        .map(|it| vec![code(&it.value), resolved(&it.about, &values)])
        .collect();
    assert!(rows.len() > 10, "{rows:?}");
    format!(
        "\n## Labels, annotations and finalizers\n{}",
        table(&["key", "meaning"], &rows)
    )
}

/// Returns a text in which links to constants are replaced by their values.
fn resolved(about: &str, values: &BTreeMap<&str, &str>) -> String {
    let mut text = about.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("[`{name}`]"), &code(value));
    }
    assert!(
        !text.contains("[`"),
        "a link that is no constant of these files: {text}"
    );
    text
}

/// A text constant with its documentation.
struct Constant {
    name: String,
    value: String,
    about: String,
}

/// Returns the text constants of [`SOURCES`].
fn constants() -> Vec<Constant> {
    let mut found = Vec::new();
    for source in SOURCES {
        let mut about = Vec::new();
        // The value of a long constant is on the next line.
        for line in source.replace("=\n    ", "= ").lines() {
            if let Some(text) = line.strip_prefix("/// ") {
                about.push(text.to_owned());
            } else {
                found.extend(constant(line, &about.join(" ")));
                about.clear();
            }
        }
    }
    assert!(found.len() > 20, "the form of the constants has changed");
    found
}

fn constant(line: &str, about: &str) -> Option<Constant> {
    let (name, value) = line.strip_prefix("pub const ")?.split_once(": &str = \"")?;
    Some(Constant {
        name: name.to_owned(),
        value: value.strip_suffix("\";")?.to_owned(),
        about: about.to_owned(),
    })
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}
