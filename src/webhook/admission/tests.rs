//! Tests that call the router directly: each input has a defined response.

use api::config::Document;
use axum::body::{Body, to_bytes};
use axum::http::Request as HttpRequest;
use component_base::metrics::{BuildInfo, Metrics};
use policy::admission::{Annotations, Configuration, Namespace, Settings, TrustBundlePresence};
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

mod bounds;
mod canary;

const CONFIG: &str = include_str!("../../policy/admission/tests/example/config.json");
const ALL: &str = "rt-cfg.kyma-project.io/all";

struct Fixture {
    snapshots: SnapshotStore,
    admission: AdmissionMetrics,
    metrics: Metrics,
}

fn fixture() -> Fixture {
    let build = BuildInfo {
        version: "0".into(),
        revision: "0".into(),
    };
    let mut metrics = Metrics::new("rt", build);
    Fixture {
        snapshots: SnapshotStore::default(),
        admission: AdmissionMetrics::register(metrics.registry()),
        metrics,
    }
}

fn configured() -> Fixture {
    let fixture = fixture();
    let settings = Settings {
        landscape: None,
        pull_secret: "registry-credentials".into(),
    };
    let configuration = Configuration::new(&Document::parse(CONFIG).unwrap(), &settings).unwrap();
    fixture.snapshots.set_configuration(Arc::new(configuration));
    fixture
        .snapshots
        .set_namespace("shop", Some(KnownNamespace::default()));
    fixture
        .snapshots
        .set_trust_bundle(TrustBundlePresence::Present);
    fixture
}

impl Fixture {
    fn router(&self) -> Router {
        router(self.snapshots.clone(), self.admission.clone())
    }

    async fn post(&self, body: impl Into<Body>) -> (StatusCode, String) {
        let request = HttpRequest::post(WEBHOOK_PATH).body(body.into()).unwrap();
        let response = self.router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn ask(&self, review: &Value) -> Value {
        let (status, body) = self.post(review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        assert_eq!(answer["response"]["allowed"], true);
        answer
    }

    fn shows(&self, line: &str) -> bool {
        self.metrics.encode().unwrap().lines().any(|it| it == line)
    }
}

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "namespace": "shop", "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {
                "metadata": {"annotations": {ALL: "true"}},
                "spec": {"containers": [{"name": "a", "image": "replace.me/x"}]},
            },
        },
    })
}

fn patched(answer: &Value, object: &Value) -> Value {
    let patch = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        answer["response"]["patch"].as_str().unwrap(),
    )
    .unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

#[tokio::test]
async fn a_pod_is_changed_and_the_reasons_are_for_audit() {
    let fixture = configured();
    let review = review();
    let answer = fixture.ask(&review).await;
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    let pod = patched(&answer, &review["request"]["object"]);
    assert_eq!(pod["spec"]["containers"][0]["image"], "ghcr.io/x");
    assert_eq!(
        answer["response"]["auditAnnotations"]["reasons"],
        "alter-img-registry=ImageRewritten add-img-pull-secret=PullSecretNotObserved \
         add-cluster-trust-bundle=TrustBundleMounted add-cluster-trust-bundle=VolumeAdded set-fips-mode=EnvVarAdded"
    );
    assert!(fixture.shows(r#"rt_admission_reviews_total{operation="create",result="changed"} 1"#));
    assert!(
        fixture.shows(
            r#"rt_admission_decisions_total{feature="set-fips-mode",reason="EnvVarAdded"} 1"#
        )
    );
}

#[tokio::test]
async fn an_unchanged_pod_gets_neither_patch_nor_patch_type() {
    let mut review = review();
    review["request"]["object"]["metadata"] = json!({});
    let answer = configured().ask(&review).await;
    assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}));
}

#[rstest]
#[case::empty(String::new())]
#[case::truncated(review().to_string()[..150].to_owned())]
#[case::another_kind(review().to_string().replace("AdmissionReview", "TokenReview"))]
#[case::no_uid(review().to_string().replace("\"uid\"", "\"id\""))]
#[tokio::test]
async fn what_is_no_review_is_400(#[case] body: String) {
    let fixture = configured();
    let (status, text) = fixture.post(body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!text.is_empty());
    assert!(fixture.shows("rt_admission_malformed_requests_total 1"));
}

#[rstest]
#[case::without_a_configuration(fixture(), review(), "ConfigurationNotLoaded")]
#[case::an_unreadable_pod(configured(), { let mut it = review(); it["request"]["object"]["spec"] = json!("x"); it }, "InvalidPod")]
#[case::another_resource(configured(), { let mut it = review(); it["request"]["resource"]["resource"] = json!("services"); it }, "UnexpectedResource")]
#[tokio::test]
async fn an_own_fault_lets_the_pod_pass_with_a_warning(
    #[case] fixture: Fixture,
    #[case] review: Value,
    #[case] fault: &str,
) {
    let answer = fixture.ask(&review).await;
    assert_eq!(answer["response"]["patch"], Value::Null);
    assert!(
        answer["response"]["warnings"][0]
            .as_str()
            .unwrap()
            .contains("not mutated")
    );
    assert!(fixture.shows(&format!(
        r#"rt_admission_internal_errors_total{{reason="{fault}"}} 1"#
    )));
}

#[tokio::test]
async fn a_decision_that_panics_lets_the_pod_pass_with_a_warning() {
    let decided = survive(|| -> () { panic!("a defect") });
    let fault = decided.ok_or(InternalError::Panic).unwrap_err();
    let response = Answer::internal_error(fault).into_response("u-1");
    assert_eq!(response.status(), StatusCode::OK);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let warning = "runtime-bootstrapper: internal error, Pod not mutated";
    assert_eq!(
        answer["response"],
        json!({
            "uid": "u-1", "allowed": true, "warnings": [warning], "auditAnnotations": {"reasons": "Panic"},
        })
    );
}

#[tokio::test]
async fn the_owner_is_warned_of_what_stands_against_a_request() {
    let mut review = review();
    review["request"]["object"]["spec"]["containers"][0]["image"] = json!("replace.me/UPPER");
    let answer = configured().ask(&review).await;
    let warning = answer["response"]["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("is not a valid image reference"),
        "{warning}"
    );
}

/// `increase` of a series is 0 for its first value, so that an alert would not see the first error.
#[test]
fn counters_of_alerts_start_with_zero() {
    let fixture = fixture();
    for series in [
        r#"rt_admission_internal_errors_total{reason="ConfigurationNotLoaded"} 0"#,
        r#"rt_admission_internal_errors_total{reason="Panic"} 0"#,
        r#"rt_admission_namespace_waits_total{result="limit"} 0"#,
    ] {
        assert!(fixture.shows(series), "{series}");
    }
}

/// A review that waited in vain for its Namespace, and a review after the timeout of the API server, have own buckets.
#[test]
fn buckets_tell_slow_reviews_apart_up_to_the_timeout_of_the_api_server() {
    let manifest = include_str!("../../../deploy/webhook/mutatingwebhookconfiguration.yaml");
    let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
    let timeout = &manifest["webhooks"][0]["timeoutSeconds"];
    let fixture = fixture();
    for duration in [0.9, 1.1, 3.1] {
        fixture.admission.duration.observe(duration);
    }
    for (bound, count) in [("0.3", 0), ("1.0", 1), (&*format!("{timeout}.0"), 2)] {
        let line = format!(r#"rt_admission_duration_seconds_bucket{{le="{bound}"}} {count}"#);
        assert!(fixture.shows(&line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_namespace_is_waited_for_and_then_decided_without() {
    let fixture = configured();
    let mut review = review();
    review["request"]["namespace"] = json!("new");
    let started = tokio::time::Instant::now();
    let answer = fixture.ask(&review).await;
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    assert!(
        answer["response"]["patch"].is_string(),
        "the Pod itself asks"
    );
    assert!(fixture.shows(r#"rt_admission_namespace_waits_total{result="timeout"} 1"#));
}

/// Sends reviews in invented Namespaces, each with a value of this size. `wait` of them wait, and the others do not.
#[rstest]
#[case::small(0, 256)]
#[case::of_a_mebibyte(1 << 20, 3)]
#[tokio::test(start_paused = true)]
async fn reviews_that_wait_for_a_namespace_are_bounded(#[case] bytes: usize, #[case] wait: usize) {
    let fixture = configured();
    let router = fixture.router();
    let started = tokio::time::Instant::now();
    let asked = (0..wait + 10).map(|number| {
        let mut review = review();
        review["request"]["namespace"] = json!(format!("invented-{number}"));
        review["request"]["object"]["metadata"]["annotations"]["large"] = json!("x".repeat(bytes));
        let request = HttpRequest::post(WEBHOOK_PATH).body(Body::from(review.to_string()));
        let router = router.clone();
        async move {
            let response = router.oneshot(request.unwrap()).await.unwrap();
            (response.status(), started.elapsed().as_millis())
        }
    });
    let mut answers = futures::future::join_all(asked).await;
    answers.sort_by_key(|(_, elapsed)| *elapsed);
    let (at_once, waited) = answers.split_at(10);
    assert_eq!(at_once, [(StatusCode::OK, 0); 10]);
    assert!(
        waited
            .iter()
            .all(|answer| *answer == (StatusCode::OK, 1000))
    );
    assert!(fixture.shows(r#"rt_admission_namespace_waits_total{result="limit"} 10"#));
    // All waits have ended, so there is capacity again.
    let mut review = review();
    review["request"]["namespace"] = json!("invented");
    fixture.ask(&review).await;
    assert_eq!(started.elapsed().as_millis(), 2000);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_arrives_in_time_counts() {
    let fixture = configured();
    let mut review = review();
    review["request"]["namespace"] = json!("new");
    review["request"]["object"]["metadata"] = json!({});
    let snapshots = fixture.snapshots.clone();
    let arrival = tokio::spawn(async move {
        tokio::task::yield_now().await;
        let view = Namespace {
            annotations: Annotations::collect([(ALL, "true")]),
            ..Namespace::default()
        };
        let namespace = KnownNamespace {
            view,
            ..KnownNamespace::default()
        };
        snapshots.set_namespace("new", Some(namespace));
    });
    let answer = fixture.ask(&review).await;
    arrival.await.unwrap();
    assert!(answer["response"]["patch"].is_string());
}

#[tokio::test]
async fn only_post_on_the_one_path_is_served() {
    let fixture = configured();
    let get = HttpRequest::get(WEBHOOK_PATH).body(Body::empty()).unwrap();
    let response = fixture.router().oneshot(get).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let other = HttpRequest::post("/validate").body(Body::empty()).unwrap();
    let response = fixture.router().oneshot(other).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}
