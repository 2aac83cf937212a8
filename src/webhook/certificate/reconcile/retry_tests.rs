use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[test]
fn repairs_are_made_at_once_and_quarrels_slow_down() {
    let mut retry = RetryPolicy::default();
    let start = Instant::now();
    let second = |n| start + Duration::from_secs(n);
    for n in 0..3 {
        assert_eq!(retry.after_success(second(n), 0), Duration::ZERO);
    }
    assert_eq!(retry.after_success(second(4), 0), WRITE_BACKOFF.base / 2);
    assert_eq!(retry.after_success(second(5), 0), WRITE_BACKOFF.base);
    for n in 6..20 {
        retry.after_success(second(n), 0);
    }
    assert_eq!(retry.after_success(second(20), 0), WRITE_BACKOFF.cap / 2);
    assert_eq!(
        retry.after_success(second(81), 0),
        Duration::ZERO,
        "a minute of quiet"
    );
}

#[test]
fn failures_wait_longer_and_longer_until_one_succeeds() {
    let mut retry = RetryPolicy::default();
    let now = Instant::now();
    let failure = || Err(WriteError::Issue(rcgen::Error::CouldNotParseCertificate));
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        longest = retry.delay_after(&failure(), now);
    }
    assert!(longest >= WRITE_BACKOFF.cap / 2 && longest <= WRITE_BACKOFF.cap);
    assert_eq!(retry.delay_after(&Ok(()), now), Duration::ZERO);
    assert!(retry.delay_after(&failure(), now) <= WRITE_BACKOFF.base);
}

#[rstest]
#[case::conflict(409, true)]
#[case::forbidden(403, false)]
fn only_a_conflict_is_nothing_to_worry_about(#[case] code: u16, #[case] expected: bool) {
    let error = || answered(code, json!({}));
    for error in [WriteError::Secret(error()), WriteError::CaBundle(error())] {
        assert_eq!(error.is_conflict(), expected);
        let inner = std::error::Error::source(&error).unwrap().to_string();
        assert!(!error.to_string().contains(&inner) || inner.is_empty());
    }
    assert!(!WriteError::Issue(rcgen::Error::CouldNotParseCertificate).is_conflict());
}

#[test]
fn a_patch_that_does_not_fit_is_a_conflict_and_an_invalid_object_is_not() {
    let invalid = json!({"causes": [{"reason": "FieldValueInvalid", "field": "webhooks[0]", "message": "no"}]});
    for (details, expected) in [(Value::Null, true), (json!({}), true), (invalid, false)] {
        let error = || answered(422, details.clone());
        assert_eq!(WriteError::CaBundle(error()).is_conflict(), expected);
        assert!(!WriteError::Secret(error()).is_conflict());
    }
}

fn answered(code: u16, details: Value) -> kube::Error {
    let status = kube::core::Status {
        code,
        details: serde_json::from_value(details).unwrap(),
        ..Default::default()
    };
    kube::Error::Api(Box::new(status))
}
