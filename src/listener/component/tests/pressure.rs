//! Tests with operators that take no notifications, and verifiers that do not respond.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rstest::rstest;
use testkit::pki::Authority;
use tokio::sync::Notify;

use crate::fixture::{
    EVENT, RUNTIME, Running, ca, check, disabled, forwarded, options, post, url_encode,
    watcher_header,
};
use crate::{
    Authentication, CertificateCheck, ClientIdentity, Options, RuntimeId, Verifier, VerifyError,
};

fn narrow(authentication: Authentication) -> Options {
    Options {
        queued_events: 1,
        retry_after: Duration::from_secs(7),
        ..options(authentication)
    }
}

fn other_event() -> String {
    EVENT.replace("\"n\"", "\"other\"")
}

/// Without a consumer the public listener hangs.
#[tokio::test]
async fn operator_that_takes_nothing_makes_no_request_wait() {
    let mut listener = Running::with(narrow(disabled())).await;
    let mut client = listener.connect().await;
    assert_eq!(client.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    let full = client.ask(&post(&[], &other_event())).await.unwrap();
    assert_eq!((full.status, full.closes()), (503, false));
    assert_eq!(full.header("retry-after"), Some("7"));
    // An equal event requires no capacity.
    assert_eq!(client.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    assert!(listener.next_event().await.is_some());
    assert_eq!(
        client.ask(&post(&[], &other_event())).await.unwrap().status,
        200
    );
    for (metric, value) in [
        ("events_total", 2.0),
        ("coalesced_events_total", 1.0),
        ("queued_events", 1.0),
    ] {
        let series =
            format!(r#"watcher_listener_{metric}{{server_name="listener",manager="kyma"}}"#);
        assert_eq!(listener.metric(&series), Some(value), "{metric}");
    }
    let rejected = r#"watcher_listener_rejected_events_total{server_name="listener",manager="kyma",reason="queue_full"}"#;
    assert_eq!(listener.metric(rejected), Some(1.0));
}

#[tokio::test]
async fn runtime_over_its_limit_gets_429_and_another_is_served() {
    let authority = ca();
    let options = Options {
        queued_events_per_runtime: 2,
        ..options(Authentication::Certificate(check(&authority)))
    };
    let mut listener = Running::with(options).await;
    let header = watcher_header(&authority);
    let other = authority.leaf("other").unwrap();
    let other = forwarded(&format!("Cert={}", url_encode(&other.pem)));
    let mut client = listener.connect().await;
    let mut flood = Vec::new();
    for name in 0..2_000 {
        let event = EVENT.replace("\"n\"", &format!("\"{name}\""));
        let answer = client.ask(&post(&[&header], &event)).await.unwrap();
        // The gateway need not reconnect.
        assert!(!answer.closes());
        flood.push((
            answer.status,
            answer.header("retry-after").map(str::to_owned),
        ));
    }
    assert_eq!(flood[..2], [(200, None), (200, None)]);
    let rejected = (429, Some("5".to_owned()));
    assert!(flood[2..].iter().all(|it| *it == rejected));
    assert_eq!(
        client.ask(&post(&[&other], EVENT)).await.unwrap().status,
        200
    );
    let mut runtimes = Vec::new();
    for _ in 0..3 {
        let event = listener.next_event().await.unwrap();
        runtimes.push(event.runtime_id.as_str().to_owned());
    }
    assert_eq!(runtimes, [RUNTIME, "other", RUNTIME]);
    let rejected = r#"watcher_listener_rejected_events_total{server_name="listener",manager="kyma",reason="runtime_limit"}"#;
    assert_eq!(listener.metric(rejected), Some(1_998.0));
}

#[tokio::test]
async fn queued_events_is_zero_once_all_events_are_taken() {
    let mut listener = Running::with(options(disabled())).await;
    let series = r#"watcher_listener_queued_events{server_name="listener",manager="kyma"}"#;
    for name in ["a", "b", "c"] {
        let event = EVENT.replace("\"n\"", &format!("{name:?}"));
        assert_eq!(listener.ask(&post(&[], &event)).await.status, 200);
    }
    assert_eq!(listener.metric(series), Some(3.0));
    for _ in 0..3 {
        assert!(listener.next_event().await.is_some());
    }
    assert_eq!(listener.metric(series), Some(0.0));
}

/// `Retry-After` is in whole seconds.
#[rstest]
#[case::less_than_a_second(500, "1")]
#[case::whole_seconds(7_000, "7")]
#[case::more(7_001, "8")]
#[tokio::test]
async fn without_an_operator_senders_are_asked_to_come_again(
    #[case] milliseconds: u64,
    #[case] expected: &str,
) {
    let options = Options {
        retry_after: Duration::from_millis(milliseconds),
        ..options(disabled())
    };
    let mut listener = Running::with(options).await;
    listener.notifications = None;
    let answer = listener.ask(&post(&[], EVENT)).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some(expected))
    );
}

/// Responds after it is released.
struct Waiting(Arc<Notify>);

impl Verifier for Waiting {
    fn verify(&self, identity: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        let id = identity
            .certificate
            .common_name()
            .and_then(RuntimeId::parse);
        Box::pin(async move {
            self.0.notified().await;
            id.ok_or(VerifyError::NoRuntimeId)
        })
    }
}

async fn waiting(authority: &Authority, patience: Duration) -> (Running, Arc<Notify>) {
    let release = Arc::new(Notify::new());
    let check = CertificateCheck {
        verifier: Arc::new(Waiting(Arc::clone(&release))),
        verifier_timeout: patience,
        ..check(authority)
    };
    let listener = Running::with(options(Authentication::Certificate(check))).await;
    (listener, release)
}

#[tokio::test]
async fn a_verifier_that_does_not_answer_is_waited_for_only_so_long() {
    let authority = ca();
    let (listener, _release) = waiting(&authority, Duration::from_millis(20)).await;
    let header = watcher_header(&authority);
    let answer = listener.ask(&post(&[&header], EVENT)).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), Some("5"));
}

const IN_FLIGHT: &str =
    r#"watcher_listener_inflight_requests{server_name="listener",manager="kyma"}"#;

/// The public gauge is always 0.
#[rstest]
#[case::answered(true)]
#[case::abandoned_by_its_sender(false)]
#[tokio::test]
async fn requests_in_flight_are_counted_until_they_end(#[case] answered: bool) {
    let authority = ca();
    let (listener, release) = waiting(&authority, Duration::from_mins(1)).await;
    let header = watcher_header(&authority);
    let mut client = listener.connect().await;
    client.send(&post(&[&header], EVENT)).await.unwrap();
    listener.until_metric(IN_FLIGHT, 1.0).await;
    if answered {
        release.notify_one();
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    drop(client);
    listener.until_metric(IN_FLIGHT, 0.0).await;
}

/// All six metrics of the public listener exist, and the error counter counts.
#[tokio::test]
async fn metrics_have_the_public_names_and_count_errors() {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    listener.ask(&post(&[&header], EVENT)).await;
    listener.ask(&post(&[&header], "no json")).await;
    listener.ask(&post(&[], EVENT)).await;
    let value = |name: &str| {
        listener.metric(&format!(
            r#"{name}{{server_name="listener",manager="kyma"}}"#
        ))
    };
    assert_eq!(value("watcher_listener_requests_total"), Some(3.0));
    assert_eq!(value("watcher_listener_request_errors_total"), Some(2.0));
    assert_eq!(value("watcher_listener_inflight_requests"), Some(0.0));
    assert_eq!(
        value("watcher_listener_exceeding_size_limit_requests_total"),
        Some(0.0)
    );
    assert!(value("watcher_listener_request_duration").is_some_and(|seconds| seconds > 0.0));
    assert_eq!(
        value("watcher_listener_request_duration_seconds_count"),
        Some(3.0)
    );
    let refused = r#"watcher_listener_failed_verification_requests_total{server_name="listener",manager="kyma",request_uri_label="/v2/kyma/event"}"#;
    assert_eq!(listener.metric(refused), Some(1.0));
}

/// A verifier that panics.
struct Defective;

impl Verifier for Defective {
    fn verify(&self, _: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        panic!("a defect of the operator's verifier")
    }
}

#[tokio::test]
async fn a_defect_of_a_verifier_costs_one_answer() {
    let authority = ca();
    let check = CertificateCheck {
        verifier: Arc::new(Defective),
        ..check(&authority)
    };
    let listener = Running::with(options(Authentication::Certificate(check))).await;
    let header = watcher_header(&authority);
    assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, 500);
    assert_eq!(listener.ask(&post(&[], EVENT)).await.status, 401);
}
