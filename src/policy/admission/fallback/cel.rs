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

/// Returns a map with these entries. `none` is the entry of an empty map, which determines its type.
pub(super) fn map(entries: impl Iterator<Item = String>, none: &str) -> String {
    let entries: Vec<String> = entries.collect();
    let none = entries.is_empty().then(|| none.to_owned());
    let entries: Vec<String> = entries.into_iter().chain(none).collect();
    format!("{{{}}}", entries.join(", "))
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
                format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
            }
            Value::Array(items) => {
                let items = items.iter().map(|it| format!("dyn({})", of(it)));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
            other => other.to_string(),
        }
    }
    of(&serde_json::from_str(entry.json()).unwrap_or_default())
}

pub(super) fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", texts.map(quote).collect::<Vec<_>>().join(", "))
}

/// Returns a text as a CEL literal: the escapes of JSON are valid escapes of CEL.
pub(super) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}
