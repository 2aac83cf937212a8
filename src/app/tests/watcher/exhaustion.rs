//! Tests with clients that occupy memory or connections and send no complete request: the memory of the process stays
//! limited, and a valid review gets a response.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt as _, stream};
use rstest::rstest;
use testkit::tls::{RawClient, RawTlsClient};
use testkit::until::until;

use super::ports::{get, local};
use super::process::{Folder, PATIENCE, Running};
use super::review;

/// Maximum growth of the resident memory of a ready process, in KiB. An idle release build uses less than 16 MiB, so the
/// process stays within 48 MiB; the limit of its container is 128 MiB. The test checks the growth, because a debug build
/// maps three times as much of its file.
const GROWTH_KIB: u64 = 32 * 1024;

/// Number of connections that are opened concurrently.
const PARALLEL: usize = 4;

/// Opens `count` connections that each send as much of `bytes` as the server accepts.
async fn flood(running: &Running, count: usize, bytes: &str) -> Vec<RawTlsClient> {
    let bytes: Arc<str> = bytes.into();
    let open = |_| {
        let (connecting, bytes) = (running.connect(), Arc::clone(&bytes));
        tokio::spawn(async move {
            let mut connection = connecting.await;
            // A server that rejects the request need not read it to its end.
            let _ = connection.send(&*bytes).await;
            connection
        })
    };
    let opening = stream::iter(0..count).map(open).buffer_unordered(PARALLEL);
    opening.map(Result::unwrap).collect().await
}

/// Waits until the server has closed all `connections`, with or without a response.
async fn until_ended(mut connections: Vec<RawTlsClient>) {
    for ended in join_all(connections.iter_mut().map(RawTlsClient::rest)).await {
        ended.unwrap();
    }
}

fn post(length: usize) -> String {
    format!("POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_under_twenty_bodies_that_stop_before_their_end_is_bounded() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let before = running.peak_memory_kib();
    let mut body = post(7_000_000);
    body.push_str(&"x".repeat(6_999_000));
    let hostile = flood(&running, 20, &body).await;
    running.ask(&review("one")).await;
    until_ended(hostile).await;
    let samples = running.samples().await;
    let errors = |reason| {
        let name = "watcher_server_request_body_errors_total";
        samples.exact(&format!("{name}{{reason={reason:?}}}"))
    };
    // On a busy machine, a body may reach its time limit before newer bodies exhaust the budget.
    let ended = errors("over_budget").unwrap() + errors("timeout").unwrap();
    assert!(ended >= 20.0, "{ended}");
    let growth = running.peak_memory_kib() - before;
    assert!(growth <= GROWTH_KIB, "{growth} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_under_a_thousand_headers_without_end_is_bounded() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let before = running.peak_memory_kib();
    // One length is above the limit of a header, and the other is just below it.
    for length in [60_000, 15_000] {
        let mut header = "POST /validate/kyma HTTP/1.1\r\nA: ".to_owned();
        write!(header, "{:x<length$}", "").unwrap();
        let hostile = flood(&running, 1_000, &header).await;
        running.ask(&review("one")).await;
        until_ended(hostile).await;
        let growth = running.peak_memory_kib() - before;
        assert!(
            growth <= GROWTH_KIB,
            "{growth} KiB with headers of {length} bytes"
        );
    }
    // A client may see the end of its connection before the server has counted it.
    let all_counted = async || {
        let samples = running.samples().await;
        let of = |series: &str| samples.exact(&format!("watcher_server_{series}")).unwrap();
        let errors = |reason| of(&format!("request_header_errors_total{{reason={reason:?}}}"));
        let evicted = of("connections_evicted_total");
        let ended = errors("invalid") + errors("timeout") + evicted;
        // A connection that is evicted at its timeout counts twice.
        let all = evicted > 0.0 && ended >= 2_000.0;
        all.then_some(())
            .ok_or(format!("{ended}, {evicted} evicted"))
    };
    until("all counted", PATIENCE, all_counted).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_is_answered_while_a_thousand_bodies_do_not_come() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    // Opens all connections first, which may be idle for long, and then sends all headers. The server waits for a body for
    // 3 s, in which a busy machine does not open this many connections. The first review connects before the headers are
    // sent, so that it evicts another connection even if the bodies reach their time limit soon after. Only a send on the
    // evicted connection may fail.
    let mut hostile = flood(&running, 1_024, "").await;
    let header = post(100);
    let sending = join_all(hostile.iter_mut().map(|it| it.send(&header)));
    let first = review("one");
    let (_, sent) = tokio::join!(biased; running.ask(&first), sending);
    assert!(sent.iter().filter(|it| it.is_err()).count() <= 1);
    running.ask(&review("two")).await;
    let samples = running.samples().await;
    let [evicted, rejected] = ["evicted", "rejected"]
        .map(|it| samples.exact(&format!("watcher_server_connections_{it}_total")));
    assert!(evicted > Some(0.0));
    assert_eq!(rejected, Some(0.0));
    drop(hostile);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_is_answered_before_its_body() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let request = post(100).replace("/validate/kyma", "/other");
    let answer = running.connect().await.ask(request).await.unwrap();
    assert_eq!(answer.status, 404, "{answer:?}");
}

/// Idle clients, incomplete headers and incomplete bodies: many times the connection limit of these ports.
#[rstest]
#[case::health("/healthz")]
#[case::metrics("/metrics")]
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_and_a_scrape_are_answered_during_a_flood(#[case] path: &str) {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let port = if path == "/healthz" {
        running.health
    } else {
        running.metrics
    };
    let before = running.peak_memory_kib();
    let header = format!("GET {path} HTTP/1.1\r\nA: {:x<7000}", "");
    let mut body = post(7_000_000);
    body.push_str(&"x".repeat(1_000_000));
    let mut hostile = Vec::new();
    for (count, bytes) in [(1_024, ""), (1_000, &*header), (20, &*body)] {
        for _ in 0..count {
            let mut client = RawClient::connect(local(port)).await.unwrap();
            // A server that rejects the request, or evicts the client, need not read it to its end.
            let _ = client.send(bytes).await;
            hostile.push(client);
        }
        let asked = Instant::now();
        let answer = get(port, path).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        // If no client were evicted, the probe would wait for 10 s, until the first silent clients are closed. A busy machine
        // takes seconds to accept the connections before it.
        let elapsed = asked.elapsed();
        assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
    }
    let growth = running.peak_memory_kib() - before;
    assert!(growth <= GROWTH_KIB, "{growth} KiB");
}
