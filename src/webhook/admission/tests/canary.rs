//! Neither logs nor responses contain content of a request, and a client cannot fill the log.

use testkit::logs::Logs;
use tracing::Level;

use super::*;

/// Marks content of a request.
const CANARY: &str = "S3cr3t-of-a-customer";

/// Maximum length of a log message, in bytes.
const LINE: usize = 2_000;

fn says_nothing_of_the_request(logs: &Logs) {
    for line in logs.lines() {
        assert!(!line.contains(CANARY), "{line}");
        assert!(line.len() < LINE, "{} bytes", line.len());
    }
}

/// Returns a review in which each field is set.
fn full() -> Value {
    let mut review = review();
    review["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    review["request"]["subResource"] = json!("");
    review["request"]["name"] = json!("a");
    review["request"]["dryRun"] = json!(false);
    review["request"]["userInfo"] = json!({"username": "a"});
    review["request"]["object"] = json!({
        "metadata": {"name": "a", "namespace": "shop", "annotations": {ALL: "true"}, "labels": {"a": "b"}},
        "spec": {
            "containers": [{
                "name": "a", "image": "replace.me/x",
                "env": [{"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "a", "mountPath": "/a"}],
            }],
            "initContainers": [{"name": "b", "image": "b"}],
            "imagePullSecrets": [{"name": "a"}],
            "volumes": [{"name": "a", "emptyDir": {}}],
        },
    });
    review["request"]["oldObject"] = Value::Null;
    review
}

/// Collects the JSON pointers of all values below `value`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            fields.iter().map(|(key, it)| (escaped(key), it)).collect()
        }
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            numbered
                .map(|(index, it)| (index.to_string(), it))
                .collect()
        }
        _ => Vec::new(),
    };
    for (key, child) in children {
        let pointer = format!("{at}/{key}");
        pointers(child, &pointer, found);
        found.push(pointer);
    }
}

/// Returns the text for the field at `pointer`. The first 64 characters of three fields may be repeated.
fn marked(pointer: &str) -> String {
    match pointer {
        "/kind" | "/apiVersion" | "/request/uid" => format!("{}{CANARY}", "x".repeat(64)),
        _ => CANARY.to_owned(),
    }
}

#[tokio::test]
async fn no_field_of_a_review_is_logged_or_repeated_but_to_its_owner() {
    let log = Logs::of(Level::INFO);
    let fixture = configured();
    let mut found = Vec::new();
    pointers(&full(), "", &mut found);
    let mut refusals = 0;
    for pointer in &found {
        let text = marked(pointer);
        for value in [
            json!(text),
            json!([text]),
            json!({ "a": text, text.clone(): 1 }),
        ] {
            let mut review = full();
            *review.pointer_mut(pointer).unwrap() = value;
            let (status, answer) = fixture.post(review.to_string()).await;
            if status == StatusCode::OK {
                let mut answer: Value = serde_json::from_str(&answer).unwrap();
                // The API server compares the UID. The other fields are about the Pod, and are for its owner.
                for field in ["uid", "patch", "warnings"] {
                    answer["response"].as_object_mut().unwrap().remove(field);
                }
                assert!(!answer.to_string().contains(CANARY), "{pointer}: {answer}");
            } else {
                refusals += 1;
                assert!(!answer.contains(CANARY), "{pointer}: {answer}");
                assert!(answer.len() < LINE);
            }
        }
    }
    assert!(refusals > 0 && !log.lines().is_empty());
    says_nothing_of_the_request(&log);
}

#[rstest]
#[case::request_is_a_long_text(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": CANARY.repeat(100_000)}))]
#[case::kind_is_long(json!({"apiVersion": "admission.k8s.io/v1", "kind": "x".repeat(64) + &CANARY.repeat(100_000)}))]
#[case::uid_is_long({ let mut it = full(); it["request"]["uid"] = json!("x".repeat(64) + &CANARY.repeat(100_000)); it["request"]["object"]["spec"] = json!(7); it })]
#[case::pod_is_a_long_text({ let mut it = full(); it["request"]["object"] = json!(CANARY.repeat(100_000)); it })]
#[tokio::test]
async fn a_log_line_is_short_however_large_the_request(#[case] review: Value) {
    let log = Logs::of(Level::INFO);
    let (status, answer) = configured().post(review.to_string()).await;
    assert!(status == StatusCode::OK || answer.len() < LINE);
    assert!(!log.lines().is_empty());
    says_nothing_of_the_request(&log);
}

#[tokio::test]
async fn a_refusal_has_kind_and_location_of_the_error() {
    let (status, answer) = configured()
        .post(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": 7}"#)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer,
        "body: not an AdmissionReview: missing, duplicate or mistyped field at line 1, column 77\n"
    );
}

#[rstest]
#[case::malformed("hello".to_owned(), "rt_admission_malformed_requests_total 1001")]
#[case::pod_not_mutated({ let mut it = full(); it["request"]["object"]["spec"] = json!(7); it.to_string() }, r#"rt_admission_internal_errors_total{reason="InvalidPod"} 1001"#)]
#[tokio::test(start_paused = true)]
async fn a_fault_that_repeats_is_logged_once_in_a_while_with_its_count(
    #[case] body: String,
    #[case] counted: &str,
) {
    let log = Logs::of(Level::INFO);
    let fixture = configured();
    let router = fixture.router();
    let post = async |times: usize| {
        for _ in 0..times {
            let request = HttpRequest::post(WEBHOOK_PATH).body(Body::from(body.clone()));
            router.clone().oneshot(request.unwrap()).await.unwrap();
        }
    };
    post(1_000).await;
    assert_eq!(log.lines().len(), 1, "{:?}", log.lines());
    tokio::time::advance(Duration::from_mins(1)).await;
    post(1).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("suppressed=999"), "{}", lines[1]);
    assert!(fixture.shows(counted));
}
