//! Tests of metadata that clients may write.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

type NamespaceMetadata = StoredMetadata<Namespace, BTreeMap<String, String>>;

fn managed(entries: &Value) -> ManagedFields {
    let text = json!({"metadata": {"name": "shop", "managedFields": entries}}).to_string();
    let read: NamespaceMetadata = serde_json::from_str(&text).unwrap();
    assert_eq!(read.metadata.object.name.as_deref(), Some("shop"));
    read.metadata.managed
}

fn entry(time: &Value, metadata: &Value) -> Value {
    json!({
        "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": metadata},
    })
}

fn opt_in() -> Value {
    json!({"f:annotations": {".": {}, "f:rt-cfg.kyma-project.io/all": {}}})
}

#[test]
fn the_last_write_of_each_map_counts() {
    let (first, last) = (json!("2026-01-01T00:00:00Z"), json!("2026-01-02T00:00:00Z"));
    let read = managed(&json!([
        entry(&last, &opt_in()),
        entry(&first, &opt_in()),
        entry(&first, &json!({"f:labels": {"f:team": {}}})),
        entry(&last, &json!({"f:labels": {}, "f:annotations": {"f:other": {}}})),
        {"manager": api::names::SECRET_MANAGER},
    ]));
    let expected = ManagedFields {
        annotated: "2026-01-02T00:00:00Z".parse().ok(),
        labelled: "2026-01-01T00:00:00Z".parse().ok(),
        has_copy_manager: true,
    };
    assert_eq!(read, expected);
}

/// The API server stores each of these values.
#[rstest]
#[case::later_than_the_last_time_that_can_be_computed_with(json!([entry(&json!("9999-12-31T23:59:59Z"), &opt_in())]))]
#[case::no_time(json!([entry(&json!(null), &opt_in())]))]
#[case::no_fields(json!([{"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": null}]))]
#[case::null_for_a_map(json!([entry(&json!("2026-01-01T00:00:00Z"), &json!({"f:annotations": null}))]))]
#[case::null_for_metadata(json!([entry(&json!("2026-01-01T00:00:00Z"), &json!(null))]))]
#[case::no_entries(json!([]))]
#[case::null(json!(null))]
fn invalid_managed_fields_are_ignored(#[case] entries: Value) {
    assert_eq!(managed(&entries), ManagedFields::default());
}

#[test]
fn no_field_is_required() {
    for text in ["{}", r#"{"metadata": {}}"#] {
        let read: NamespaceMetadata = serde_json::from_str(text).unwrap();
        assert!(read.metadata.labels.is_none());
        assert!(!read.metadata.terminating);
    }
}
