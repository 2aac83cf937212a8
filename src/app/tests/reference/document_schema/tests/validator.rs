//! The part of JSON Schema (draft-07) that the schema uses.
//!
//! Invariant: an unsupported keyword panics, so that no keyword is ignored.

use regex::Regex;
use serde_json::Value;

/// Returns the positions in `value` that `schema` rejects, as JSON pointers with the keyword; empty if the value is valid.
pub(super) fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    for (keyword, expected) in schema.as_object().unwrap() {
        let is_valid = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "examples" => true,
            "type" => is_of(expected, value),
            "const" => expected == value,
            "oneOf" => {
                let matching = |it: &&Value| violations(it, value).is_empty();
                expected.as_array().unwrap().iter().filter(matching).count() == 1
            }
            "pattern" => {
                let pattern = Regex::new(expected.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "required" => value.as_object().is_none_or(|object| {
                let mut keys = expected.as_array().unwrap().iter();
                keys.all(|key| object.contains_key(key.as_str().unwrap()))
            }),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(expected, item, &format!("{at}/{index}"), found);
                }
                true
            }
            "properties" | "additionalProperties" => {
                check_keys(schema, keyword, value, (at, found));
                true
            }
            other => panic!("{other} is not implemented"),
        };
        if !is_valid {
            found.push(format!("{at}: {keyword}"));
        }
    }
}

fn check_keys(schema: &Value, keyword: &str, value: &Value, (at, found): (&str, &mut Vec<String>)) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{key}");
        let named = schema.get("properties").and_then(|it| it.get(key));
        match (keyword, named) {
            ("properties", Some(named)) => check(named, value, &at, found),
            ("additionalProperties", None) => match &schema[keyword] {
                Value::Bool(false) => found.push(format!("{at}: unknown key")),
                others => check(others, value, &at, found),
            },
            _ => {}
        }
    }
}

fn is_of(types: &Value, value: &Value) -> bool {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match types {
        Value::Array(types) => types.iter().any(|it| it == name),
        one => one == name,
    }
}
