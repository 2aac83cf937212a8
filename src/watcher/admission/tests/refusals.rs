//! Cases in which the public watcher responds 200 with an empty body, or sends no event to KCP.

use rstest::rstest;

use super::*;

/// The UID of an API server has 36 bytes.
fn long_uid() -> String {
    let mut review = changed("a");
    review["request"]["uid"] = "u".repeat(1_000_000).into();
    review.to_string()
}

#[rstest]
#[case::empty("", "body: not an AdmissionReview")]
#[case::no_json("hello", "body: not an AdmissionReview")]
#[case::cut_off(r#"{"request":{"uid":"#, "body: not an AdmissionReview")]
#[case::no_request("{}", "request: missing")]
#[case::no_uid(r#"{"request":{}}"#, "request.uid: missing")]
#[case::long_uid(long_uid(), "request.uid: exceeds 128 bytes")]
#[case::another_kind(
    r#"{"kind":"Pod","apiVersion":"v1"}"#,
    "body: expected AdmissionReview of admission.k8s.io/v1, got \"Pod\" of \"v1\""
)]
#[tokio::test]
async fn no_review_is_a_bad_request_with_a_reason(
    #[case] body: impl Into<Body>,
    #[case] reason: &str,
) {
    let fixture = fixture();
    let answered = fixture.send("/validate/kyma", body).await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
    assert!(answered.body.starts_with(reason), "{}", answered.body);
    assert!(answered.headers.contains_key("content-security-policy"));
    assert_eq!(
        fixture.metric("watcher_admission_request_error_total"),
        Some(1.0)
    );
    assert_eq!(fixture.bodies(), Vec::<Value>::new());
    assert_eq!(fixture.service.outbox.receivers(), []);
}

/// It may have been the only sign of a change. The API server admits the change without a response.
#[rstest]
#[case::no_review(json!({"request": {}}), true)]
#[case::unreadable_object(bent("object", json!(7)), true)]
#[case::dry_run(bent("dryRun", json!(true)), false)]
#[tokio::test]
async fn a_review_that_is_not_understood_asks_its_manager_for_a_resync(
    #[case] review: Value,
    #[case] expected: bool,
) {
    let fixture = configured(&["kyma", "other"]);
    fixture.send("/validate/kyma", review.to_string()).await;
    let outbox = &fixture.service.outbox;
    let is_asked = |name| {
        let report = outbox.manager_report(&named(name), Instant::now());
        report.resync.is_some()
    };
    assert_eq!([is_asked("kyma"), is_asked("other")], [expected, false]);
}

#[rstest]
#[case::no_manager("/validate/", StatusCode::NOT_FOUND)]
#[case::not_even_a_slash("/validate", StatusCode::NOT_FOUND)]
#[case::elsewhere("/", StatusCode::NOT_FOUND)]
#[case::metrics("/metrics", StatusCode::NOT_FOUND)]
#[case::two_segments("/validate/a/b", StatusCode::BAD_REQUEST)]
#[case::trailing_slash("/validate/a/", StatusCode::BAD_REQUEST)]
#[case::upwards("/validate/..", StatusCode::BAD_REQUEST)]
#[case::blank("/validate/a%20b", StatusCode::BAD_REQUEST)]
#[case::line("/validate/%0A", StatusCode::BAD_REQUEST)]
#[case::long(&format!("/validate/{}", "a".repeat(129)), StatusCode::BAD_REQUEST)]
#[tokio::test]
async fn a_path_that_names_no_manager(#[case] path: &str, #[case] expected: StatusCode) {
    let fixture = fixture();
    let answered = fixture.send(path, changed("a").to_string()).await;
    assert_eq!(answered.status, expected, "{}", answered.body);
    assert!(!answered.body.trim().is_empty());
    assert_eq!(fixture.bodies(), Vec::<Value>::new());
    // The counter counts only invalid bodies, as in the public watcher.
    assert_eq!(
        fixture.metric("watcher_admission_request_error_total"),
        Some(0.0)
    );
}

#[rstest]
#[case("CREATE")]
#[case("UPDATE")]
#[case("DELETE")]
#[tokio::test]
async fn a_dry_run_is_silent(#[case] operation: &str) {
    let fixture = fixture();
    let mut review = changed("a");
    review["request"]["operation"] = operation.into();
    review["request"]["dryRun"] = true.into();
    assert_eq!(fixture.message(&review).await, "dry run: no event sent");
    assert_eq!(fixture.bodies(), Vec::<Value>::new());
    assert_eq!(
        fixture.metric(r#"watcher_skipped_reviews_total{reason="DryRun"}"#),
        Some(1.0)
    );
    assert_eq!(fixture.metric("watcher_kcp_requests_total"), Some(0.0));
}

/// The API server does not wait any longer, or its connection breaks: the future of the request is dropped.
#[tokio::test]
async fn a_review_that_is_given_up_before_its_end_asks_its_manager_for_a_resync() {
    let fixture = configured(&["kyma"]);
    let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post("/validate/kyma").body(body).unwrap();
    let mut response = Box::pin(router(fixture.service.clone()).oneshot(request));
    assert!(futures::poll!(&mut response).is_pending());
    drop(response);
    let report = |at| fixture.service.outbox.manager_report(&named("kyma"), at);
    assert!(report(Instant::now()).resync.is_some());
}

fn bent(key: &str, value: Value) -> Value {
    let mut review = changed("a");
    review["request"][key] = value;
    review
}

fn nameless() -> Value {
    let mut review = bent("object", json!({"metadata": {}}));
    review["request"]["name"] = Value::Null;
    review
}

/// Reviews that no API server sends are allowed and reported.
#[rstest]
#[case::null_object(bent("object", Value::Null), "missing-object", "object: missing")]
#[case::no_object(bent("object", json!(7)), "invalid-object", "object: malformed")]
#[case::operation(
    bent("operation", json!("PATCH")),
    "unknown-operation",
    "operation: expected CREATE, UPDATE, DELETE or CONNECT"
)]
#[case::no_operation(
    bent("operation", Value::Null),
    "unknown-operation",
    "operation: expected CREATE, UPDATE, DELETE or CONNECT"
)]
#[case::too_long(
    bent("object", kyma(&"n".repeat(5_000), &json!({}), &json!({}))),
    "name-too-long",
    "name and type of the object are 5"
)]
#[tokio::test]
async fn what_names_nothing_is_allowed_with_a_warning(
    #[case] review: Value,
    #[case] error_reason: &str,
    #[case] message: &str,
) {
    let fixture = fixture();
    let answer = fixture.ask(&review).await;
    let response = &answer["response"];
    let said = response["status"]["message"].as_str().unwrap();
    assert!(said.starts_with(message), "{said}");
    let [warning] = response["warnings"].as_array().unwrap().as_slice() else {
        panic!("{response}");
    };
    let warning = warning.as_str().unwrap();
    assert!(
        warning.starts_with(&format!("kyma watcher: {message}")),
        "{warning}"
    );
    assert!(warning.chars().count() <= 120);
    assert_eq!(fixture.bodies(), Vec::<Value>::new());
    let series = format!(r#"watcher_failed_kcp_total{{error_reason="{error_reason}"}}"#);
    assert_eq!(fixture.metric(&series), Some(1.0));
}

/// API servers send reviews of objects that are not stored, such as a `TokenReview`, if a Watcher selects all resources.
#[tokio::test]
async fn an_object_without_a_name_requires_no_resync() {
    let fixture = configured(&["kyma"]);
    let answer = fixture.ask(&nameless()).await;
    assert_eq!(answer["response"]["allowed"], true);
    assert!(answer["response"]["warnings"].is_null(), "{answer}");
    let report = |at| fixture.service.outbox.manager_report(&named("kyma"), at);
    assert_eq!(report(Instant::now()).resync, None);
    let series = r#"watcher_failed_kcp_total{error_reason="missing-name"}"#;
    assert_eq!(fixture.metric(series), Some(1.0));
}

#[tokio::test]
async fn an_ordinary_silence_is_no_fault() {
    let fixture = fixture();
    let answer = fixture
        .ask(&review("CONNECT", &Value::Null, &Value::Null))
        .await;
    assert_eq!(answer["response"].get("warnings"), None);
    let samples = Samples::parse(&fixture.metrics.encode().unwrap());
    let failures = samples.matching("watcher_failed_kcp_total").count();
    assert_eq!(failures, 0, "no series before the first failure");
}

/// Any client in the cluster can request any path.
#[tokio::test]
async fn unknown_managers_get_no_heartbeats_and_too_many_of_them_an_error() {
    let fixture = fixture();
    let review = changed("a").to_string();
    let mut answered = Vec::new();
    for number in 0..33 {
        let path = format!("/validate/invented-{number}");
        let answer: Value =
            serde_json::from_str(&fixture.send(&path, review.clone()).await.body).unwrap();
        answered.push(answer["response"]["status"]["message"].clone());
    }
    assert_eq!(fixture.service.outbox.receivers(), []);
    assert_eq!(answered[31], "event queued for KCP");
    assert_eq!(
        answered[32],
        "kcp request failed\nthere are too many managers; no event sent"
    );
    let series = r#"watcher_enqueued_events_total{result="too_many_managers"}"#;
    assert_eq!(fixture.metric(series), Some(1.0));
}

/// A client in the cluster can request any path. The names that it invents do not displace a configured manager.
#[tokio::test]
async fn a_configured_manager_keeps_its_place_whatever_names_came_before() {
    let fixture = configured(&["lifecycle-manager"]);
    let review = changed("a").to_string();
    for number in 0..1_100 {
        let path = format!("/validate/invented-{number}");
        let answered = fixture.send(&path, review.clone()).await;
        assert_eq!(answered.status, StatusCode::NOT_FOUND);
        assert!(!answered.body.contains("invented"), "{}", answered.body);
    }
    let series = r#"watcher_admission_rejections_total{reason="manager_not_configured"}"#;
    assert_eq!(fixture.metric(series), Some(1_100.0));
    fixture.send("/validate/lifecycle-manager", review).await;
    let kept = fixture.kept();
    let told = kept.iter().map(|item| item.manager.as_str());
    assert_eq!(told.collect::<Vec<_>>(), ["lifecycle-manager"]);
}

/// The API server may have stored the change.
#[rstest]
#[case::of_a_configured_manager(&["kyma"], true)]
#[case::of_a_manager_that_no_event_has_reached(&[], false)]
#[tokio::test]
async fn review_that_is_not_read_requires_a_resync(
    #[case] managers: &[&str],
    #[case] expected: bool,
) {
    let fixture = configured(managers);
    let parts = [Ok("{"), Err(std::io::Error::other("cut off"))];
    let body = Body::from_stream(futures::stream::iter(parts));
    let answered = fixture.send("/validate/kyma", body).await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
    let outbox = &fixture.service.outbox;
    let report = outbox.manager_report(&named("kyma"), Instant::now());
    assert_eq!(report.resync.is_some(), expected);
}
