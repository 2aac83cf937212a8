//! Tests with clients that occupy memory or connections and send no complete request.

use std::time::Duration;

use rstest::rstest;

use testkit::tls::RawTlsClient;

use super::fixture::{GET, LARGE, LONG, Running, TLS_1_3, limits};
use crate::{Counter, Limits};

const BUDGET: usize = 1_000_000;

/// Returns a header that announces `length` bytes, and the first `sent` of them.
fn part(path: &str, length: usize, sent: usize) -> String {
    let body = "x".repeat(sent);
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Returns the share of this number of bytes in the budget.
fn held(bytes: usize) -> u64 {
    bytes.next_multiple_of(16 * 1024).try_into().unwrap()
}

async fn server(body: Duration) -> Running {
    Running::with(Limits {
        body,
        body_bytes: BUDGET,
        bodies_bytes: BUDGET,
        ..limits()
    })
    .await
}

async fn refused(client: &mut RawTlsClient) {
    let answer = client.response().await.unwrap();
    assert_eq!((answer.status, answer.closes()), (503, true), "{answer:?}");
    client.closed().await.unwrap();
}

#[tokio::test]
async fn bodies_together_within_the_budget_are_served() {
    let server = server(LONG).await;
    let mut first = server.connect().await;
    first.send(part("/size", 400_000, 399_000)).await.unwrap();
    let mut second = server.connect().await;
    let answer = second.ask(&part("/size", 500_000, 500_000)).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "500000"));
    first.send("x".repeat(1_000)).await.unwrap();
    assert_eq!(first.response().await.unwrap().body, "400000");
    assert_eq!(server.statistics.get(Counter::BodyOverBudget), 0);
}

#[tokio::test]
async fn a_complete_body_gets_through_and_the_oldest_incomplete_one_is_503() {
    let server = server(LONG).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    first.send(part("/size", 500_000, 499_000)).await.unwrap();
    server
        .until(|seen| seen.get(Counter::BodyBytes) == held(499_000))
        .await;
    second.send(part("/size", 500_000, 499_000)).await.unwrap();
    server
        .until(|seen| seen.get(Counter::BodyBytes) == 2 * held(499_000))
        .await;

    let mut proper = server.connect().await;
    let answer = proper.ask(&part("/size", 300_000, 300_000)).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "300000"));
    refused(&mut first).await;
    second.send("x".repeat(1_000)).await.unwrap();
    assert_eq!(second.response().await.unwrap().body, "500000");
    assert_eq!(server.statistics.get(Counter::BodyOverBudget), 1);
}

/// Only received bytes count, not announced bytes.
#[tokio::test]
async fn bodies_that_are_announced_and_not_sent_take_nothing_from_the_budget() {
    let server = server(LONG).await;
    let mut silent = Vec::new();
    for requests in 1..=4 {
        let mut client = server.connect().await;
        client.send(part("/size", BUDGET, 0)).await.unwrap();
        server
            .until(|seen| seen.get(Counter::Requests) == requests)
            .await;
        silent.push(client);
    }
    let mut proper = server.connect().await;
    let answer = proper.ask(&part("/size", BUDGET, BUDGET)).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "1000000"));
    assert_eq!(server.statistics.get(Counter::BodyOverBudget), 0);
}

#[tokio::test]
async fn a_body_waits_for_those_that_are_handled() {
    let server = server(LONG).await;
    let mut handled = server.connect().await;
    handled.send(part("/hold", 900_000, 900_000)).await.unwrap();
    server
        .until(|seen| seen.get(Counter::BodyBytes) == held(900_000))
        .await;
    let mut waiting = server.connect().await;
    waiting.send(part("/size", 200_000, 200_000)).await.unwrap();
    server.until(|seen| seen.get(Counter::Requests) == 2).await;
    server.release.notify_one();
    assert_eq!(handled.response().await.unwrap().body, "900000");
    assert_eq!(waiting.response().await.unwrap().body, "200000");
    assert_eq!(server.statistics.get(Counter::BodyOverBudget), 0);
}

#[tokio::test]
async fn a_body_without_a_share_in_its_time_is_503() {
    // The first body must arrive in this time.
    let server = server(Duration::from_secs(3)).await;
    let mut handled = server.connect().await;
    handled.send(part("/hold", 900_000, 900_000)).await.unwrap();
    server
        .until(|seen| seen.get(Counter::BodyBytes) == held(900_000))
        .await;
    let mut waiting = server.connect().await;
    waiting.send(part("/size", 200_000, 200_000)).await.unwrap();
    refused(&mut waiting).await;
    let seen = &server.statistics;
    assert_eq!(
        (
            seen.get(Counter::BodyOverBudget),
            seen.get(Counter::BodyTimeouts)
        ),
        (1, 0)
    );
    server.release.notify_one();
    assert_eq!(handled.response().await.unwrap().body, "900000");
}

/// Three unread responses exceed the limit: the first connection is closed, and the other responses can still be read.
#[tokio::test]
async fn answers_that_are_not_taken_have_a_bound_in_sum() {
    const GET_LARGE: &str = "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let server = Running::with(Limits {
        answers_bytes: 2 * LARGE,
        ..limits()
    })
    .await;
    let mut clients = Vec::new();
    for requests in 1..=3 {
        let mut client = server.connect().await;
        client.send(GET_LARGE).await.unwrap();
        server
            .until(|seen| seen.get(Counter::Requests) == requests)
            .await;
        clients.push(client);
    }
    server
        .until(|seen| seen.get(Counter::Evicted) == 1 && seen.get(Counter::Open) == 2)
        .await;
    let mut proper = server.connect().await;
    assert_eq!(proper.ask(GET).await.unwrap().status, 200);
    for client in &mut clients[1..] {
        assert_eq!(client.response().await.unwrap().body.len(), LARGE);
    }
    // After they are read, they do not count anymore.
    assert_eq!(proper.ask(GET_LARGE).await.unwrap().body.len(), LARGE);
    assert_eq!(server.statistics.get(Counter::Evicted), 1);
}

#[rstest]
#[case::header("POST /size HTTP/1.1\r\nA: ".to_owned())]
#[case::no_body(part("/size", 100, 0))]
#[case::half_a_body(part("/size", 100, 50))]
#[tokio::test]
async fn at_the_cap_an_incomplete_request_is_closed_for_another(#[case] begun: String) {
    let server = Running::with(Limits {
        connections: 2,
        ..limits()
    })
    .await;
    let mut used = server.connect().await;
    assert_eq!(used.ask(GET).await.unwrap().status, 200);
    let mut hostile = server.connect().await;
    // This does not only apply to a new connection: this connection has sent a complete request.
    assert_eq!(hostile.ask(GET).await.unwrap().status, 200);
    hostile.send(&begun).await.unwrap();
    // The server has processed the bytes after a round trip.
    assert_eq!(used.ask(GET).await.unwrap().status, 200);

    let mut new = server.connect().await;
    assert_eq!(new.ask(GET).await.unwrap().status, 200);
    hostile.closed().await.unwrap();
    assert_eq!(
        used.ask(GET).await.unwrap().status,
        200,
        "the one in use stays"
    );
    server
        .until(|seen| seen.get(Counter::Evicted) == 1 && seen.get(Counter::Open) == 2)
        .await;
}

#[tokio::test]
async fn at_the_cap_a_request_that_is_handled_stays() {
    let server = Running::with(Limits {
        connections: 1,
        ..limits()
    })
    .await;
    let mut handled = server.connect().await;
    handled.send(part("/hold", 100, 100)).await.unwrap();
    server
        .until(|seen| seen.get(Counter::BodyBytes) == held(100))
        .await;
    assert!(
        server
            .try_connect(server.client_config(TLS_1_3))
            .await
            .is_err()
    );
    assert_eq!(server.statistics.get(Counter::Rejected), 1);
    server.release.notify_one();
    assert_eq!(handled.response().await.unwrap().body, "100");
}

#[rstest]
#[case::unknown_path("/nowhere", 404)]
#[case::another_method("/peer", 405)]
#[case::a_handler_that_does_not_read("/unread", 200)]
#[tokio::test]
async fn path_and_method_are_judged_before_the_body(
    #[case] path: &str,
    #[case] status: u16,
    #[values(5_000_000, 500_000_000)] announced: usize,
) {
    let server = Running::with(limits()).await;
    let mut client = server.connect().await;
    let answer = client.ask(&part(path, announced, 0)).await.unwrap();
    assert_eq!((answer.status, answer.closes()), (status, true));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn a_header_above_its_limit_is_431() {
    let server = Running::with(Limits {
        header_bytes: 10_000,
        ..limits()
    })
    .await;
    let header = |length| {
        format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nA: {}",
            "a".repeat(length)
        )
    };
    let mut client = server.connect().await;
    assert_eq!(
        client
            .ask(&(header(9_000) + "\r\n\r\n"))
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(client.ask(&header(10_000)).await.unwrap().status, 431);
    client.closed().await.unwrap();
    server
        .until(|seen| seen.get(Counter::BadRequests) == 1)
        .await;
}

/// Equal lengths count as one length, and chunks have priority over a length, as RFC 9112 §6.3 permits.
#[rstest]
#[case("Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc")]
#[case("Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")]
#[tokio::test]
async fn a_server_without_a_proxy_in_front_may_read_an_ambiguous_length(#[case] rest: &str) {
    let server = Running::start(|options| options.strict_framing = false).await;
    let mut client = server.connect().await;
    let request = format!("POST /size HTTP/1.1\r\nHost: localhost\r\n{rest}");
    let answer = client.ask(&request).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "3"));
}
