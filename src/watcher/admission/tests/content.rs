//! Logs and responses repeat no content of a request except the fields that a response requires.

use axum::http::StatusCode;
use rstest::rstest;
use tracing::Level;

use super::*;
use testkit::logs::Logs;

/// Returns a text that is longer than any text that is repeated.
fn canary() -> String {
    "S3cr3t-".repeat(2_000)
}

fn with(key: &str, value: Value) -> String {
    let mut review = changed("a");
    review["request"][key] = value;
    review.to_string()
}

fn envelope(key: &str, value: Value) -> String {
    let mut review = changed("a");
    review[key] = value;
    review.to_string()
}

fn assert_unrepeated(logs: &Logs, answered: &Answered, longest: usize) {
    let canary = canary();
    assert!(
        !answered.body.contains(&canary[..=longest]),
        "{}",
        answered.body
    );
    assert!(answered.body.len() < 2_048, "{}", answered.body.len());
    for line in logs.lines() {
        assert!(!line.contains(&canary[..=longest]), "{line}");
        assert!(line.len() < 2_048, "{}", line.len());
    }
}

#[rstest]
#[case::body(canary())]
#[case::json_string(json!(canary()).to_string())]
#[case::request(envelope("request", canary().into()))]
#[case::uid(with("uid", json!({ "a": canary() })))]
#[case::long_uid(with("uid", canary().into()))]
#[case::operation_of_another_type(with("operation", json!([canary()])))]
#[case::dry_run(with("dryRun", canary().into()))]
#[case::resource(with("resource", canary().into()))]
#[case::unknown_key(with(&canary(), json!({}) ).replace("\"uid\"", "\"di\""))]
#[tokio::test]
async fn what_is_no_review_is_not_repeated(#[case] body: String) {
    let logs = Logs::of(Level::DEBUG);
    let answered = fixture().send("/validate/kyma", body).await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
    assert_unrepeated(&logs, &answered, 8);
}

#[rstest]
#[case::kind(envelope("kind", canary().into()))]
#[case::api_version(envelope("apiVersion", canary().into()))]
#[tokio::test]
async fn of_another_kind_64_characters_are_repeated(#[case] body: String) {
    let logs = Logs::of(Level::DEBUG);
    let answered = fixture().send("/validate/kyma", body).await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
    assert_unrepeated(&logs, &answered, 64);
}

#[tokio::test]
async fn the_place_of_a_syntax_error_is_named() {
    let answered = fixture().send("/validate/kyma", "{\n  \"kind\": 7}").await;
    assert!(
        answered.body.contains("line 2, column 11"),
        "{}",
        answered.body
    );
}

#[rstest]
#[case::operation(with("operation", canary().into()))]
#[case::object(with("object", canary().into()))]
#[case::name(with("object", json!({ "metadata": { "name": [canary()] } })))]
#[case::too_long(with("object", kyma(&canary(), &json!({}), &json!({}))))]
#[tokio::test]
async fn a_change_that_cannot_become_an_event_is_not_repeated(#[case] body: String) {
    let logs = Logs::of(Level::DEBUG);
    let answered = fixture().send("/validate/kyma", body).await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_unrepeated(&logs, &answered, 8);
    assert_eq!(logs.alarms(), 1);
}

/// The messages of the public watcher contain the name or the type of the object. Names that are longer than any name in an
/// API server are truncated.
#[tokio::test]
async fn a_message_with_a_name_is_bounded() {
    let logs = Logs::of(Level::DEBUG);
    let mut body = review("CONNECT", &Value::Null, &Value::Null);
    body["request"]["kind"]["kind"] = canary().into();
    let body = body.to_string();
    let answered = fixture().send("/validate/kyma", body).await;
    assert!(answered.body.len() < 2_048, "{}", answered.body.len());
    assert_eq!(logs.lines(), [""; 0]);
}

#[tokio::test]
async fn of_a_uid_64_characters_are_logged() {
    let logs = Logs::of(Level::DEBUG);
    let mut review = changed("a");
    // The longest UID that is accepted.
    review["request"]["uid"] = canary()[..128].into();
    review["request"]["operation"] = "PATCH".into();
    fixture().ask(&review).await;
    let lines = logs.lines();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains(&canary()[..64]) && !lines[0].contains(&canary()[..65]));
}

#[tokio::test]
async fn a_manager_in_the_path_is_not_repeated() {
    let logs = Logs::of(Level::DEBUG);
    let name = &canary()[..100];
    for fixture in [fixture(), configured(&["kyma"])] {
        let path = format!("/validate/{name}");
        for body in [changed("a").to_string(), "no review".to_owned()] {
            let answered = fixture.send(&path, body).await;
            assert_unrepeated(&logs, &answered, 8);
        }
    }
}

/// A client that sends invalid requests cannot cause an unlimited number of log messages.
#[tokio::test]
async fn bad_requests_are_logged_at_a_bounded_rate() {
    let logs = Logs::of(Level::INFO);
    let fixture = fixture();
    let mut unknown = changed("a");
    unknown["request"]["operation"] = "PATCH".into();
    for _ in 0..500 {
        fixture.send("/validate/kyma", "no review").await;
        fixture.ask(&unknown).await;
    }
    assert!((2..=4).contains(&logs.alarms()), "{:#?}", logs.lines());
}

/// Each valid review counts as a sign that reviews arrive. An invalid request does not count.
#[tokio::test(start_paused = true)]
async fn reviews_are_counted_for_heartbeats() {
    let fixture = fixture();
    let kyma = PathSegment::parse("kyma").unwrap();
    let reviews = || fixture.service.reviews.counts(&kyma)[1];
    assert_eq!(reviews(), (0, None));
    let unchanged = super::kyma("a", &json!({}), &json!({}));
    let mut dry_run = changed("a");
    dry_run["request"]["dryRun"] = json!(true);
    for review in [
        changed("a"),
        dry_run,
        review("UPDATE", &unchanged, &unchanged),
        review("CONNECT", &Value::Null, &Value::Null),
    ] {
        fixture.ask(&review).await;
    }
    assert_eq!(reviews(), (4, Some(0)));
    let refused = fixture.send("/validate/kyma", "no review").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(reviews(), (4, Some(0)));
}
