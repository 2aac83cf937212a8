//! Tests with many clients that occupy connections or memory and never complete a request.

use rstest::rstest;

use crate::Options;
use crate::fixture::{EVENT, Running, disabled, options, post};

const CONNECTIONS: usize = 64;
const EVICTED: &str =
    r#"watcher_listener_server_connections_evicted_total{server_name="listener",manager="kyma"}"#;

#[rstest]
#[case::silent("")]
#[case::half_a_header("POST /v2/kyma/event HTTP/1.1\r\nA: ")]
#[case::half_a_body("POST /v2/kyma/event HTTP/1.1\r\nHost: kcp\r\nContent-Length: 100\r\n\r\n{")]
#[tokio::test]
async fn requests_of_the_gateway_are_answered_during_a_flood(#[case] sent: &str) {
    let listener = Running::with(Options {
        connections: CONNECTIONS,
        ..options(disabled())
    })
    .await;
    let mut kept_alive = listener.connect().await;
    assert_eq!(kept_alive.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    let mut hostile = Vec::new();
    for _ in 0..4 * CONNECTIONS {
        let mut client = listener.connect().await;
        client.send(sent).await.unwrap();
        hostile.push(client);
    }
    assert_eq!(kept_alive.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    assert_eq!(listener.ask(&post(&[], EVENT)).await.status, 200);
    let evicted = listener.metric(EVICTED);
    assert!(evicted.unwrap() >= 3.0 * 64.0, "{evicted:?}");
}
