//! Clients that take memory or connections and send no complete request: the process stays small, and a proper review
//! is answered meanwhile.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use rustls::{ClientConnection, StreamOwned};

use super::process::{Folder, Running, plain};
use super::review;

/// By how much the resident memory of a process that is ready may grow, in KiB. An idle release build has less than
/// 16 MiB, so the process stays within 64 MiB, half the limit of its container. The growth is judged, because a debug
/// build maps three times as much of its file.
const GROWTH_KIB: u64 = 48 * 1024;

/// Threads that open connections in parallel.
const THREADS: usize = 4;

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Opens `count` connections that each send as much of `bytes` as the server takes.
fn flood(running: &Running, count: usize, bytes: &[u8]) -> Vec<Connection> {
    thread::scope(|scope| {
        let open = |share: usize| {
            let send = move |_| {
                let mut connection = running.connect();
                // A server that refuses the request need not read it to its end.
                let _ = connection
                    .write_all(bytes)
                    .and_then(|()| connection.flush());
                connection
            };
            scope.spawn(move || (0..share).map(send).collect::<Vec<_>>())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| open(count / THREADS)).collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    })
}

/// Waits until the server has ended all of `connections`.
fn until_ended(connections: Vec<Connection>) {
    let ends: Vec<JoinHandle<_>> = connections
        .into_iter()
        .map(|mut connection| thread::spawn(move || connection.read_to_end(&mut Vec::new())))
        .collect();
    for end in ends {
        // An answer or a reset: both are an end.
        let _ = end.join().unwrap();
    }
}

/// The value of a counter of the server, by its name without prefix and ending, with a label if it has one.
fn counter(running: &Running, name: &str, label: &str) -> u64 {
    let (_, text) = plain(running.metrics, "/metrics");
    let prefix = format!("watcher_server_{name}_total{label} ");
    let value = text.lines().find_map(|it| it.strip_prefix(&prefix));
    value.unwrap().parse().unwrap()
}

fn post(length: usize) -> String {
    format!("POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

#[test]
fn memory_under_twenty_bodies_that_stop_before_their_end_is_bounded() {
    let folder = Folder::new();
    let running = Running::start(&folder);
    let before = running.peak_memory_kib();
    let mut body = post(7_000_000);
    body.push_str(&"x".repeat(6_999_000));
    let hostile = flood(&running, 20, body.as_bytes());
    running.ask(&review("one"));
    until_ended(hostile);
    assert!(counter(&running, "request_body_errors", r#"{reason="over_budget"}"#) > 0);
    let growth = running.peak_memory_kib() - before;
    assert!(growth <= GROWTH_KIB, "{growth} KiB");
}

#[test]
fn memory_under_a_thousand_headers_without_end_is_bounded() {
    let folder = Folder::new();
    let running = Running::start(&folder);
    let before = running.peak_memory_kib();
    // Once above the limit of a header, and once just below it.
    for length in [60_000, 15_000] {
        let mut header = "POST /validate/kyma HTTP/1.1\r\nA: ".to_owned();
        write!(header, "{:x<length$}", "").unwrap();
        let hostile = flood(&running, 1_000, header.as_bytes());
        running.ask(&review("one"));
        until_ended(hostile);
        let growth = running.peak_memory_kib() - before;
        assert!(
            growth <= GROWTH_KIB,
            "{growth} KiB with headers of {length} bytes"
        );
    }
    assert_eq!(
        counter(&running, "request_header_errors", r#"{reason="invalid"}"#),
        1_000
    );
    assert_eq!(
        counter(&running, "request_header_errors", r#"{reason="timeout"}"#),
        1_000
    );
}

#[test]
fn a_review_is_answered_while_a_thousand_bodies_do_not_come() {
    let folder = Folder::new();
    let running = Running::start(&folder);
    let hostile = flood(&running, 1_024, post(100).as_bytes());
    running.ask(&review("one"));
    assert!(counter(&running, "connections_evicted", "") > 0);
    assert_eq!(counter(&running, "connections_rejected", ""), 0);
    drop(hostile);
}

#[test]
fn an_unknown_path_is_answered_before_its_body() {
    let folder = Folder::new();
    let running = Running::start(&folder);
    let mut connection = running.connect();
    let request = post(100).replace("/validate/kyma", "/other");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = connection.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
