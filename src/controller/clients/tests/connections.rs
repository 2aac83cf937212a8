//! Tests of opening, sharing and closing connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::join_all;
use rstest::rstest;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Barrier, Notify, Semaphore};

use super::*;

async fn calls(remote: &Remote, count: usize) {
    for answer in join_all((0..count).map(|_| remote.list(POD))).await {
        answer.unwrap();
    }
}

/// Waits until the server has no connection and the client has detected it. A call that the client starts between the
/// two is sent to a closed connection and fails; its caller retries the call.
async fn until_closed(env: &Env, server: &TlsServer) {
    until("the server has no connection", || server.open() == 0).await;
    until("the client has no connection", || {
        env.count("runtime_connections_open") == 0
    })
    .await;
}

#[rstest]
#[case::both(BOTH, "h2")]
#[case::new(H2, "h2")]
#[case::old(H1, "http/1.1")]
#[case::silent(&[], "http/1.1")]
#[tokio::test]
async fn the_best_common_protocol(
    #[case] alpn: &'static [&'static str],
    #[case] expected: &'static str,
) {
    let server = answering(alpn).await;
    let env = Env::new(|_| ());
    calls(&env.open(&server), 1).await;
    let sample = format!("runtime_tls_handshakes_total{{protocol=\"{expected}\"}}");
    assert_eq!(env.count(&sample), 1);
}

#[tokio::test]
async fn http_2_carries_calls_side_by_side_on_one_connection() {
    let together = Arc::new(Barrier::new(8));
    let server = TlsServer::answering(speaking(H2), move |_| {
        let together = together.clone();
        async move {
            together.wait().await;
            answer(200, "{}")
        }
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    calls(&remote, 8).await;
    calls(&remote.clone(), 8).await;
    assert_eq!(server.opened(), 1);
}

#[rstest]
#[tokio::test]
async fn a_connection_made_in_advance_is_the_one_that_calls_use(
    #[values(H1, H2)] alpn: &'static [&'static str],
) {
    let server = answering(alpn).await;
    let env = Env::new(|_| ());
    let remote = env.open(&server);
    for _ in 0..2 {
        remote.connect().await.unwrap();
    }
    assert_eq!((server.opened(), server.requests()), (1, 0));
    calls(&remote, 2).await;
    assert_eq!((server.opened(), server.requests()), (1, 2));
    assert_eq!(env.count("runtime_request_duration_seconds_count"), 4);
    let requests = "runtime_requests_total{verb=\"list\",code=\"200\"}";
    assert_eq!(env.count(requests), 2, "a connection is no request");
}

#[tokio::test]
async fn http_1_carries_one_call_after_the_other_on_one_connection() {
    let server = TlsServer::answering(speaking(H1), |_| async {
        tokio::task::yield_now().await;
        answer(200, "{}")
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    calls(&remote, 8).await;
    calls(&remote.clone(), 8).await;
    assert_eq!(server.opened(), 1);
    assert_eq!(server.busiest(), 1);
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_costs_connections_not_calls() {
    let server = TlsServer::answering(speaking(H1), |_| async {
        let mut response = answer(200, "{}");
        let close = "close".parse().unwrap();
        response.headers_mut().insert("connection", close);
        response
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    for _ in 0..20 {
        calls(&remote, 1).await;
    }
    assert_eq!((server.requests(), server.opened()), (20, 20));
}

#[rstest]
#[tokio::test]
async fn a_server_that_retires_between_calls(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = answering(alpn).await;
    let env = Env::new(|_| ());
    let remote = env.open(&server);
    calls(&remote, 2).await;
    server.retire_connections();
    until_closed(&env, &server).await;
    calls(&remote, 2).await;
    assert_eq!((server.requests(), server.opened()), (4, 2));
}

#[tokio::test]
async fn a_goaway_lets_the_call_under_way_finish() {
    let arrived = Arc::new(Notify::new());
    let go = Arc::new(Semaphore::new(0));
    let (noted, gate) = (arrived.clone(), go.clone());
    let server = TlsServer::answering(speaking(H2), move |_| {
        let (noted, gate) = (noted.clone(), gate.clone());
        async move {
            noted.notify_one();
            gate.acquire().await.unwrap().forget();
            answer(200, "{}")
        }
    })
    .await
    .unwrap();
    let env = Env::new(|_| ());
    let remote = env.open(&server);
    let under_way = tokio::spawn({
        let remote = remote.clone();
        async move { remote.list(POD).await }
    });
    arrived.notified().await;
    server.retire_connections();
    go.add_permits(2);
    under_way.await.unwrap().unwrap();
    until_closed(&env, &server).await;
    calls(&remote, 1).await;
    assert_eq!((server.requests(), server.opened()), (2, 2));
}

#[tokio::test]
async fn a_goaway_does_not_end_the_call_under_way_when_another_connection_is_opened() {
    let arrived = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    let (noted, gate) = (arrived.clone(), go.clone());
    let server = TlsServer::answering(speaking(H2), move |request| {
        let (noted, gate) = (noted.clone(), gate.clone());
        async move {
            if request.uri().path() == "/slow" {
                noted.notify_one();
                gate.notified().await;
            }
            answer(200, "{}")
        }
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    let under_way = tokio::spawn({
        let remote = remote.clone();
        async move { remote.list("/slow").await }
    });
    arrived.notified().await;
    server.retire_connections();
    let limit = Duration::from_secs(10);
    let opened = testkit::until::until("another connection is opened", limit, || async {
        // A call that is sent before the client reads the GOAWAY fails.
        let _ = remote.list(POD).await;
        server.opened() == 2
    });
    opened.await.unwrap();
    pass(connection::CLOSE_TIMEOUT * 2).await;
    go.notify_one();
    under_way.await.unwrap().unwrap();
}

/// Advances the time of timers only. Sockets and their peers are not affected.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    // Runs the tasks whose timers expired.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// The empty SETTINGS frame that starts a session, then GOAWAY with last stream 0 and ENHANCE_YOUR_CALM.
const SETTINGS_AND_GOAWAY: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, //
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11,
];

#[tokio::test]
async fn a_call_refused_by_goaway_is_an_error_and_the_next_one_tries_anew() {
    let requests = Arc::<AtomicUsize>::default();
    let counted = requests.clone();
    let server = TlsServer::over_tls(speaking(H2), move |mut stream, _| {
        let counted = counted.clone();
        Box::pin(async move {
            let mut heard = Vec::new();
            let mut buffer = [0; 4096];
            // The path in the HEADERS is Huffman-encoded, so the type of the frame shows that the request has arrived.
            while !has_headers(&heard) {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => heard.extend_from_slice(&buffer[..count]),
                }
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(&SETTINGS_AND_GOAWAY).await;
            let _ = stream.flush().await;
            while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
        })
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    for calls in 1..4 {
        let error = remote.list(POD).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable(_)), "{error:?}");
        assert!(error.transient());
        let requests = requests.load(Ordering::SeqCst);
        assert_eq!((requests, server.opened()), (calls, calls));
    }
}

fn has_headers(mut heard: &[u8]) -> bool {
    const PREFACE: usize = 24;
    heard = heard.get(PREFACE..).unwrap_or_default();
    while let [a, b, c, kind, rest @ ..] = heard {
        if *kind == 1 {
            return true;
        }
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        heard = rest.get(5 + length..).unwrap_or_default();
    }
    false
}

#[rstest]
#[tokio::test]
async fn a_connection_goes_with_its_last_remote(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = answering(alpn).await;
    let env = Env::new(|_| ());
    let remote = env.open(&server);
    let clone = remote.clone();
    calls(&remote, 1).await;
    drop(remote);
    calls(&clone, 1).await;
    assert_eq!((server.opened(), server.open()), (1, 1));
    drop(clone);
    until_closed(&env, &server).await;
}

#[rstest]
#[tokio::test]
async fn a_peer_that_reads_nothing_holds_nothing(#[values(H1, H2)] alpn: &'static [&'static str]) {
    let server = TlsServer::over_tls(speaking(alpn), |stream, _| {
        Box::pin(async move {
            let _stream = stream;
            std::future::pending::<()>().await;
        })
    })
    .await
    .unwrap();
    let env = Env::new(|it| it.call_timeout = Duration::from_millis(100));
    let remote = env.open(&server);
    // The body exceeds the buffers of the sockets.
    let body = Arc::new(json!({"data": "a".repeat(12 << 20)}));
    let error = remote.apply(POD, &body, "us", true).await;
    assert!(
        matches!(error, Err(CallError::TimedOut(Phase::Answering, _))),
        "{error:?}"
    );
    drop(remote);
    until("the connection is closed", || {
        env.count("runtime_connections_open") == 0
    })
    .await;
}

#[rstest]
#[case::closes_the_connection(H1, 2)]
#[case::ends_its_stream_only(H2, 1)]
#[tokio::test]
async fn a_caller_that_stops_waiting(
    #[case] alpn: &'static [&'static str],
    #[case] connections: usize,
) {
    let stall = Arc::new(Mutex::new(true));
    let stalls = stall.clone();
    let server = TlsServer::answering(speaking(alpn), move |_| {
        let stalled = *stalls.lock().unwrap();
        async move {
            if stalled {
                std::future::pending::<()>().await;
            }
            answer(200, "{}")
        }
    })
    .await
    .unwrap();
    let env = Env::new(|_| ());
    let remote = env.open(&server);
    {
        let mut call = std::pin::pin!(remote.list(POD));
        while server.requests() == 0 {
            assert!(call.as_mut().now_or_never().is_none());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        *stall.lock().unwrap() = false;
    }
    calls(&remote, 1).await;
    assert_eq!((server.requests(), server.opened()), (2, connections));
    assert_eq!(
        env.count("runtime_requests_total{verb=\"list\",code=\"<error>\"}"),
        1
    );
    assert_eq!(env.count("runtime_inflight_requests"), 0);
}

#[tokio::test]
async fn a_handshake_that_never_ends() {
    let server = TlsServer::over_tcp(|stream, _| {
        Box::pin(async move {
            let _stream = stream;
            std::future::pending::<()>().await;
        })
    })
    .await
    .unwrap();
    let env = Env::new(|it| it.connect_timeout = Duration::from_millis(100));
    let error = env.open(&server).list(POD).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut(Phase::Connecting, _)) && error.transient());
}

#[tokio::test]
async fn a_port_on_which_no_server_listens() {
    let server = answering(BOTH).await;
    let remote = Env::new(|_| ()).open(&server);
    server.stop().await;
    let error = remote.list(POD).await.unwrap_err();
    assert!(
        matches!(error, CallError::Unreachable(TransportError::Connection(_))),
        "{error:?}"
    );
    assert!(error.transient());
}
