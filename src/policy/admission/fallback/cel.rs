//! Builders of CEL expressions.

use api::Feature;
use serde_json::Value;

use super::super::Configuration;
use super::super::entry::Entry;

/// Returns the operations for a feature, which apply only if the feature is enabled for the Pod.
pub(super) fn guarded(
    configuration: &Configuration,
    feature: Feature,
    list: &str,
) -> Option<String> {
    let key = quote(feature.key());
    let is_available = configuration.available().contains(feature);
    is_available.then(|| format!("!({key} in variables.features) ? [] : {list}"))
}

/// Returns parts with an operator between them; `none` without parts.
pub(super) fn joined(parts: impl Iterator<Item = String>, operator: &str, none: &str) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        none.to_owned()
    } else {
        parts.join(operator)
    }
}

/// Returns a field of the Pod or its Namespace, or an empty value of the same type.
pub(super) fn or_empty(field: &str, empty: &str) -> String {
    format!("has({field}) ? {field} : {empty}")
}

/// Returns an entry of a list of the Pod as a literal.
pub(super) fn literal(entry: &Entry) -> String {
    fn of(value: &Value) -> String {
        match value {
            // CEL does not allow values of several types in one map or list without `dyn`.
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields =
                    fields.map(|(key, value)| format!("{}: dyn({})", quote(key), of(value)));
                format!("{{{}}}", joined(fields, ", ", ""))
            }
            Value::Array(items) => {
                let items = items.iter().map(|it| format!("dyn({})", of(it)));
                format!("[{}]", joined(items, ", ", ""))
            }
            other => other.to_string(),
        }
    }
    of(&serde_json::from_str(entry.json()).unwrap_or_default())
}

pub(super) fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", joined(texts.map(quote), ", ", ""))
}

/// Returns a text as a CEL literal: the escapes of JSON are valid escapes of CEL.
pub(super) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}
