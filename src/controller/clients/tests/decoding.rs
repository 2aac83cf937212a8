//! Tests of decoding responses.

use rstest::rstest;
use serde_json::{Map, Value, json};

use super::*;
use crate::clients::decode::{check, read};

const INSTALLERS: ManagedFields = ManagedFields::IfOwnedBy(|it| {
    (it.name, it.operation, it.subresource) == ("installer", "Update", "scale")
});

fn object(manager: &str) -> Value {
    json!({
        "kind": "ConfigMap",
        "metadata": {
            "name": "a", "generation": 3, "deletionTimestamp": null, "labels": {"fieldsV1": "a label"},
            "managedFields": [
                {"fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}, "manager": manager,
                 "operation": "Update", "subresource": "scale"},
                {"fieldsV1": {"f:data": {}}, "manager": "other", "operation": "Apply"},
            ],
        },
        "data": {"metadata": {"managedFields": [{"fieldsV1": {}}]}, "number": -1.5, "truth": true},
    })
}

fn without(mut object: Value) -> Value {
    for owner in object["metadata"]["managedFields"].as_array_mut().unwrap() {
        owner.as_object_mut().unwrap().remove("fieldsV1");
    }
    object
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
}

fn read_text(value: &Value, owners: ManagedFields) -> Value {
    read(value.to_string().as_bytes(), owners).unwrap()
}

#[test]
fn fields_of_owners_are_left_out_and_nothing_else() {
    let (whole, slim) = (object("us"), without(object("us")));
    assert_eq!(read_text(&whole, ManagedFields::All), whole);
    assert_eq!(read_text(&whole, INSTALLERS), slim);
    let (whole, slim) = (list(&[whole]), list(&[slim]));
    assert_eq!(read_text(&whole, INSTALLERS), slim);
}

/// Each body is smaller than the limit of a response.
#[rstest]
#[case::lists("[", "[],", "[]]")]
#[case::objects("[", r#"{"a":0},"#, "0]")]
#[case::fields(r#"{"metadata":{"managedFields":["#, r#"{"a":{"b":0}},"#, "0]}}")]
fn body_that_would_need_many_times_its_size_is_rejected(
    #[case] start: &str,
    #[case] repeated: &str,
    #[case] end: &str,
    #[values(ManagedFields::All, INSTALLERS)] owners: ManagedFields,
) {
    let body = [start, &repeated.repeat(1_500_000 / repeated.len()), end].concat();
    let result = read(body.as_bytes(), owners);
    assert!(
        matches!(result, Err(CallError::TooManyValues)),
        "{result:?}"
    );
}

/// The text contains punctuation, quotes and escapes.
#[test]
fn objects_of_the_maximum_size_are_decoded() {
    let text = r#"{"a":[",\\\","{{[["]},"#.repeat(50_000);
    let keys = (0..10_000).map(|it| (format!("key-{it:05}"), Value::from("text")));
    let fields = (0..10_000).map(|it| (format!("f:key-{it:05}"), json!({})));
    let (keys, fields): (Map<_, _>, Map<_, _>) = (keys.collect(), fields.collect());
    let large = json!({"data": {"text": text}});
    let many =
        json!({"metadata": {"managedFields": [{"fieldsV1": {"f:data": fields}}]}, "data": keys});
    for object in [large, many] {
        assert_eq!(read_text(&object, ManagedFields::All), object);
    }
}

/// Clients of a runtime add keys until the API server rejects the object, whose size includes the ownership of each key.
#[test]
fn as_many_keys_as_an_api_server_stores_are_decoded_without_their_owners() {
    let names = (0..80_000).map(|it: u32| format!("{it:x}"));
    let fields = names.clone().map(|it| (format!("f:{it}"), json!({})));
    let keys = names.map(|it| (it, Value::from("")));
    let (fields, keys): (Map<_, _>, Map<_, _>) = (fields.collect(), keys.collect());
    let owner = json!({"manager": "installer", "fieldsV1": {"f:data": fields}});
    let whole = json!({"metadata": {"managedFields": [owner]}, "data": keys});
    for owners in [ManagedFields::All, INSTALLERS] {
        assert!(read_text(&whole, owners) == without(whole.clone()));
    }
}

#[test]
fn where_the_manager_owns_something_all_owners_are_as_sent() {
    let mine = object("installer");
    assert_eq!(read_text(&mine, INSTALLERS), mine);
    let among_others = list(&[object("us"), mine]);
    assert_eq!(read_text(&among_others, INSTALLERS), among_others);
}

#[rstest]
#[case::text(json!("text"))]
#[case::list(json!([1, {"metadata": 2}]))]
#[case::no_metadata(json!({"metadata": null, "items": {"a": 1}}))]
#[case::no_owners(json!({"metadata": {"managedFields": [null, 7, "x", {"manager": 1}]}}))]
fn what_has_another_shape_is_read_as_it_is(#[case] strange: Value) {
    assert_eq!(read_text(&strange, INSTALLERS), strange);
}

#[rstest]
#[case::nothing("")]
#[case::broken(r#"{"metadata": {"managedFields": ["#)]
#[case::more(r#"{"a": 1} {"b": 2}"#)]
#[case::too_deep(&"[".repeat(1_500_000))]
fn what_is_not_json_is_refused(#[case] text: &str) {
    for owners in [
        ManagedFields::All,
        ManagedFields::IfOwnedBy(|it| it.name == "us"),
    ] {
        let refused = read(text.as_bytes(), owners);
        assert!(matches!(refused, Err(CallError::NotJson)), "{refused:?}");
    }
    assert!(matches!(check(text.as_bytes()), Err(CallError::NotJson)));
}
