//! The metrics of the public watcher exist with the same names.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use component_base::admin::{health_router, metrics_router};
use component_base::metrics::{BuildInfo, Metrics};
use component_base::readiness::Readiness;
use tower::ServiceExt as _;
use watcher_types::NamespacedName;

use std::time::Instant;

use super::*;
use crate::certificates::Certificates;
use crate::fixture::certified;
use crate::outbox::{Options, Outbox};

fn registered() -> (WatcherMetrics, Metrics) {
    let build = BuildInfo {
        version: "1.2.3".into(),
        revision: "abc".into(),
    };
    let mut metrics = Metrics::new("watcher", build);
    (WatcherMetrics::register(metrics.registry()), metrics)
}

fn lines(metrics: &Metrics) -> Vec<String> {
    metrics
        .encode()
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Checks that the lines `name value` exist. Histograms are ignored.
fn assert_shows(metrics: &Metrics, expected: &[&str]) {
    let lines = lines(metrics);
    for line in expected {
        assert!(
            lines.iter().any(|it| it == line),
            "{line} is not in {lines:#?}"
        );
    }
}

#[test]
fn names_types_and_labels() {
    let (watcher, metrics) = registered();
    let text = metrics.encode().unwrap();
    assert!(
        !text.contains("error_reason"),
        "no series before the first failure"
    );
    for reason in ["invalid-subresource", REQUEST_SETUP, FAILED_REQUEST] {
        watcher.failed(reason);
    }
    watcher.answered(Duration::from_millis(250));
    assert_shows(
        &metrics,
        &[
            "# TYPE watcher_admission_request counter",
            "watcher_admission_request_total 0",
            "# TYPE watcher_admission_request_error counter",
            "watcher_admission_request_error_total 0",
            "# TYPE watcher_kcp_requests counter",
            "watcher_kcp_requests_total 0",
            "# TYPE watcher_failed_kcp counter",
            r#"watcher_failed_kcp_total{error_reason="invalid-subresource"} 1"#,
            r#"watcher_failed_kcp_total{error_reason="request-setup"} 1"#,
            r#"watcher_failed_kcp_total{error_reason="failed-request"} 1"#,
            "# TYPE watcher_request_duration gauge",
            "watcher_request_duration 0.25",
            "# TYPE watcher_fips_mode gauge",
        ],
    );
}

#[test]
fn the_gauge_of_duration_is_of_the_last_answer_and_ours_of_all() {
    let (watcher, metrics) = registered();
    watcher.answered(Duration::from_secs(2));
    watcher.answered(Duration::from_millis(500));
    assert_shows(
        &metrics,
        &[
            "watcher_request_duration 0.5",
            "watcher_admission_duration_seconds_sum 2.5",
            "watcher_admission_duration_seconds_count 2",
        ],
    );
}

#[test]
fn a_skipped_review_is_a_failure_only_if_a_change_may_be_missed() {
    let (watcher, metrics) = registered();
    watcher.skipped(&SkipReason::NoChange {
        watched: NamespacedName::default(),
    });
    watcher.skipped(&SkipReason::DryRun);
    assert!(!metrics.encode().unwrap().contains("error_reason"));
    watcher.skipped(&SkipReason::InvalidSubresource {
        watched: NamespacedName::default(),
    });
    assert_shows(
        &metrics,
        &[
            r#"watcher_skipped_reviews_total{reason="NoChange"} 1"#,
            r#"watcher_skipped_reviews_total{reason="DryRun"} 1"#,
            r#"watcher_failed_kcp_total{error_reason="invalid-subresource"} 1"#,
        ],
    );
}

async fn get(router: axum::Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The two ports of the public watcher share one router, so any Pod can send reviews to the plain-text port.
#[tokio::test]
async fn the_plain_ports_take_no_reviews() {
    let (_, metrics) = registered();
    let metrics = metrics_router(Arc::new(metrics));
    let (status, text) = get(metrics.clone(), "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("watcher_build_info{version=\"1.2.3\",revision=\"abc\"} 1"));
    for router in [metrics, health_router(Readiness::default())] {
        for path in ["/validate/kyma", "/validate/"] {
            assert_eq!(get(router.clone(), path).await.0, StatusCode::NOT_FOUND);
        }
    }
}

/// This build has no FIPS mode, and ignores the debug variable of Go.
#[test]
fn fips_mode_is_off() {
    assert_shows(&registered().1, &["watcher_fips_mode 0"]);
}

#[test]
fn the_outbox_and_the_certificates_are_read_at_a_scrape() {
    let (_, secret) = certified();
    let certificates: Certificates = secret.load();
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(folder.path().to_owned());
    let (outbox, _) = Outbox::open_patiently(options, Instant::now());
    // The same registry would show the previous state for REPORT_INTERVAL.
    let new = || {
        let (_, mut metrics) = registered();
        let state = State {
            outbox: outbox.clone(),
            certificates: certificates.clone(),
        };
        state.register(metrics.registry());
        metrics
    };
    let metrics = new();
    assert_shows(
        &metrics,
        &[
            "watcher_outbox_events 0.0",
            "watcher_spool_writable 1.0",
            "watcher_resync_pending 0.0",
            "watcher_certificate_last_reload_successful 1.0",
            "watcher_certificate_reloads_total{result=\"success\"} 1",
            // 2100-01-01, see `testkit::pki`.
            "watcher_certificate_expiration_timestamp_seconds 4102444800.0",
        ],
    );
    let text = metrics.encode().unwrap();
    assert!(
        !text.contains("\nwatcher_outbox_oldest_event_age_seconds "),
        "nothing waits"
    );
    let manager = watcher_types::PathSegment::parse("kyma").unwrap();
    let stored = outbox.put(
        &manager,
        &watcher_types::WatchEvent::default(),
        Instant::now(),
    );
    assert_eq!(stored.name(), "spooled");
    assert_shows(&new(), &["watcher_outbox_events 1.0"]);
    // The time is one day later. A problem counts when two polls have found it.
    let expired = UNIX_EPOCH + Duration::from_hours(1_139_568 + 24);
    certificates.poll(expired);
    certificates.poll(expired);
    assert_shows(
        &metrics,
        &["watcher_certificate_last_reload_successful 0.0"],
    );
}
