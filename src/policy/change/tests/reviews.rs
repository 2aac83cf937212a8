//! Tests of bodies that are not a review, and of reviews that cannot be read: each has its own error.

use rstest::rstest;
use serde_json::{Map, Value, json};
use watcher_types::BODY_BYTES;

use super::case::{public, review, said, update};
use crate::change::*;

fn good() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "a",
            "namespace": "shop",
            "operation": "CREATE",
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}},
            "oldObject": null,
        },
    })
}

/// Returns the valid review with one value replaced or added.
fn with(parent: &str, key: &str, value: Value) -> String {
    let mut review = good();
    review.pointer_mut(parent).unwrap()[key] = value;
    review.to_string()
}

fn error(body: &[u8]) -> &'static str {
    match decide(&public(), body).unwrap_err() {
        ReviewError::Encoding(_) => "Encoding",
        ReviewError::Shape(_) => "Shape",
        ReviewError::Kind { .. } => "Kind",
        ReviewError::NoRequest => "NoRequest",
        ReviewError::NoUid => "NoUid",
        ReviewError::UidTooLong => "UidTooLong",
        ReviewError::NoReview => "limits of the webhook",
    }
}

// The public watcher responds to these bodies with 200 and an empty body.
#[rstest]
#[case::empty("Shape", "")]
#[case::no_json("Shape", "hello")]
#[case::yaml("Shape", "request: {uid: u-1}")]
#[case::a_list("Shape", "[]")]
#[case::cut_off("Shape", &good().to_string()[..200])]
#[case::two_documents("Shape", &format!("{0}{0}", good()))]
#[case::request_is_a_number("Shape", &with("", "request", json!(7)))]
#[case::uid_is_a_number("Shape", &with("/request", "uid", json!(7)))]
#[case::operation_is_a_list("Shape", &with("/request", "operation", json!(["CREATE"])))]
#[case::dry_run_is_a_text("Shape", &with("/request", "dryRun", json!("true")))]
#[case::uid_twice("Shape", &good().to_string().replace("\"uid\":", "\"uid\":\"u-0\",\"uid\":"))]
#[case::object_twice("Shape", &good().to_string().replace("\"object\":", "\"object\":{},\"object\":"))]
#[case::half_a_surrogate_pair("Shape", &good().to_string().replace("u-1", "\\ud800"))]
#[case::deep_request("Shape", &format!("{{\"request\":{}", "[".repeat(10_000)))]
#[case::another_kind("Kind", &with("", "kind", json!("ConversionReview")))]
#[case::another_version("Kind", &with("", "apiVersion", json!("admission.k8s.io/v1beta1")))]
#[case::a_long_kind("Kind", &with("", "kind", json!("x".repeat(10_000))))]
#[case::no_request("NoRequest", "{}")]
#[case::null_request("NoRequest", &with("", "request", Value::Null))]
#[case::no_uid("NoUid", r#"{"request":{}}"#)]
#[case::null_uid("NoUid", &with("/request", "uid", Value::Null))]
#[case::empty_uid("NoUid", &with("/request", "uid", json!("")))]
#[case::long_uid("UidTooLong", &with("/request", "uid", json!("u".repeat(129))))]
#[case::long_uid_in_bytes("UidTooLong", &with("/request", "uid", json!("ü".repeat(65))))]
fn body_that_is_not_an_admission_review_is_rejected(#[case] expected: &str, #[case] body: &str) {
    assert_eq!(error(body.as_bytes()), expected);
}

#[test]
fn uid_of_the_limit_is_accepted() {
    let uid = "u".repeat(128);
    let verdict = decide(&public(), with("/request", "uid", json!(uid)).as_bytes());
    assert_eq!(verdict.unwrap().uid, uid);
}

#[test]
fn body_that_is_not_utf_8_is_rejected() {
    let mut body = good().to_string().into_bytes();
    let at = body.iter().position(|byte| *byte == b'C').unwrap();
    body[at] = 0xff;
    assert_eq!(error(&body), "Encoding");
}

#[test]
fn an_error_repeats_64_characters_of_a_review() {
    let body = with("", "kind", json!("x".repeat(10_000)));
    let text = decide(&public(), body.as_bytes()).unwrap_err().to_string();
    assert!(text.len() < 200, "{text}");
}

#[rstest]
#[case::both(Some("admission.k8s.io/v1"), Some("AdmissionReview"))]
#[case::no_version(None, Some("AdmissionReview"))]
#[case::no_kind(Some("admission.k8s.io/v1"), None)]
#[case::neither(None, None)]
fn review_without_kind_is_accepted_and_its_answer_has_none(
    #[case] api_version: Option<&str>,
    #[case] kind: Option<&str>,
) {
    let mut review = good();
    review["apiVersion"] = json!(api_version);
    review["kind"] = json!(kind);
    review["newField"] = json!({"a": [1]});
    review["request"]["newField"] = json!({"a": [1]});
    let verdict = decide(&public(), review.to_string().as_bytes()).unwrap();
    assert_eq!((verdict.api_version, verdict.kind), (api_version, kind));
    assert!(matches!(verdict.outcome, Outcome::Send(_)));
}

const CONFIG_MAP: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}"#;

// The public watcher sends an event with an empty name.
#[rstest]
#[case::null_on_create("CREATE", "null", "null", "ObjectMissing: object: missing")]
#[case::null_on_update("UPDATE", "null", CONFIG_MAP, "ObjectMissing: object: missing")]
#[case::null_on_delete("DELETE", CONFIG_MAP, "null", "ObjectMissing: oldObject: missing")]
#[case::text("CREATE", r#""pod""#, "null", "InvalidObject: object: malformed")]
#[case::list("UPDATE", "[]", CONFIG_MAP, "InvalidObject: object: malformed")]
#[case::list_on_delete("DELETE", "null", "[]", "InvalidObject: oldObject: malformed")]
#[case::surrogate(
    "CREATE",
    r#"{"\ud800":1}"#,
    "null",
    "InvalidObject: object: malformed"
)]
#[case::metadata(
    "CREATE",
    r#"{"metadata":[]}"#,
    "null",
    "InvalidObject: object.metadata: malformed"
)]
#[case::name(
    "CREATE",
    r#"{"metadata":{"name":7}}"#,
    "null",
    "InvalidObject: object.metadata.name: malformed"
)]
#[case::name_no_unicode(
    "CREATE",
    r#"{"metadata":{"name":"\ud800"}}"#,
    "null",
    "InvalidObject: object.metadata.name: malformed"
)]
#[case::namespace(
    "DELETE",
    "null",
    r#"{"metadata":{"name":"a","namespace":{}}}"#,
    "InvalidObject: oldObject.metadata.namespace: malformed"
)]
#[case::version(
    "CREATE",
    r#"{"apiVersion":1,"metadata":{"name":"a"}}"#,
    "null",
    "InvalidObject: object.apiVersion: malformed"
)]
#[case::kind(
    "CREATE",
    r#"{"apiVersion":"v1","kind":{},"metadata":{"name":"a"}}"#,
    "null",
    "InvalidObject: object.kind: malformed"
)]
#[case::generate_name(
    "CREATE",
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}"#,
    "null",
    "NameMissing: object: name is missing, in the request too"
)]
#[case::empty_name(
    "DELETE",
    "null",
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":""}}"#,
    "NameMissing: oldObject: name is missing, in the request too"
)]
#[case::null_metadata(
    "CREATE",
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":null}"#,
    "null",
    "NameMissing: object: name is missing, in the request too"
)]
#[case::no_kind(
    "CREATE",
    r#"{"apiVersion":"v1","metadata":{"name":"a"}}"#,
    "null",
    "KindMissing: object: version and kind are missing, in the request too"
)]
#[case::no_version(
    "CREATE",
    r#"{"kind":"ConfigMap","metadata":{"name":"a"}}"#,
    "null",
    "KindMissing: object: version and kind are missing, in the request too"
)]
#[case::two_slashes(
    "CREATE",
    r#"{"apiVersion":"a/b/c","kind":"X","metadata":{"name":"a"}}"#,
    "null",
    "KindMissing: object: version and kind are missing, in the request too"
)]
#[case::no_operation(
    "",
    CONFIG_MAP,
    CONFIG_MAP,
    "UnknownOperation: operation: expected CREATE, UPDATE, DELETE or CONNECT"
)]
#[case::another_operation(
    "PATCH",
    CONFIG_MAP,
    CONFIG_MAP,
    "UnknownOperation: operation: expected CREATE, UPDATE, DELETE or CONNECT"
)]
#[case::lower_case(
    "update",
    CONFIG_MAP,
    CONFIG_MAP,
    "UnknownOperation: operation: expected CREATE, UPDATE, DELETE or CONNECT"
)]
fn a_change_that_cannot_become_an_event_is_allowed_with_the_reason(
    #[case] operation: &str,
    #[case] object: &str,
    #[case] old: &str,
    #[case] expected: &str,
) {
    let request = Map::from_iter([("operation".to_owned(), json!(operation))]);
    let verdict = decide(&public(), review(&request, object, old).as_bytes()).unwrap();
    assert_eq!(verdict.uid, "u-1");
    assert_eq!(said(&verdict.outcome), Err(expected.to_owned()));
    let Outcome::Skip(reason) = verdict.outcome else {
        unreachable!()
    };
    // An object without a name is not stored.
    let is_missed = !matches!(reason, SkipReason::NameMissing { .. });
    assert_eq!(reason.is_fault(), is_missed, "{expected}");
}

#[rstest]
#[case::null("null")]
#[case::text(r#""pod""#)]
#[case::surrogate(r#"{"\ud800":1}"#)]
#[case::metadata(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}"#)]
fn update_without_a_readable_former_state_is_sent(#[case] old: &str) {
    assert!(matches!(update(CONFIG_MAP, old), Outcome::Send(_)));
}

#[test]
fn a_name_that_no_listener_would_take_is_not_sent() {
    let fits = "n".repeat(1_000);
    assert!(matches!(update(&named(&fits), "null"), Outcome::Send(_)));
    let too_long = "\u{1}".repeat(BODY_BYTES / 8);
    let outcome = update(&named(&too_long), "null");
    assert!(matches!(
        outcome,
        Outcome::Skip(SkipReason::NameTooLong { .. })
    ));
}

#[test]
fn what_is_sent_is_a_body_that_a_listener_takes() {
    let longest = "\u{1}".repeat(BODY_BYTES / 8 - "v1ConfigMap".len());
    let Outcome::Send(event) = update(&named(&longest), "null") else {
        panic!("just short enough");
    };
    assert!(serde_json::to_vec(&event).unwrap().len() <= BODY_BYTES);
}

fn named(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

#[test]
fn nesting_of_10_000_levels_is_survived() {
    let deep = |leaf: &str| format!("{}{leaf}{}", "[".repeat(10_000), "]".repeat(10_000));
    let object = |leaf: &str| {
        format!(
            r#"{{"apiVersion":"x/v1","kind":"X","metadata":{{"name":"a"}},"spec":{}}}"#,
            deep(leaf)
        )
    };
    let outcome = update(&object("1"), &object("1"));
    assert!(matches!(
        outcome,
        Outcome::Skip(SkipReason::NoChange { .. })
    ));
    assert!(matches!(
        update(&object("1"), &object("2")),
        Outcome::Send(_)
    ));
    // The values are equal, but nested too deeply for a complete comparison.
    assert!(matches!(
        update(&object("1"), &object("1.0")),
        Outcome::Send(_)
    ));
    let request = Map::from_iter([("operation".to_owned(), json!("CREATE"))]);
    let body = review(&request, &deep("1"), "null");
    let outcome = decide(&public(), body.as_bytes()).unwrap().outcome;
    assert!(matches!(
        outcome,
        Outcome::Skip(SkipReason::InvalidObject { .. })
    ));
}

#[rstest]
#[case::the_last_spec_counts(
    r#"{"apiVersion":"x/v1","kind":"X","metadata":{"name":"a"},"spec":{"a":1},"spec":{"a":2}}"#,
    false
)]
#[case::not_the_first(
    r#"{"apiVersion":"x/v1","kind":"X","metadata":{"name":"a"},"spec":{"a":2},"spec":{"a":1}}"#,
    true
)]
#[case::within_the_spec(
    r#"{"apiVersion":"x/v1","kind":"X","metadata":{"name":"a"},"spec":{"a":1,"a":3,"a":2}}"#,
    false
)]
fn of_a_key_that_is_there_twice_the_last_counts(#[case] object: &str, #[case] sent: bool) {
    let old = r#"{"apiVersion":"x/v1","kind":"X","metadata":{"name":"a"},"spec":{"a":2}}"#;
    assert_eq!(matches!(update(object, old), Outcome::Send(_)), sent);
}

#[test]
fn every_skip_reason_has_a_code_and_a_text_of_its_own() {
    let watched = watcher_types::NamespacedName::default();
    let gvk = watcher_types::Gvk::default();
    let side = Side::Object;
    let all = [
        SkipReason::NoChange {
            watched: watched.clone(),
        },
        SkipReason::InvalidSubresource {
            watched: watched.clone(),
        },
        SkipReason::NotWatched { watched },
        SkipReason::ConnectNotSupported { gvk },
        SkipReason::DryRun,
        SkipReason::UnknownOperation,
        SkipReason::ObjectMissing { side },
        SkipReason::InvalidObject { side, part: "" },
        SkipReason::NameMissing { side },
        SkipReason::KindMissing { side },
        SkipReason::NameTooLong { bytes: 1 },
    ];
    for (index, silence) in all.iter().enumerate() {
        for other in &all[..index] {
            assert_ne!(other.code(), silence.code());
            assert_ne!(other.to_string(), silence.to_string());
        }
    }
}
