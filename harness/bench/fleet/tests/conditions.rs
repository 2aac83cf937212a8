//! What a runtime may have against its clients.

use std::time::{Duration, Instant};

use http::StatusCode;
use rstest::rstest;
use serde_json::json;

use super::*;
use testkit::until::until;

#[rstest]
#[case::throttled(Faults { throttled: 1000, retry_after: 7, ..Faults::default() }, 429)]
#[case::failing(Faults { failing: 1000, ..Faults::default() }, 500)]
#[case::conflicting(Faults { conflicting: 1000, ..Faults::default() }, 409)]
#[tokio::test]
async fn faults_answer_in_place_of_the_runtime(#[case] faults: Faults, #[case] expected: u16) {
    let conditions = Conditions {
        faults,
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let (status, headers, body) = call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(status, expected);
    // Priority and fairness answers with text, before anything looks at the request.
    let code = (expected != 429).then(|| json!(expected));
    assert_eq!(body["code"], code.unwrap_or_default());
    let retry_after = headers.get("retry-after").map(|it| it.to_str().unwrap());
    assert_eq!(retry_after, (expected == 429).then_some("7"));
    let counts = fleet.totals().counts;
    assert_eq!((counts.spoiled, counts.writes), (1, 0));
}

#[rstest]
#[case::stalled(Conditions { faults: Faults { stalled: 1000, ..Faults::default() }, ..Conditions::default() }, false)]
#[case::silent(Conditions { reach: Reach::Silent, ..Conditions::default() }, false)]
#[case::refusing(Conditions { reach: Reach::Refusing, ..Conditions::default() }, true)]
#[case::reset(Conditions { faults: Faults { reset: 1000, ..Faults::default() }, ..Conditions::default() }, true)]
#[case::expired(Conditions { certificate: Certificate::Expired, ..Conditions::default() }, true)]
#[tokio::test]
async fn a_runtime_that_cannot_be_talked_to_delays_no_other(
    #[case] conditions: Conditions,
    #[case] fails: bool,
) {
    let fleet = fleet(2, Conditions::default()).await;
    fleet.set(&Selection::Numbers(vec![0]), conditions);
    let (bad, good) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let answer =
        tokio::time::timeout(Duration::from_millis(200), call(&bad, get("/version"))).await;
    // Either an error at once, or nothing until the client gives up.
    assert_eq!(
        answer.as_ref().is_ok_and(Result::is_err),
        fails,
        "{answer:?}"
    );
    assert_eq!(answer.is_err(), !fails);
    assert_eq!(status(&good, get("/version")).await, StatusCode::OK);
}

#[tokio::test]
async fn a_reset_may_come_before_the_write_or_after_it() {
    let fleet = fleet(1, Conditions::default()).await;
    let faults = Faults {
        reset: 1000,
        ..Faults::default()
    };
    let conditions = Conditions {
        faults,
        ..Conditions::default()
    };
    fleet.set(&Selection::All, conditions);
    for number in 0..16 {
        let client = client(&fleet, 0).await;
        let object = secret(&format!("{number:04}"));
        call(&client, apply(SECRET, &object)).await.unwrap_err();
    }
    let writes = fleet.totals().counts.writes;
    assert!((1..16).contains(&writes), "{writes} of 16 were carried out");
}

#[tokio::test]
async fn distance_and_drops_take_their_time() {
    let conditions = Conditions {
        latency: Duration::from_millis(40),
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let timed = async |path: &str| {
        let begin = Instant::now();
        assert_eq!(status(&client, get(path)).await, StatusCode::OK);
        begin.elapsed()
    };
    let first = timed("/version").await;
    let second = timed("/version").await;
    assert!(first >= Duration::from_millis(120), "{first:?}");
    assert!(
        second >= Duration::from_millis(40) && second < first,
        "{second:?}"
    );
    let slow = Conditions {
        drip: Duration::from_millis(20),
        ..Conditions::default()
    };
    fleet.set(&Selection::All, slow);
    let dripped = timed("/api/v1").await;
    assert!(dripped >= Duration::from_millis(100), "{dripped:?}");
}

#[rstest]
#[case(Writes::Forbidden, 403, "cannot patch resource")]
#[case(Writes::NamespaceTerminating, 403, "being terminated")]
#[case(Writes::QuotaExceeded, 403, "exceeded quota")]
#[tokio::test]
async fn writes_may_be_refused(#[case] writes: Writes, #[case] code: u16, #[case] why: &str) {
    let fleet = fleet(1, Conditions::default()).await;
    let conditions = Conditions {
        writes,
        ..Conditions::default()
    };
    fleet.set(&Selection::All, conditions);
    let client = client(&fleet, 0).await;
    let (status, _, body) = call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    let message = body["message"].as_str().unwrap();
    assert!(status.as_u16() == code && message.contains(why), "{body}");
}

#[rstest]
#[case(Rollout::Immediate, Some(true))]
#[case(Rollout::Stuck, Some(false))]
#[case(Rollout::Takes(60_000), Some(false))]
#[case(Rollout::Takes(50), None)]
#[tokio::test]
async fn a_deployment_becomes_available_as_the_runtime_has_it(
    #[case] rollout: Rollout,
    #[case] at_once: Option<bool>,
) {
    let conditions = Conditions {
        rollout,
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let path = "/apis/apps/v1/namespaces/kyma-system/deployments/web";
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}},
    });
    let (_, _, body) = call(&client, apply(path, &deployment)).await.unwrap();
    assert_eq!(
        body["status"]["observedGeneration"],
        body["metadata"]["generation"]
    );
    let available = |body: &Value| body["status"]["conditions"][0]["status"] == "True";
    if let Some(at_once) = at_once {
        assert_eq!(available(&body), at_once, "{body}");
    }
    if at_once.is_none() {
        until("the Deployment is available", PATIENCE, || async {
            available(&call(&client, get(path)).await.unwrap().2)
        })
        .await
        .unwrap();
    }
}
