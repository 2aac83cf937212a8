//! Compares a value with an expected one, and changes whole documents.
//!
//! Every difference contains its path and both values.

use serde_json::{Map, Value};

/// What the actual value may have in addition to the expected one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    /// Fields and, between the expected items of a list, other items.
    Any,
    /// Fields that are not lists.
    Fields,
    Nothing,
}

/// Returns the expected fields that the actual value does not have; empty if it has all of them.
///
/// The actual value may have additional fields. Items of a list must be in the expected order, with other items between them.
/// An empty list is expected to have no items, or to be absent.
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    compared(expected, actual, Extra::Any)
}

/// Returns the differences between a written and a stored object, without the fields that an API server adds: it adds no list and
/// no item of a list.
pub fn changes(written: &Value, stored: &Value) -> Vec<String> {
    compared(written, stored, Extra::Fields)
}

/// Returns all differences, including fields and items that only the actual value has.
pub fn all_differences(expected: &Value, actual: &Value) -> Vec<String> {
    compared(expected, actual, Extra::Nothing)
}

fn compared(expected: &Value, actual: &Value, extra: Extra) -> Vec<String> {
    let mut found = Vec::new();
    compare("", (expected, actual), extra, &mut found);
    found
}

fn compare(path: &str, values: (&Value, &Value), extra: Extra, found: &mut Vec<String>) {
    match values {
        (Value::Object(expected), Value::Object(actual)) => {
            compare_fields(path, (expected, actual), extra, found);
        }
        (Value::Array(items), Value::Array(actual)) if items.len() == actual.len() => {
            for (number, pair) in items.iter().zip(actual).enumerate() {
                compare(&format!("{path}[{number}]"), pair, extra, found);
            }
        }
        (Value::Array(items), Value::Array(actual)) if extra == Extra::Any && !items.is_empty() => {
            in_order(path, items, actual, found);
        }
        // An API server stores no empty list.
        (Value::Array(items), Value::Null) if extra != Extra::Nothing && items.is_empty() => {}
        // Nor most other empty values.
        (Value::String(text), Value::Null) if extra == Extra::Fields && text.is_empty() => {}
        (Value::Bool(false), Value::Null) if extra == Extra::Fields => {}
        (expected, actual) if expected == actual => {}
        (expected, Value::Null) => found.push(format!("{path}: is absent, expected {expected}")),
        (expected, actual) => found.push(format!("{path}: is {actual}, expected {expected}")),
    }
}

fn compare_fields(
    path: &str,
    (expected, actual): (&Map<String, Value>, &Map<String, Value>),
    extra: Extra,
    found: &mut Vec<String>,
) {
    let path_of = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    for (key, expected) in expected {
        let actual = actual.get(key).unwrap_or(&Value::Null);
        compare(&path_of(key), (expected, actual), extra, found);
    }
    for (key, actual) in actual
        .iter()
        .filter(|(key, _)| !expected.contains_key(*key))
    {
        let is_allowed = match extra {
            Extra::Any => true,
            Extra::Fields => !actual.is_array(),
            Extra::Nothing => actual.is_null(),
        };
        if !is_allowed {
            found.push(format!(
                "{}: is {actual}, expected no such field",
                path_of(key)
            ));
        }
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

    #[rstest]
    #[case::no_list_as_expected(json!({"a": []}), json!({}), &[])]
    #[case::items_although_none_are_expected(json!({"a": []}), json!({"a": [1]}), &["a: is [1], expected []"])]
    fn empty_list_is_expected_to_have_no_items(
        #[case] expected: Value,
        #[case] actual: Value,
        #[case] found: &[&str],
    ) {
        assert_eq!(differences(&expected, &actual), found);
    }

    #[rstest]
    #[case::a_default(json!({"a": 1}), json!({"a": 1, "b": "c"}), &[])]
    #[case::an_empty_list_that_is_not_stored(json!({"a": []}), json!({}), &[])]
    #[case::another_value(json!({"a": [{"b": 1}]}), json!({"a": [{"b": 2}]}), &["a[0].b: is 2, expected 1"])]
    #[case::a_list(json!({"a": [{}]}), json!({"a": [{"b": [1]}]}), &["a[0].b: is [1], expected no such field"])]
    #[case::an_item(json!({"a": [1]}), json!({"a": [1, 2]}), &["a: is [1,2], expected [1]"])]
    fn change_is_more_than_a_default(
        #[case] written: Value,
        #[case] stored: Value,
        #[case] found: &[&str],
    ) {
        assert_eq!(changes(&written, &stored), found);
    }

    #[rstest]
    #[case::null(json!({}), json!({"a": null}), &[])]
    #[case::a_field(json!({}), json!({"a": {"b": 1}}), &[r#"a: is {"b":1}, expected no such field"#])]
    #[case::an_empty_list(json!({"a": []}), json!({}), &["a: is absent, expected []"])]
    #[case::an_item(json!({"a": ["b"]}), json!({"a": ["b", "c"]}), &[r#"a: is ["b","c"], expected ["b"]"#])]
    fn every_difference_counts(
        #[case] expected: Value,
        #[case] actual: Value,
        #[case] found: &[&str],
    ) {
        assert_eq!(all_differences(&expected, &actual), found);
    }
}
