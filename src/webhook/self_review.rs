//! Readiness by a real request: ready only after this process answered a review to itself over TLS, verified as an API
//! server would verify it (a listening socket proves nothing).

use std::time::Duration;

use api::names::WEBHOOK_PATH;
use axum::body::Bytes;
use axum::http::StatusCode;
use chassis::readiness::Condition;
use chassis::telemetry::error_chain;

use crate::certificate::{Bundle, Question, self_probe};

/// How often it is tried until it succeeds.
const EVERY: Duration = Duration::from_millis(500);

/// How long one try may take: the API server itself gives up after 3 s.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// A review of a Pod that asks for nothing.
const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"self-review","resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","dryRun":true,"object":{"metadata":{"annotations":{}},"spec":{"containers":[]}}}}"#;

/// Asks until there is a proper answer. Once ready it stays so: what may break later (an expired leaf, a lost watch) has
/// a condition of its own, and a false alarm here would take every replica away at once.
pub async fn until_answered(
    port: u16,
    server_name: &str,
    trust: impl Fn() -> Bundle,
    condition: &Condition,
) {
    condition.not_ready("no response to the self-review yet");
    let question = Question {
        port,
        server_name: server_name.to_owned(),
        path: WEBHOOK_PATH.to_owned(),
        body: Bytes::from_static(REVIEW.as_bytes()),
        time_limit: TIME_LIMIT,
    };
    loop {
        match self_probe(&question, &trust()).await {
            Ok(answer) if is_proper(answer.status, &answer.body) => {
                condition.ready();
                tracing::info!("self-review succeeded");
                return;
            }
            Ok(answer) => {
                condition.not_ready(format!(
                    "self-review answered with status {}",
                    answer.status
                ));
            }
            Err(error) => condition.not_ready(error_chain(&error)),
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn is_proper(status: StatusCode, body: &[u8]) -> bool {
    let answer: Result<serde_json::Value, _> = serde_json::from_slice(body);
    status == StatusCode::OK
        && answer.is_ok_and(|answer| {
            answer["response"]["uid"] == "self-review" && answer["response"]["allowed"] == true
        })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::proper(200, r#"{"response":{"uid":"self-review","allowed":true}}"#, true)]
    #[case::denied(200, r#"{"response":{"uid":"self-review","allowed":false}}"#, false)]
    #[case::anothers(200, r#"{"response":{"uid":"other","allowed":true}}"#, false)]
    #[case::no_json(200, "ok", false)]
    #[case::an_error(500, r#"{"response":{"uid":"self-review","allowed":true}}"#, false)]
    fn only_a_proper_answer_counts(#[case] status: u16, #[case] body: &str, #[case] proper: bool) {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(is_proper(status, body.as_bytes()), proper);
    }

    #[test]
    fn the_review_is_one() {
        let review = policy::admission::review::parse(REVIEW.as_bytes()).unwrap();
        assert!(review.dry_run);
    }
}
