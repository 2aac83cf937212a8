//! Tests of the content of responses and log messages.

use std::error::Error as _;
use std::sync::Arc;

use rstest::rstest;

use testkit::logs::Logs;
use testkit::pki::rcgen::{CertificateParams, DnType};
use testkit::pki::{Authority, expired};
use tokio::time::advance;
use tracing::Level;

use super::*;
use crate::authentication::{Authentication, CertificateCheck, ClientIdentity};
use crate::fixture::{
    EVENT, RUNTIME, Running, ca, check, element, forwarded, hash, options, post, post_to,
    watcher_header, watcher_with,
};

fn unavailable() -> Rejection {
    Rejection::Verifier(VerifyError::Unavailable("secret address".into()))
}

#[rstest]
#[case::repeatable(Rejection::QueueFull, 503)]
#[case::also_without_an_operator(Rejection::QueueClosed, 503)]
#[case::not_to_be_told_now(unavailable(), 503)]
#[case::too_many_of_the_runtime(Rejection::RuntimeLimit, 429)]
#[case::gateway(Rejection::NotTheGateway, 403)]
#[case::without_certificate(Rejection::Forwarded(ForwardedError::Missing), 401)]
#[case::malformed(Rejection::Certificate(CertificateError::Malformed), 401)]
#[case::chain(Rejection::Certificate(CertificateError::Usage), 401)]
#[case::nameless(Rejection::Verifier(VerifyError::NoRuntimeId), 400)]
#[case::denied(Rejection::Verifier(VerifyError::Denied("no".into())), 403)]
#[case::late(Rejection::BodyTimeout, 408)]
#[case::lost(Rejection::BodyIncomplete, 400)]
#[case::large(Rejection::Body(EventError::TooLarge), 413)]
#[case::strange(Rejection::Body(EventError::Version), 400)]
#[case::header(Rejection::HeaderTooLarge, 431)]
fn each_rejection_has_its_status_and_only_429_and_503_ask_for_a_retry(
    #[case] rejection: Rejection,
    #[case] status: u16,
) {
    let response = rejection.response(&HeaderValue::from_static("5"));
    assert_eq!(response.status(), status);
    let retried = response.headers().contains_key(RETRY_AFTER);
    assert_eq!(retried, matches!(status, 429 | 503));
    assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
}

#[test]
fn the_cause_of_an_outage_stays_in_the_log() {
    assert!(!unavailable().text().contains("secret"));
    assert!(unavailable().reason().contains("secret"));
}

#[test]
fn what_a_sender_wrote_is_in_neither() {
    let quoting = serde_json::from_str::<u8>("\"x1b[2J\"").unwrap_err();
    assert!(quoting.to_string().contains("x1b"));
    let rejection = Rejection::Body(EventError::Json(quoting));
    assert!(!rejection.text().contains("x1b") && !rejection.reason().contains("x1b"));
}

#[test]
fn no_text_repeats_its_cause() {
    let quoting = serde_json::from_str::<u8>("\"x\"").unwrap_err();
    for rejection in [
        Rejection::Forwarded(ForwardedError::Hash),
        Rejection::Certificate(CertificateError::Malformed),
        Rejection::Certificate(CertificateError::Usage),
        Rejection::Body(EventError::Json(quoting)),
        unavailable(),
    ] {
        let cause = rejection.source().unwrap().to_string();
        assert!(!rejection.to_string().contains(&cause), "{rejection}");
    }
}

#[tokio::test]
async fn rejection_is_logged_with_the_claimed_client_once_for_each_reason() {
    let written = Logs::of(Level::INFO);
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let valid = watcher_header(&authority);
    let heartbeat =
        r#"{"bootId":"b","sequence":0,"spoolDepth":0,"oldestAgeSeconds":0,"version":"1"}"#;
    let heartbeat = post_to("/v2/kyma/event/heartbeat", &[&valid], heartbeat);
    assert_eq!(listener.ask(&heartbeat).await.status, 200);
    let leaf = watcher_with(&authority, expired);
    let expired = forwarded(&element(&leaf));
    for _ in 0..3 {
        let body = r#"{"watched":"S3cr3t"}"#;
        assert_eq!(listener.ask(&post(&[&expired], EVENT)).await.status, 401);
        assert_eq!(listener.ask(&post(&[&expired], body)).await.status, 401);
    }
    let lines = written.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        RUNTIME,
        &*hash(&leaf),
        "401",
        "CertExpired",
        "peer=127.0.0.1:",
    ] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    assert_eq!(
        listener
            .ask(&post(&[&valid], r#"{"watched":"S3cr3t"}"#))
            .await
            .status,
        400
    );
    assert_eq!(listener.ask(&post(&[], EVENT)).await.status, 401);
    let lines = written.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(!lines.concat().contains("S3cr3t"), "{lines:?}");
    let [runtime] = listener.liveness.snapshot().try_into().unwrap();
    let last = runtime.last_rejection.unwrap();
    assert!(last.reason.starts_with("body rejected"), "{last:?}");
}

/// Runs a listener whose verifier fails, as with an API server that does not respond.
async fn without_a_verifier(authority: &Authority) -> Running {
    let verify = |_: ClientIdentity| async { Err(VerifyError::Unavailable("no route".into())) };
    let check = CertificateCheck {
        verifier: Arc::new(verify),
        ..check(authority)
    };
    Running::with(options(Authentication::Certificate(check))).await
}

const HEARTBEAT: &str =
    r#"{"bootId":"b","sequence":0,"spoolDepth":0,"oldestAgeSeconds":0,"version":"S3cr3t"}"#;

#[tokio::test]
async fn verifier_that_fails_is_logged_as_a_warning_and_counted() {
    let written = Logs::of(Level::INFO);
    let authority = ca();
    let listener = without_a_verifier(&authority).await;
    let header = watcher_header(&authority);
    let event = EVENT.replace("\"n\"", "\"S3cr3t\"");
    let heartbeat = post_to("/v2/kyma/event/heartbeat", &[&header], HEARTBEAT);
    for _ in 0..3 {
        assert_eq!(listener.ask(&post(&[&header], &event)).await.status, 503);
        assert_eq!(listener.ask(&heartbeat).await.status, 503);
    }
    let lines = written.lines();
    assert_eq!((lines.len(), written.alarms()), (1, 1), "{lines:?}");
    for part in [RUNTIME, "503", "no route", "peer=127.0.0.1:"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    assert!(!lines[0].contains("S3cr3t"), "{lines:?}");
    let rejected = r#"watcher_listener_rejected_events_total{server_name="listener",manager="kyma",reason="verifier_unavailable"}"#;
    assert_eq!(listener.metric(rejected), Some(6.0));
}

/// Neither kind of rejection suppresses the other.
#[tokio::test]
async fn floods_of_both_kinds_of_rejections_are_logged_within_their_bounds() {
    let written = Logs::of(Level::INFO);
    let authority = ca();
    let listener = without_a_verifier(&authority).await;
    for number in 0..50 {
        let name = |params: &mut CertificateParams| {
            let name = format!("runtime-{number}");
            params.distinguished_name.push(DnType::CommonName, name);
        };
        for (authority, status) in [(&ca(), 401), (&authority, 503)] {
            let header = forwarded(&element(&watcher_with(authority, name)));
            assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, status);
        }
    }
    assert_eq!((written.alarms(), written.lines().len()), (30, 60));
}

#[tokio::test]
async fn operator_that_takes_nothing_is_logged_as_a_warning() {
    let written = Logs::of(Level::INFO);
    let authority = ca();
    let mut listener = Running::trusting(&authority).await;
    listener.notifications = None;
    let header = watcher_header(&authority);
    assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, 503);
    let lines = written.lines();
    assert_eq!((lines.len(), written.alarms()), (1, 1), "{lines:?}");
    assert!(lines[0].contains("queue closed"), "{lines:?}");
}

#[tokio::test]
async fn claimed_name_is_cut_and_escaped() {
    let written = Logs::of(Level::INFO);
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let long = |params: &mut CertificateParams| {
        let name = format!("a\nb{}", "\u{e9}".repeat(200));
        params.distinguished_name.push(DnType::CommonName, name);
    };
    let header = forwarded(&element(&watcher_with(&authority, long)));
    assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, 400);
    let [line] = written.lines().try_into().unwrap();
    assert!(line.contains(r#""a\nb"#) && line.len() < 600, "{line}");
}

#[tokio::test(start_paused = true)]
async fn log_lines_are_bounded_and_suppressed_ones_counted() {
    let mut logged = Logged::default();
    let mut admit = |name: usize, reason: &str| {
        logged.admit(&name.to_string(), reason.to_owned(), Instant::now())
    };
    let admitted = (0..100).filter(|name| admit(*name, "expired").is_some());
    assert_eq!(admitted.count(), 30);
    advance(Duration::from_mins(1)).await;
    assert_eq!(admit(0, "expired"), None, "logged already");
    assert_eq!(admit(0, "denied"), Some(70));
    assert_eq!(admit(1, "denied"), Some(0));
    assert_eq!(admit(99, "expired"), Some(0), "suppressed is not logged");
    advance(Duration::from_hours(1)).await;
    assert_eq!(admit(0, "denied"), Some(0), "a reminder");
    for name in 0..10_000 {
        admit(name, "expired");
        advance(Duration::from_secs(2)).await;
    }
    assert!(logged.reasons.len() <= NAMES);
}
