//! Reviews that no API server sends: each gets a response, and the memory of the process stays limited. The test has a
//! separate process, because it measures the peak memory of the process.
#![cfg(test)]

use std::sync::Arc;

use api::config::Document;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::{Request, StatusCode};
use component_base::metrics::{BuildInfo, Metrics};
use futures::future::join_all;
use policy::admission::{Configuration, Settings};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use webhook::admission::{AdmissionMetrics, router};
use webhook::snapshot::{KnownNamespace, SnapshotStore};

/// Size of a hostile review, in bytes. The server accepts 7 MiB.
const BODY: usize = 6 * 1024 * 1024;

/// Maximum size of a response, in bytes.
const ANSWER: usize = 1024 * 1024 + 64 * 1024;

/// Maximum growth of the resident memory, in KiB: two bodies, one of them in this test, and the data that is created from
/// one body.
const GROWTH_KIB: u64 = 40 * 1024;

fn webhook() -> Router {
    let mut document: Value = serde_json::from_str(include_str!(
        "../../policy/admission/tests/example/config.json"
    ))
    .unwrap();
    let names: Vec<_> = (0..50).map(|it| format!("FIPS_{it}")).collect();
    document["fipsVariables"] = json!(names);
    let all = json!(["rt-cfg.kyma-project.io/all"]);
    document["namespaceFeatures"] = json!({"shop": all, "new": all});
    let settings = Settings {
        landscape: None,
        pull_secret: "registry-credentials".into(),
    };
    let document = Document::parse(&document.to_string()).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    let snapshots = SnapshotStore::default();
    snapshots.set_configuration(Arc::new(configuration));
    snapshots.set_namespace("shop", Some(KnownNamespace::default()));
    let build = BuildInfo {
        version: "0".into(),
        revision: "0".into(),
    };
    let mut metrics = Metrics::new("rt", build);
    router(snapshots, AdmissionMetrics::register(metrics.registry()))
        // The server limits the size of bodies itself.
        .layer(DefaultBodyLimit::disable())
}

/// Returns a review with the text `pod`, in which `FILL` is replaced by repetitions of `item`, up to `size` bytes.
fn review(namespace: &str, pod: &str, item: &str, size: usize) -> String {
    let fill = item.repeat(size / item.len());
    let pod = pod.replace("FILL", fill.trim_end_matches(','));
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u-1","resource":{{"group":"","version":"v1","resource":"pods"}},"operation":"CREATE","namespace":"{namespace}","object":{pod}}}}}"#
    )
}

/// Returns the length of the response, which allows the Pod.
async fn post(webhook: Router, body: String) -> usize {
    let request = Request::post(api::names::WEBHOOK_PATH).body(Body::from(body));
    let response = webhook.oneshot(request.unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    body.len()
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse().unwrap()
}

/// Hostile Pods, which are sent one after the other. Each requires much memory in a different way.
const HOSTILE: [(&str, &str, &str); 10] = [
    ("containers", r#"{"spec":{"containers":[FILL]}}"#, "{},"),
    (
        "variables",
        r#"{"spec":{"containers":[{"env":[FILL]}]}}"#,
        "{},",
    ),
    (
        "pull Secrets",
        r#"{"spec":{"imagePullSecrets":[FILL]}}"#,
        "{},",
    ),
    ("volumes", r#"{"spec":{"volumes":[FILL]}}"#, "{},"),
    (
        "containers that only serde_json reads",
        r#"{"metadata":[null,null],"spec":{"containers":[FILL]}}"#,
        "{},",
    ),
    ("nesting", r#"{"spec":{"containers":FILL}}"#, "["),
    (
        "one annotation",
        r#"{"metadata":{"annotations":{"rt-cfg.kyma-project.io/all":"FILL"}}}"#,
        "\u{7f}",
    ),
    (
        "an image that is escaped in the warning",
        r#"{"spec":{"containers":[{"name":"a","image":"FILL"}]}}"#,
        "\u{7f}",
    ),
    (
        "a text for the spec, escaped in the error",
        r#"{"spec":"FILL"}"#,
        "\u{7f}",
    ),
    (
        "escaped names",
        r#"{"spec":{"containers":[{"env":[FILL]}]}}"#,
        r#"{"name":"\n"},"#,
    ),
];

#[tokio::test]
async fn memory_and_answers_are_bounded_whatever_a_review_consists_of() {
    let webhook = webhook();
    post(webhook.clone(), review("shop", "{}", "x", 1)).await;
    let before = peak_memory_kib();
    for (what, pod, item) in HOSTILE {
        // The brackets must be closed; otherwise the body would not be JSON.
        let mut body = review("shop", pod, item, if item == "[" { BODY / 2 } else { BODY });
        if item == "[" {
            body = body.replace("}}}}", &format!("{}}}}}}}}}", "]".repeat(BODY / 2)));
        }
        let answer = post(webhook.clone(), body).await;
        assert!(answer <= ANSWER, "{what}: an answer of {answer} bytes");
        let growth = peak_memory_kib() - before;
        assert!(growth <= GROWTH_KIB, "{what}: {growth} KiB");
    }
    // The reviews are short, so that many fit into the body budget of the server. Their Namespace is awaited.
    let pod = r#"{"spec":{"containers":[FILL]}}"#;
    let body = review("new", pod, "{},", 3 * 9_000);
    let posts = (0..200).map(|_| post(webhook.clone(), body.clone()));
    let answers = join_all(posts).await;
    assert!(answers.iter().all(|it| *it <= 160 * 1024), "{answers:?}");
    let growth = peak_memory_kib() - before;
    assert!(growth <= GROWTH_KIB, "reviews that wait: {growth} KiB");
}
