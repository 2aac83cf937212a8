//! Requests with an ambiguous end, and clients that do not send all bytes.

use std::time::Duration;

use rstest::rstest;

use crate::fixture::{EVENT, Running, disabled, options, post};

const HEAD: &str = "POST /v2/kyma/event HTTP/1.1\r\nHost: kcp\r\n";

fn chunked() -> String {
    format!("{:x}\r\n{EVENT}\r\n0\r\n\r\n", EVENT.len())
}

/// A request to another path, after the end of the first request.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: kcp\r\n\r\n";

#[rstest]
#[case::length_then_chunked("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")]
#[case::chunked_then_length("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")]
#[case::two_lengths("Content-Length: 5\r\nContent-Length: 6\r\n\r\n")]
#[case::equal_lengths("Content-Length: 5\r\nContent-Length: 5\r\n\r\n")]
#[case::a_list_of_lengths("Content-Length: 5, 5\r\n\r\n")]
#[case::a_signed_length("Content-Length: +5\r\n\r\n")]
#[case::a_folded_line("X: a\r\n b\r\nContent-Length: 5\r\n\r\n")]
#[case::a_folded_encoding("Transfer-Encoding:\r\n chunked\r\n\r\n")]
#[case::a_blank_before_the_colon("Content-Length : 5\r\n\r\n")]
#[case::another_encoding("Transfer-Encoding: gzip\r\n\r\n")]
#[case::chunked_not_last("Transfer-Encoding: chunked, gzip\r\n\r\n")]
#[case::two_encodings("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n")]
#[case::a_nul_in_a_name("Content\0Length: 5\r\n\r\n")]
#[tokio::test]
async fn a_request_that_may_end_in_two_places_is_400_and_ends_the_connection(#[case] rest: &str) {
    let listener = Running::with(options(disabled())).await;
    let mut client = listener.connect().await;
    let answer = client
        .ask(&format!("{HEAD}{rest}{}{HIDDEN}", chunked()))
        .await
        .unwrap();
    assert_eq!((answer.status, answer.closes()), (400, true), "{answer:?}");
    client.closed().await.unwrap();
}

/// An old release of hyper accepted `Transfer-Encoding` from HTTP/1.0 clients.
#[tokio::test]
async fn http_1_0_has_no_chunks() {
    let listener = Running::with(options(disabled())).await;
    let head = HEAD.replace("1.1", "1.0");
    let request = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}", chunked());
    assert_eq!(listener.ask(&request).await.status, 400);
}

#[rstest]
#[case::a_chunk_size_that_overflows("10000000000000000\r\n")]
#[case::a_chunk_size_that_is_none("zz\r\n")]
#[case::a_signed_chunk_size("-1\r\n")]
#[tokio::test]
async fn broken_chunks_are_400(#[case] body: &str) {
    let listener = Running::with(options(disabled())).await;
    let request = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{body}");
    let answer = listener.ask(&request).await;
    assert_eq!((answer.status, answer.closes()), (400, true), "{answer:?}");
}

#[tokio::test]
async fn an_honest_request_in_pieces_is_served() {
    let listener = Running::with(options(disabled())).await;
    let mut client = listener.connect().await;
    let request = format!("\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n{}", chunked());
    for byte in request.as_bytes().chunks(7) {
        client
            .send(std::str::from_utf8(byte).unwrap())
            .await
            .unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(client.response().await.unwrap().status, 200);
    assert_eq!(client.ask(&post(&[], EVENT)).await.unwrap().status, 200);
}

/// Gateways do not pipeline. The start of the second header would be ambiguous.
#[tokio::test]
async fn a_pipelined_request_is_not_believed() {
    let listener = Running::with(options(disabled())).await;
    let mut client = listener.connect().await;
    let two = [post(&[], EVENT), post(&[], EVENT)].concat();
    assert_eq!(client.ask(&two).await.unwrap().status, 200);
    let second = client.response().await.unwrap();
    assert_eq!((second.status, second.closes()), (400, true));
    client.closed().await.unwrap();
}

#[rstest]
#[case::nothing("")]
#[case::half_a_header("POST /v2/kyma/event HTTP/1.1\r\nHost:")]
#[case::half_a_body("POST /v2/kyma/event HTTP/1.1\r\nHost: kcp\r\nContent-Length: 9\r\n\r\n{")]
#[tokio::test]
async fn a_client_that_withholds_bytes_is_disconnected(#[case] sent: &str) {
    const BODIES: &str =
        r#"watcher_listener_server_request_body_bytes{server_name="listener",manager="kyma"}"#;
    let listener = Running::with(options(disabled())).await;
    let mut client = listener.connect().await;
    client.send(sent).await.unwrap();
    // A paused clock does not wait for bytes that are in transit, so it is only paused when the listener has read them. The
    // listener has read a header after a round trip, and counts a body.
    assert_eq!(listener.ask(&post(&[], EVENT)).await.status, 200);
    let body = if sent.ends_with('{') { 16_384.0 } else { 0.0 };
    listener.until_metric(BODIES, body).await;
    tokio::time::pause();
    client.patience = Duration::from_hours(30 * 24);
    if sent.ends_with('{') {
        let answer = client.response().await.unwrap();
        assert_eq!((answer.status, answer.closes()), (408, true));
    }
    client.closed().await.unwrap();
}
