//! Tests of requests and their limits.

use std::time::{Duration, Instant};

use rstest::rstest;
use testkit::tls::{RawResponse, RawTlsClient};

use super::fixture::{GET, Running, limits};
use crate::io::LINGERING_CLOSE;
use crate::{Counter, Limits};

/// Short enough for a test. No other step depends on it.
const SHORT: Duration = Duration::from_millis(50);

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const CHUNKED: &str =
    "POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns the response to a request that the server does not read to its end. The server drops the rest for a time, and resets
/// the connection of a client that has not sent it by then.
async fn ask_in_part(client: &mut RawTlsClient, request: &str) -> RawResponse {
    let begin = Instant::now();
    if let Err(error) = client.send(request).await {
        let elapsed = begin.elapsed();
        assert!(elapsed >= LINGERING_CLOSE, "{error} after {elapsed:?}");
    }
    client.response().await.unwrap()
}

#[tokio::test]
async fn bodies_up_to_the_limit_are_read_also_beyond_what_axum_allows_by_itself() {
    let server = Running::with(Limits {
        body_bytes: 3_000_000,
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    let answer = client
        .ask(&post("/size", &"x".repeat(3_000_000)))
        .await
        .unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "3000000"));
    let answer = client
        .ask(&format!("{CHUNKED}3\r\nabc\r\n0\r\n\r\n"))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.closes()),
        (200, "3", false)
    );
}

#[rstest]
#[case::announced_and_not_sent("POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n".to_owned())]
#[case::announced_and_sent(post("/size", &"x".repeat(1_000_000)))]
#[case::more_than_the_kernel_keeps(post("/size", &"x".repeat(20_000_000)))]
#[case::chunked(format!("{CHUNKED}6\r\nabcdef\r\n6\r\nabcdef\r\n0\r\n\r\n"))]
#[case::chunked_without_end(format!("{CHUNKED}ff\r\n{}", "x".repeat(20)))]
#[case::swallowed_by_the_handler(CHUNKED.replace("/size", "/stubborn") + "c\r\nabcdefabcdef\r\n0\r\n\r\n")]
#[case::expecting_to_continue("POST /size HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n".to_owned())]
#[tokio::test]
async fn too_large_a_body_is_413(#[case] request: String) {
    let server = Running::with(Limits {
        body_bytes: 10,
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    let answer = ask_in_part(&mut client, &request).await;
    assert_eq!((answer.status, answer.closes()), (413, true), "{answer:?}");
    assert_eq!(answer.body, "the body is larger than 10 bytes\n");
    client.closed().await.unwrap();
    assert_eq!(server.statistics.get(Counter::BodyTooLarge), 1);
}

#[rstest]
#[case::by_length("POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\nabc")]
#[case::by_chunks(
    "POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
)]
#[case::swallowed_by_the_handler(
    "POST /stubborn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\nabc"
)]
#[tokio::test]
async fn a_slow_body_is_408(#[case] request: &str) {
    let server = Running::with(Limits {
        body: SHORT,
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    let answer = client.ask(request).await.unwrap();
    assert_eq!((answer.status, answer.closes()), (408, true), "{answer:?}");
    client.closed().await.unwrap();
    assert_eq!(server.statistics.get(Counter::BodyTimeouts), 1);
}

#[rstest]
#[case::stalled("GET / HTTP/1.1\r\nHost: loc")]
#[case::one_byte("G")]
#[tokio::test]
async fn a_slow_header_ends_the_connection(#[case] start: &str) {
    let server = Running::with(Limits {
        header: SHORT,
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    client.send(start).await.unwrap();
    client.closed().await.unwrap();
    server
        .until(|seen| seen.get(Counter::HeaderTimeouts) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

#[tokio::test]
async fn a_slow_header_of_a_later_request_ends_the_connection_too() {
    let server = Running::with(Limits {
        header: SHORT,
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    assert_eq!(client.ask(GET).await.unwrap().status, 200);
    client.send("GET / HT").await.unwrap();
    client.closed().await.unwrap();
    server
        .until(|seen| seen.get(Counter::HeaderTimeouts) == 1)
        .await;
}

#[rstest]
#[case::never_used(0)]
#[case::used(1)]
#[tokio::test]
async fn an_idle_connection_ends_quietly(#[case] requests: usize) {
    let server = Running::with(Limits {
        idle: SHORT,
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    for _ in 0..requests {
        assert_eq!(client.ask(GET).await.unwrap().status, 200);
    }
    client.closed().await.unwrap();
    server.until(|seen| seen.get(Counter::Open) == 0).await;
    assert_eq!(server.statistics.get(Counter::HeaderTimeouts), 0);
}

#[tokio::test]
async fn the_header_clock_does_not_run_while_a_connection_is_idle() {
    let header = Duration::from_millis(200);
    let server = Running::with(Limits { header, ..limits() }).await;
    let (mut fresh, mut used) = (server.connect().await, server.connect().await);
    assert_eq!(used.ask(GET).await.unwrap().status, 200);
    // A second connection measures the time: it is aborted after more than the header timeout.
    let mut measure = server.connect().await;
    measure.send("G").await.unwrap();
    measure.closed().await.unwrap();
    assert_eq!(
        (
            fresh.ask(GET).await.unwrap().status,
            used.ask(GET).await.unwrap().status
        ),
        (200, 200)
    );
}

#[rstest]
#[case::both("Content-Length: 3\r\nTransfer-Encoding: chunked", "0\r\n\r\n")]
#[case::both_the_other_way("Transfer-Encoding: chunked\r\nContent-Length: 3", "0\r\n\r\n")]
#[case::equal_lengths("Content-Length: 3\r\nContent-Length: 3", "abc")]
#[case::different_lengths("Content-Length: 3\r\nContent-Length: 4", "abc")]
#[case::a_list_of_lengths("Content-Length: 3, 3", "abc")]
#[case::a_signed_length("Content-Length: +3", "abc")]
#[case::an_encoding_that_is_not_chunked("Transfer-Encoding: identity", "abc")]
#[case::chunked_not_last("Transfer-Encoding: chunked, gzip", "abc")]
#[case::space_before_the_colon("Content-Length : 3", "abc")]
#[tokio::test]
async fn two_framings_or_none_are_400(#[case] fields: &str, #[case] body: &str) {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    // This also applies to a later request of a connection.
    assert_eq!(client.ask(&post("/size", "ab")).await.unwrap().status, 200);
    let smuggled = "GET /peer HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = client
        .ask(&format!(
            "POST /size HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{body}{smuggled}"
        ))
        .await
        .unwrap();
    assert_eq!((answer.status, answer.closes()), (400, true), "{answer:?}");
    client.closed().await.unwrap();
    server
        .until(|seen| seen.get(Counter::BadRequests) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

#[rstest]
#[case::no_http("nonsense\r\n\r\n", 400)]
#[case::endless_header(&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(100_000)), 431)]
#[tokio::test]
async fn what_is_no_http_1_is_refused(#[case] bytes: &str, #[case] status: u16) {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    assert_eq!(client.ask(bytes).await.unwrap().status, status);
    client.closed().await.unwrap();
    server
        .until(|seen| seen.get(Counter::BadRequests) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

/// The client could not read a response in HTTP/1.
#[tokio::test]
async fn a_client_that_starts_http2_without_alpn_is_disconnected() {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    client
        .send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    client.closed().await.unwrap();
    server
        .until(|seen| seen.get(Counter::BadRequests) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

#[tokio::test]
async fn without_strict_framing_pipelined_requests_are_answered_in_order() {
    let server = Running::start(|options| options.strict_framing = false).await;
    let mut client = server.connect().await;
    client.send(post("/size", "abc") + GET).await.unwrap();
    assert_eq!(
        (
            client.response().await.unwrap().body,
            client.response().await.unwrap().body
        ),
        ("3".to_owned(), "hello".to_owned())
    );
}

/// The start of the second header would be ambiguous.
#[tokio::test]
async fn with_strict_framing_a_pipelined_request_is_400() {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    client.send(post("/size", "abc") + GET).await.unwrap();
    assert_eq!(client.response().await.unwrap().body, "3");
    let second = client.response().await.unwrap();
    assert_eq!((second.status, second.closes()), (400, true));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_not_read_ends_the_connection_after_the_answer() {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    let answer = ask_in_part(&mut client, &post("/unread", &"x".repeat(1_000_000))).await;
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.closes()),
        (200, "not read", true)
    );
    client.closed().await.unwrap();
}

#[tokio::test]
async fn a_panic_of_a_handler_is_500_and_the_next_request_works() {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    let answer = client
        .ask("GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.closes()),
        (500, "internal error\n", false)
    );
    assert_eq!(client.ask(GET).await.unwrap().status, 200);
    assert_eq!(server.statistics.get(Counter::Panics), 1);
}

#[tokio::test]
async fn a_connection_of_age_is_asked_to_close() {
    let server = Running::with(Limits {
        age: Some(Duration::ZERO),
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    let answer = client.ask(GET).await.unwrap();
    assert_eq!((answer.status, answer.closes()), (200, true));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn at_the_cap_a_busy_connection_stays_and_the_newest_is_refused() {
    let server = Running::with(Limits {
        connections: 1,
        ..limits()
    })
    .await;
    let mut busy = server.connect().await;
    busy.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    server.until(|seen| seen.get(Counter::Requests) == 1).await;

    assert!(
        server
            .try_connect(server.client_config(super::fixture::TLS_1_3))
            .await
            .is_err()
    );
    assert_eq!(server.statistics.get(Counter::Rejected), 1);
    server.release.notify_one();
    assert_eq!(busy.response().await.unwrap().body, "released");
}

#[tokio::test]
async fn at_the_cap_a_silent_connection_is_closed_for_another() {
    let server = Running::with(Limits {
        connections: 2,
        ..limits()
    })
    .await;
    let mut used = server.connect().await;
    assert_eq!(used.ask(GET).await.unwrap().status, 200);
    let mut silent = server.connect().await;
    let mut new = server.connect().await;
    assert_eq!(new.ask(GET).await.unwrap().status, 200);
    silent.closed().await.unwrap();
    assert_eq!(
        used.ask(GET).await.unwrap().status,
        200,
        "the one in use stays"
    );
    server
        .until(|seen| seen.get(Counter::Evicted) == 1 && seen.get(Counter::Open) == 2)
        .await;
}
