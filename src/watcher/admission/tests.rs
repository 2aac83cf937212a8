//! Tests that call the router directly.

mod content;
mod listed;
mod public;
mod refusals;
mod served;
mod sync_delivery;

use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use component_base::metrics::{BuildInfo, Metrics};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::metrics::Samples;
use tower::ServiceExt as _;
use watcher_types::PathSegment;

use super::*;
use crate::outbox::{Item, Options};

struct Fixture {
    service: AdmissionService,
    metrics: Metrics,
    _spool: TempDir,
}

/// Response of the router.
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

fn fixture() -> Fixture {
    with(DeliveryMode::Async, Watchers::default())
}

fn with(delivery_mode: DeliveryMode, watchers: Watchers) -> Fixture {
    keeping(delivery_mode, watchers, &[])
}

/// Returns a fixture with configured managers.
fn configured(names: &[&str]) -> Fixture {
    keeping(DeliveryMode::Async, Watchers::default(), names)
}

fn keeping(delivery_mode: DeliveryMode, watchers: Watchers, managers: &[&str]) -> Fixture {
    let build = BuildInfo {
        version: "0".into(),
        revision: "0".into(),
    };
    let mut metrics = Metrics::new("watcher", build);
    let spool = tempfile::tempdir().unwrap();
    let options = Options {
        managers: managers.iter().map(|name| named(name)).collect(),
        ..Options::new(spool.path().to_owned())
    };
    // The messages do not depend on the speed of the disk.
    let (outbox, _) = Outbox::open_patiently(options, Instant::now());
    let service = AdmissionService {
        watchers,
        outbox,
        delivery_mode,
        metrics: WatcherMetrics::register(metrics.registry()),
        reviews: ReviewActivity::default(),
        log: RequestLog::default(),
    };
    Fixture {
        service,
        metrics,
        _spool: spool,
    }
}

impl Fixture {
    async fn send(&self, path: &str, body: impl Into<Body>) -> Answered {
        let request = Request::post(path).body(body.into()).unwrap();
        let response = router(self.service.clone()).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Answered {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// Sends a review for the manager `kyma`, and checks the fields that each response has.
    async fn ask(&self, review: &Value) -> Value {
        let answered = self.send("/validate/kyma", review.to_string()).await;
        assert_eq!(answered.status, StatusCode::OK, "{}", answered.body);
        let answer: Value = serde_json::from_str(&answered.body).unwrap();
        let response = &answer["response"];
        assert_eq!(response["uid"], review["request"]["uid"]);
        assert_eq!(response["allowed"], true);
        assert_eq!(response["status"]["status"], "Success");
        answer
    }

    async fn message(&self, review: &Value) -> String {
        let answer = self.ask(review).await;
        let message = &answer["response"]["status"]["message"];
        message.as_str().unwrap().to_owned()
    }

    /// Takes the events that are due now.
    fn kept(&self) -> Vec<Item> {
        self.service
            .outbox
            .take(Instant::now() + Duration::from_millis(1), 100)
    }

    /// Returns the bodies of the events that are due now.
    fn bodies(&self) -> Vec<Value> {
        let kept = self.kept();
        let events = kept.iter().map(|it| &it.event);
        events.map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    fn metric(&self, series: &str) -> Option<f64> {
        Samples::parse(&self.metrics.encode().unwrap()).exact(series)
    }
}

/// Returns a Kyma with this spec and status.
fn kyma(name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": name, "namespace": "kyma-system"},
        "spec": spec, "status": status,
    })
}

fn review(operation: &str, object: &Value, old_object: &Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "operation": operation, "name": "default", "namespace": "kyma-system",
            "kind": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
            "resource": {"group": "operator.kyma-project.io", "version": "v1beta2", "resource": "kymas"},
            "object": object, "oldObject": old_object,
        },
    })
}

/// Returns an UPDATE that changes the spec.
fn changed(name: &str) -> Value {
    let none = json!({});
    let old = kyma(name, &json!({"channel": "regular"}), &none);
    review(
        "UPDATE",
        &kyma(name, &json!({"channel": "fast"}), &none),
        &old,
    )
}

fn event(name: &str) -> Value {
    json!({
        "watched": {"Namespace": "kyma-system", "Name": name},
        "watchedGvk": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
    })
}

fn named(name: &str) -> PathSegment {
    PathSegment::parse(name).unwrap()
}
