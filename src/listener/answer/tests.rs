//! What is told, and what is not.

use std::error::Error as _;

use rstest::rstest;

use super::*;

fn unavailable() -> Refused {
    Refused::Verifier(Refusal::Unavailable("secret address".into()))
}

#[rstest]
#[case::repeatable(Refused::QueueFull, 503)]
#[case::also_without_an_operator(Refused::Abandoned, 503)]
#[case::not_to_be_told_now(unavailable(), 503)]
#[case::gateway(Refused::NotTheGateway, 403)]
#[case::nobody(Refused::Forwarded(ForwardedError::Missing), 401)]
#[case::malformed(Refused::Malformed(Malformed), 401)]
#[case::chain(Refused::Chain(ChainError::Usage), 401)]
#[case::nameless(Refused::Verifier(Refusal::NoRuntimeId), 400)]
#[case::denied(Refused::Verifier(Refusal::Denied("no".into())), 403)]
#[case::late(Refused::BodyLate, 408)]
#[case::lost(Refused::BodyLost, 400)]
#[case::large(Refused::Body(EventError::TooLarge), 413)]
#[case::strange(Refused::Body(EventError::Version), 400)]
#[case::header(Refused::HeaderTooLarge, 431)]
fn each_refusal_has_its_status_and_only_503_asks_to_come_again(
    #[case] refused: Refused,
    #[case] status: u16,
) {
    let response = refused.response(&HeaderValue::from_static("5"));
    assert_eq!(response.status(), status);
    assert_eq!(response.headers().contains_key(RETRY_AFTER), status == 503);
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
    let refused = Refused::Body(EventError::Json(quoting));
    assert!(!refused.text().contains("x1b") && !refused.reason().contains("x1b"));
}

#[test]
fn no_text_repeats_its_cause() {
    let quoting = serde_json::from_str::<u8>("\"x\"").unwrap_err();
    for refused in [
        Refused::Forwarded(ForwardedError::Hash),
        Refused::Malformed(Malformed),
        Refused::Chain(ChainError::Usage),
        Refused::Body(EventError::Json(quoting)),
        unavailable(),
    ] {
        let cause = refused.source().unwrap().to_string();
        assert!(!refused.to_string().contains(&cause), "{refused}");
    }
}
