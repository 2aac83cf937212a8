//! Compares a Pod with the expectation of a scenario, and changes whole documents.
//!
//! Invariant: only expected fields are compared. Every difference contains its path and both values.

use serde_json::Value;

/// Returns the expected fields that the actual value does not have; empty if it has all of them.
///
/// The actual value may have additional fields. Items of a list must be in the expected order, with other items between them.
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    found
}

fn compare(path: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(fields), Value::Object(actual)) => {
            for (key, expected) in fields {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let actual = actual.get(key).unwrap_or(&Value::Null);
                compare(&path, expected, actual, found);
            }
        }
        (Value::Array(items), Value::Array(actual)) if items.len() == actual.len() => {
            for (number, (expected, actual)) in items.iter().zip(actual).enumerate() {
                compare(&format!("{path}[{number}]"), expected, actual, found);
            }
        }
        (Value::Array(items), Value::Array(actual)) => in_order(path, items, actual, found),
        _ if expected == actual => {}
        (_, Value::Null) => found.push(format!("{path}: is absent, expected {expected}")),
        _ => found.push(format!("{path}: is {actual}, expected {expected}")),
    }
}

fn in_order(path: &str, items: &[Value], actual: &[Value], found: &mut Vec<String>) {
    let mut rest = actual.iter();
    for (number, expected) in items.iter().enumerate() {
        if !rest.any(|actual| differences(expected, actual).is_empty()) {
            found.push(format!("{path}[{number}]: nothing there is {expected}"));
            return;
        }
    }
}

/// Applies a function to a value and recursively to everything in it.
pub fn walk(value: &mut Value, change: &impl Fn(&mut Value)) {
    change(value);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|it| walk(it, change)),
        Value::Object(fields) => fields.values_mut().for_each(|it| walk(it, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::more_fields(json!({"a": 1}), json!({"a": 1, "b": 2}), &[])]
    #[case::another_value(json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), &["a.b: is 2, expected 1"])]
    #[case::an_absent_field(json!({"a": {"b": 1}}), json!({"a": {}}), &["a.b: is absent, expected 1"])]
    #[case::an_absent_branch(json!({"a": {"b": 1}}), json!({}), &[r#"a: is absent, expected {"b":1}"#])]
    #[case::items_between(json!([1, 3]), json!([1, 2, 3]), &[])]
    #[case::another_order(json!([3, 1]), json!([1, 2, 3]), &["[1]: nothing there is 1"])]
    #[case::one_item_for_two(json!([1, 1]), json!([1, 2, 3]), &["[1]: nothing there is 1"])]
    #[case::as_many_items(json!([{"a": 1}]), json!([{"a": 2}]), &["[0].a: is 2, expected 1"])]
    #[case::no_list(json!([1]), json!("x"), &[r#": is "x", expected [1]"#])]
    fn says_what_is_missing(
        #[case] expected: Value,
        #[case] actual: Value,
        #[case] found: &[&str],
    ) {
        assert_eq!(differences(&expected, &actual), found);
    }
}
