//! Tests of bodies that are not a review, and of reviews of other resources.

use rstest::rstest;
use serde_json::{Value, json};

use crate::admission::review::{Operation, ReviewError, Subject, parse};

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "object": {"spec": {"containers": [{"name": "a", "image": "nginx"}]}},
        },
    })
}

fn with(pointer: &str, value: Value) -> String {
    let mut review = review();
    *review.pointer_mut(pointer).unwrap() = value;
    review.to_string()
}

#[rstest]
#[case::empty(b"".to_vec())]
#[case::no_json(b"hello".to_vec())]
#[case::another_shape(b"[]".to_vec())]
#[case::truncated(review().to_string().into_bytes()[..200].to_vec())]
#[case::two_documents(format!("{}{}", review(), review()).into_bytes())]
#[case::invalid_utf8(with("/request/uid", json!("\u{1}")).replace("\\u0001", "\u{fffd}").into_bytes().iter().map(|b| if *b == 0xbf { 0xff } else { *b }).collect())]
#[case::wrong_kind(with("/kind", json!("ConversionReview")).into_bytes())]
#[case::wrong_version(with("/apiVersion", json!("admission.k8s.io/v1beta1")).into_bytes())]
#[case::no_request(with("/request", Value::Null).into_bytes())]
#[case::request_of_another_type(with("/request", json!(7)).into_bytes())]
#[case::empty_uid(with("/request/uid", json!("")).into_bytes())]
#[case::uid_of_another_type(with("/request/uid", json!(7)).into_bytes())]
#[case::duplicate_uid(review().to_string().replace("\"uid\":", "\"uid\":\"u-0\",\"uid\":").into_bytes())]
fn is_no_review(#[case] body: Vec<u8>) {
    let error: ReviewError = parse(&body).unwrap_err();
    assert!(!error.to_string().is_empty());
}

#[test]
fn a_missing_uid_is_named() {
    let mut review = review();
    review["request"].as_object_mut().unwrap().remove("uid");
    let body = review.to_string();
    assert!(matches!(parse(body.as_bytes()), Err(ReviewError::NoUid)));
}

#[rstest]
#[case::another_group("apps", "pods")]
#[case::another_resource("", "secrets")]
#[case::a_deployment("apps", "deployments")]
fn another_resource_is_foreign(#[case] group: &str, #[case] resource: &str) {
    let body = with(
        "/request/resource",
        json!({"group": group, "version": "v1", "resource": resource}),
    );
    let review = parse(body.as_bytes()).unwrap();
    assert!(matches!(review.subject, Subject::Foreign));
    assert_eq!(&*review.uid, "u-1");
}

#[test]
fn another_resource_of_an_unreadable_shape_is_foreign() {
    let mut review = review();
    review["request"]["resource"]["resource"] = json!("configmaps");
    review["request"]["object"]["spec"]["containers"] = json!("none");
    let body = review.to_string();
    assert!(matches!(
        parse(body.as_bytes()).unwrap().subject,
        Subject::Foreign
    ));
}

#[rstest]
#[case::containers_are_a_text(json!({"spec": {"containers": "none"}}))]
#[case::image_is_a_number(json!({"spec": {"containers": [{"name": "a", "image": 7}]}}))]
#[case::spec_is_a_list(json!({"spec": []}))]
#[case::annotations_are_a_list(json!({"metadata": {"annotations": ["x"]}}))]
#[case::object_is_a_text(json!("pod"))]
fn a_pod_that_looks_like_none_keeps_its_uid(#[case] object: Value) {
    let body = with("/request/object", object);
    let review = parse(body.as_bytes()).unwrap();
    assert!(matches!(review.subject, Subject::Unreadable(_)));
    assert_eq!(&*review.uid, "u-1");
}

#[test]
fn nesting_of_10_000_levels_is_survived() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = with("/request/object", json!({"spec": {"x": "DEEP"}})).replace("\"DEEP\"", &deep);
    let review = parse(body.as_bytes()).unwrap();
    assert!(matches!(review.subject, Subject::Pod(_)));
    let body =
        with("/request/object", json!({"spec": {"containers": "DEEP"}})).replace("\"DEEP\"", &deep);
    let review = parse(body.as_bytes()).unwrap();
    assert!(matches!(review.subject, Subject::Unreadable(_)));
}

#[rstest]
#[case("CREATE", None, Operation::Create)]
#[case("CREATE", Some(""), Operation::Create)]
#[case("UPDATE", None, Operation::Update)]
#[case("UPDATE", Some("ephemeralcontainers"), Operation::AddEphemeral)]
#[case("UPDATE", Some("resize"), Operation::Other)]
#[case("UPDATE", Some("status"), Operation::Other)]
#[case("CREATE", Some("binding"), Operation::Other)]
#[case("DELETE", None, Operation::Other)]
#[case("CONNECT", Some("exec"), Operation::Other)]
#[case("", None, Operation::Other)]
fn knows_the_operation(
    #[case] operation: &str,
    #[case] sub_resource: Option<&str>,
    #[case] expected: Operation,
) {
    let mut review = review();
    review["request"]["operation"] = json!(operation);
    review["request"]["subResource"] = json!(sub_resource);
    let body = review.to_string();
    let Subject::Pod(request) = parse(body.as_bytes()).unwrap().subject else {
        panic!("a Pod was asked about");
    };
    assert_eq!(request.operation, expected);
}

#[test]
fn a_dry_run_is_known() {
    let mut review = review();
    review["request"]["dryRun"] = json!(true);
    assert!(parse(review.to_string().as_bytes()).unwrap().dry_run);
}
