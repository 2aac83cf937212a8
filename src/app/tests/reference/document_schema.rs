//! The JSON Schema of the configuration document, for editors.
//!
//! Keys, types and descriptions are derived from the types that parse the document. This module adds information that the
//! types do not contain: defaults, examples, patterns, and the names of the features. The schema is Draft-07 without
//! references, because the JSON language servers of editors support it completely.
//!
//! Invariant: the schema rejects all documents that [`Document::parse`] rejects. It also rejects documents that load
//! with a warning (unknown keys, a trust bundle that cannot be mounted), because editors show that as a warning.

use api::config::Document;
use api::names::{FIPS_VARIABLE, PULL_SECRET};
use api::{ALL_KEY, Feature};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

/// Pattern of an RFC 1123 label, which is a part of most names.
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Returns the JSON Schema of the configuration document.
pub(super) fn schema() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<Document>();
    let root = schema.ensure_object();
    finish(root);
    root.insert("title".into(), "Configuration of the webhook".into());
    root.insert("required".into(), json!(["overrides"]));
    let mut schema = schema.to_value();
    for (path, additions) in annotations() {
        let target = schema.pointer_mut(&pointer(path));
        if let (Some(Value::Object(target)), Value::Object(additions)) = (target, additions) {
            target.extend(additions);
        }
    }
    schema
}

/// Rejects unknown keys and joins the lines of descriptions, in this schema and all nested schemas.
fn finish(schema: &mut Map<String, Value>) {
    for value in schema.values_mut() {
        if let Value::Object(inner) = value {
            finish(inner);
        }
        for inner in value.as_array_mut().into_iter().flatten() {
            inner.as_object_mut().map(finish);
        }
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    // An optional key has no default value in the schema.
    if matches!(schema.get("default"), Some(Value::Null | Value::String(_))) {
        schema.remove("default");
    }
    // A property may have the name `properties`; a schema also has a type.
    if schema.contains_key("properties") && schema.contains_key("type") {
        schema.insert("additionalProperties".into(), false.into());
    }
}

/// Returns the JSON pointer to the schema of a key such as `a.b[].c`, where `[]` means the items of a list.
fn pointer(path: &str) -> String {
    let key = |key: &str| match key.strip_suffix("[]") {
        Some(list) => format!("/properties/{list}/items"),
        None => format!("/properties/{key}"),
    };
    path.split('.').map(key).collect()
}

/// Returns the annotations of the keys of the document.
fn annotations() -> Vec<(&'static str, Value)> {
    let mut annotations = vec![
        (
            "overrides",
            json!({
                // The key is required, so null is not valid, in contrast to other keys.
                "type": "object",
                "examples": [{"docker.io": "registry.example.com/hub", "replace.me:5000": "mirror.example.com"}],
            }),
        ),
        (
            "availableFeatures",
            json!({
                "default": [],
                "items": feature(None),
                "examples": [Feature::ALL.map(Feature::key)],
            }),
        ),
        (
            "namespaceFeatures",
            json!({
                "default": {},
                "additionalProperties": {"type": ["array", "null"], "items": feature(Some(ALL_KEY))},
                "examples": [{"shop": [ALL_KEY]}],
            }),
        ),
        (
            "fipsVariables",
            json!({
                "default": [FIPS_VARIABLE],
                // Printable ASCII without `=`.
                "items": {"type": "string", "pattern": "^[ -<>-~]+$"},
                "examples": [[FIPS_VARIABLE]],
            }),
        ),
        (
            "optOut",
            json!({
                "default": [Feature::TrustBundle.key()],
                "items": feature(Some(ALL_KEY)),
                "examples": [[Feature::TrustBundle.key()]],
            }),
        ),
        (
            "$schema",
            json!({"examples": ["./rt-bootstrapper-config.schema.json"]}),
        ),
    ];
    annotations.extend(trust_bundle());
    annotations.extend(pull_secret());
    annotations
}

fn trust_bundle() -> [(&'static str, Value); 5] {
    let key = |pattern: String, example: &str| json!({"type": "string", "pattern": pattern, "examples": [example]});
    let name = format!("{LABEL}([.:]{LABEL})*");
    [
        (
            "clusterTrustBundle",
            json!({
                "required": ["name", "certWritePath", "volumeMountPath", "volumeName"],
                "examples": [{
                    "name": "example.com:ctb:1",
                    "certWritePath": "ca-bundle.pem",
                    "volumeMountPath": "/etc/ssl/certs",
                    "volumeName": "rt-bootstrapper-certs",
                }],
            }),
        ),
        (
            "clusterTrustBundle.name",
            key(format!("^{name}$"), "example.com:ctb:1"),
        ),
        (
            "clusterTrustBundle.certWritePath",
            key("^[^/]".to_owned(), "ca-bundle.pem"),
        ),
        (
            "clusterTrustBundle.volumeMountPath",
            key("^/[^:]+$".to_owned(), "/etc/ssl/certs"),
        ),
        (
            "clusterTrustBundle.volumeName",
            key(format!("^{LABEL}$"), "rt-bootstrapper-certs"),
        ),
    ]
}

fn pull_secret() -> [(&'static str, Value); 9] {
    const EXPRESSIONS: [&str; 4] = [
        "imagePullSecret.namespaceSelector.matchExpressions",
        "imagePullSecret.namespaceSelector.matchExpressions[].key",
        "imagePullSecret.namespaceSelector.matchExpressions[].operator",
        "imagePullSecret.namespaceSelector.matchExpressions[].values",
    ];
    let selector = json!({"matchLabels": {"example.com/credentials": "allowed"}});
    let requirement = json!({"key": "team", "operator": "In", "values": ["shop", "billing"]});
    [
        (
            "imagePullSecret",
            json!({"default": {}, "examples": [{"inject": "needed", "namespaceSelector": selector}]}),
        ),
        (
            "imagePullSecret.name",
            json!({"pattern": format!("^{LABEL}([.]{LABEL})*$"), "examples": [PULL_SECRET]}),
        ),
        (
            "imagePullSecret.inject",
            json!({"default": "needed", "examples": ["needed", "always"]}),
        ),
        (
            "imagePullSecret.namespaceSelector",
            json!({"examples": [selector]}),
        ),
        (
            "imagePullSecret.namespaceSelector.matchLabels",
            json!({"examples": [selector["matchLabels"]]}),
        ),
        (
            EXPRESSIONS[0],
            json!({"default": [], "examples": [[requirement]]}),
        ),
        (EXPRESSIONS[1], json!({"examples": [requirement["key"]]})),
        (
            EXPRESSIONS[2],
            json!({"examples": [requirement["operator"]]}),
        ),
        (EXPRESSIONS[3], json!({"examples": [requirement["values"]]})),
    ]
}

/// Returns the schema of a feature by its annotation key, and of the alias if it is allowed. Any other text makes the
/// document invalid.
fn feature(alias: Option<&str>) -> Value {
    let alias = alias.map(|key| json!({"const": key, "description": "Every available feature."}));
    let features = Feature::ALL
        .map(|feature| json!({"const": feature.key(), "description": description(feature)}));
    json!({"type": "string", "oneOf": alias.into_iter().chain(features).collect::<Vec<_>>()})
}

fn description(feature: Feature) -> &'static str {
    match feature {
        Feature::RegistryRewrite => {
            "Replaces the registry in the images of containers, init containers and image volumes."
        }
        Feature::PullSecret => {
            "Adds the pull Secret to imagePullSecrets and copies it to the namespace."
        }
        Feature::TrustBundle => "Mounts the ClusterTrustBundle in containers and init containers.",
        Feature::FipsMode => "Sets the environment variables of `fipsVariables` to `true`.",
        Feature::Landscape => {
            "Sets the environment variable KYMA_LANDSCAPE to the name of the landscape."
        }
    }
}
