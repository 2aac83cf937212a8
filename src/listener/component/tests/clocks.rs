//! A clock of the listener that differs from the clock of the CA.

use std::time::{Duration, SystemTime};

use rstest::rstest;
use testkit::logs::Logs;
use testkit::pki::rcgen::date_time_ymd;
use testkit::pki::today;
use tracing::Level;

use crate::fixture::{EVENT, Running, ca, check, element, forwarded, options, post, watcher_with};
use crate::{Authentication, CertificateCheck};

const DIFFERENCE: Duration = Duration::from_mins(10);
const FAILED: &str = r#"watcher_listener_failed_verification_requests_total{server_name="listener",manager="kyma",request_uri_label="/v2/kyma/event"}"#;

/// Returns the midnight before [`today`], at which the CA issues the certificate.
fn issued() -> SystemTime {
    today() - Duration::from_hours(8)
}

/// The operator sees the reason in the log, with both times, and in the metric.
#[rstest]
#[case::behind(|| issued() - DIFFERENCE, 401)]
#[case::equal(issued, 200)]
#[case::ahead(|| issued() + DIFFERENCE, 200)]
#[tokio::test]
async fn a_certificate_that_was_just_issued_is_rejected_by_a_clock_that_is_behind(
    #[case] clock: fn() -> SystemTime,
    #[case] status: u16,
) {
    let logs = Logs::of(Level::INFO);
    let authority = ca();
    let leaf = watcher_with(&authority, |params| {
        params.not_before = date_time_ymd(2027, 1, 15);
    });
    let check = CertificateCheck {
        clock,
        ..check(&authority)
    };
    let listener = Running::with(options(Authentication::Certificate(check))).await;
    let request = post(&[&forwarded(&element(&leaf))], EVENT);
    assert_eq!(listener.ask(&request).await.status, status);
    let is_rejected = status == 401;
    let lines = logs.lines();
    let is_named =
        |line: &String| line.contains("request rejected") && line.contains("CertNotValidYet");
    assert_eq!(lines.iter().any(is_named), is_rejected, "{lines:?}");
    assert_eq!(listener.metric(FAILED) == Some(1.0), is_rejected);
}
