//! Responses that are equal to the responses of the public watcher.

use axum::http::Method;
use rstest::rstest;

use super::*;

#[tokio::test]
async fn the_path_names_the_manager() {
    let fixture = fixture();
    let answered = fixture
        .send(
            "/validate/lifecycle-manager?timeout=3s",
            changed("a").to_string(),
        )
        .await;
    assert_eq!(answered.status, StatusCode::OK);
    let [item] = fixture.kept().try_into().unwrap();
    assert_eq!(item.manager, named("lifecycle-manager"));
    // The manager receives heartbeats only after it has accepted this event.
    assert_eq!(fixture.service.outbox.receivers(), []);
    fixture.service.outbox.delivered(&item, Instant::now());
    let [receiver] = fixture.service.outbox.receivers().try_into().unwrap();
    assert_eq!((receiver.name, receiver.reached), (item.manager, true));
}

/// The tests of the public project send GET.
#[rstest]
#[case(Method::GET)]
#[case(Method::PUT)]
#[tokio::test]
async fn any_method_is_taken(#[case] method: Method) {
    let request = Request::builder()
        .method(method)
        .uri("/validate/kyma")
        .body(Body::from(changed("a").to_string()))
        .unwrap();
    let fixture = fixture();
    let response = router(fixture.service.clone())
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(fixture.bodies(), [event("a")]);
}

#[tokio::test]
async fn the_answer_is_the_public_one() {
    let answer = fixture().ask(&changed("a")).await;
    let expected = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": {
            "uid": "u-1", "allowed": true,
            "status": {"metadata": {}, "status": "Success", "message": "event queued for KCP"},
        },
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_uid_of_any_text_comes_back() {
    let mut review = changed("a");
    review["request"]["uid"] = "\"\\ \u{7} \u{2028} ü".into();
    fixture().ask(&review).await;
}

#[rstest]
#[case::sent(changed("a"))]
#[case::silent(review("CONNECT", &Value::Null, &Value::Null))]
#[tokio::test]
async fn both_security_headers(#[case] review: Value) {
    let answered = fixture().send("/validate/kyma", review.to_string()).await;
    let header = |name: &str| answered.headers[name].to_str().unwrap().to_owned();
    assert_eq!(
        header("strict-transport-security"),
        "max-age=31536000; includeSubDomains"
    );
    assert_eq!(header("content-security-policy"), "default-src 'self'");
    assert_eq!(header("content-type"), "application/json");
}

#[tokio::test]
async fn the_messages_of_what_is_not_watched_by_name() {
    let fixture = fixture();
    assert_eq!(fixture.message(&changed("a")).await, "event queued for KCP");
    let same = kyma("a", &json!({"channel": "fast"}), &json!({}));
    assert_eq!(
        fixture.message(&review("UPDATE", &same, &same)).await,
        "no change detected on watched resource kyma-system/a"
    );
    assert_eq!(
        fixture
            .message(&review("CONNECT", &Value::Null, &Value::Null))
            .await,
        "operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma"
    );
    assert_eq!(fixture.bodies(), [event("a")]);
}

/// An event contains the object that belongs to the operation of the review.
#[rstest]
#[case::create("CREATE", Some("new"))]
#[case::delete("DELETE", Some("old"))]
#[case::update("UPDATE", Some("new"))]
#[case::connect("CONNECT", None)]
#[tokio::test]
async fn each_operation_has_its_object(#[case] operation: &str, #[case] expected: Option<&str>) {
    let fixture = fixture();
    let (new, old) = (json!({"a": 1}), json!({"a": 2}));
    let new = kyma("new", &new, &json!({}));
    let old = kyma("old", &old, &json!({}));
    fixture.ask(&review(operation, &new, &old)).await;
    let expected: Vec<Value> = expected.into_iter().map(event).collect();
    assert_eq!(fixture.bodies(), expected);
}

#[tokio::test]
async fn a_review_without_kind_is_answered_without() {
    let fixture = fixture();
    let mut review = changed("a");
    let envelope = review.as_object_mut().unwrap();
    envelope.remove("kind");
    envelope.remove("apiVersion");
    envelope.insert("extra".into(), json!({"fields": ["are", "ignored"]}));
    let answer = fixture.ask(&review).await;
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["response"]);
    assert_eq!(fixture.bodies(), [event("a")]);
}

#[tokio::test]
async fn what_changes_again_is_delivered_once() {
    let fixture = fixture();
    for _ in 0..3 {
        fixture.ask(&changed("a")).await;
    }
    assert_eq!(fixture.bodies(), [event("a")]);
    assert_eq!(
        fixture.metric(r#"watcher_enqueued_events_total{result="spooled"}"#),
        Some(1.0)
    );
    assert_eq!(
        fixture.metric(r#"watcher_enqueued_events_total{result="coalesced"}"#),
        Some(2.0)
    );
}

/// Such an event is lost if the process ends.
#[tokio::test]
async fn an_event_that_is_in_memory_only_is_said_to_be() {
    let mut fixture = fixture();
    let options = Options::new("/nonexistent/spool".into());
    (fixture.service.outbox, _) = Outbox::open(options, Instant::now());
    assert_eq!(
        fixture.message(&changed("a")).await,
        "event queued in memory only"
    );
}

/// A full outbox does not reject a write on the runtime. The heartbeat requests a resync.
#[tokio::test]
async fn a_full_outbox_is_said_and_the_review_is_allowed() {
    let spool = tempfile::tempdir().unwrap();
    let options = Options {
        max_bytes: 256 << 10,
        ..Options::new(spool.path().to_owned())
    };
    let mut fixture = fixture();
    (fixture.service.outbox, _) = Outbox::open_patiently(options, Instant::now());
    let mut message = String::new();
    for number in 0..1_000 {
        let name = format!("{number}{}", "n".repeat(1_500));
        message = fixture.message(&changed(&name)).await;
        if message != "event queued for KCP" {
            break;
        }
    }
    assert_eq!(
        message,
        "kcp request failed\nthe outbox is full; a resync is pending"
    );
    let series = r#"watcher_enqueued_events_total{result="full"}"#;
    assert_eq!(fixture.metric(series), Some(1.0));
    assert!(fixture.service.outbox.report(Instant::now()).resync_needed);
}
