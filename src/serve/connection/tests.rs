//! Tests of the exact timeouts of one connection, with an in-memory client and a paused clock.

use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::budget::BodyBudget;
use crate::limiter::ConnectionLimiter;
use crate::limits::Limits;
use crate::metrics::Statistics;
use crate::state::EvictionClass;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const MS: Duration = Duration::from_millis(1);

struct Peer {
    stream: DuplexStream,
    shared: Arc<Shared>,
    state: Arc<ConnectionState>,
    serving: JoinHandle<()>,
}

impl Peer {
    /// Starts a connection with a buffer of `capacity` bytes in each direction.
    fn start(capacity: usize) -> Self {
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/late", get(late))
            .route("/large", get(|| async { "x".repeat(1_000_000) }))
            .route("/read", post(|_body: String| async { "read" }));
        let limits = Limits {
            body_bytes: 10,
            ..Limits::default()
        };
        let shared = Arc::new(Shared {
            transport: Transport::Plain,
            bodies: BodyBudget::new(10, Statistics::default()),
            limits: limits.clone(),
            router,
            statistics: Statistics::default(),
            closing: CancellationToken::new(),
            stopping: CancellationToken::new(),
        });
        let (stream, server_side) = tokio::io::duplex(capacity);
        let limiter = ConnectionLimiter::new(&limits, false, Statistics::default());
        let permit = limiter.admit().unwrap();
        let state = Arc::clone(&permit.state);
        let service = RequestService {
            shared: Arc::clone(&shared),
            state: Arc::clone(&state),
            peer: ([127, 0, 0, 1], 1).into(),
            certificates: None,
            expires: None,
        };
        let serving = tokio::spawn(serve_requests(service, permit, server_side));
        Self {
            stream,
            shared,
            state,
            serving,
        }
    }

    async fn ask(&mut self, request: &[u8]) -> String {
        self.stream.write_all(request).await.unwrap();
        let mut answer = vec![0; 4096];
        let size = self.stream.read(&mut answer).await.unwrap();
        String::from_utf8(answer[..size].to_vec()).unwrap()
    }

    /// Returns how long the connection stays open if the client sends nothing more.
    async fn lasts(mut self) -> Duration {
        let start = Instant::now();
        self.serving.await.unwrap();
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.unwrap();
        start.elapsed()
    }
}

async fn late() -> &'static str {
    sleep(Limits::default().idle * 3).await;
    "late"
}

fn is_about(measured: Duration, expected: Duration) -> bool {
    // The resolution of the timer is low for long waits.
    measured >= expected && measured < expected + 10 * MS
}

/// The time for which a handler awaits something is not idle.
#[rstest]
#[case::answered_at_once("/", "hello")]
#[case::answered_after_more_than_the_idle_time("/late", "late")]
#[tokio::test(start_paused = true)]
async fn an_idle_connection_lasts_its_idle_time_from_its_last_answer(
    #[case] path: &str,
    #[case] expected: &str,
) {
    let mut peer = Peer::start(4096);
    sleep(Duration::from_secs(100)).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = peer.ask(request.as_bytes()).await;
    assert!(answer.ends_with(expected), "{answer}");
    let idle = peer.shared.limits.idle;
    let lasted = peer.lasts().await;
    assert!(is_about(lasted, idle), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_just_behind_the_end_of_accepting_is_answered() {
    let mut peer = Peer::start(4096);
    assert!(peer.ask(GET).await.ends_with("hello"));
    peer.shared.closing.cancel();
    peer.shared.stopping.cancel();
    sleep(50 * MS).await;
    let answer = peer.ask(GET).await;
    assert!(
        answer.contains("connection: close") && answer.ends_with("hello"),
        "{answer}"
    );
    assert!(peer.lasts().await < MS);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_goes_soon_after_the_end_of_accepting() {
    let mut peer = Peer::start(4096);
    assert!(peer.ask(GET).await.ends_with("hello"));
    peer.shared.closing.cancel();
    peer.shared.stopping.cancel();
    let lasted = peer.lasts().await;
    assert!(is_about(lasted, 100 * MS), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_answer_is_given_up() {
    let mut peer = Peer::start(64);
    peer.stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let start = Instant::now();
    peer.serving.await.unwrap();
    assert!(
        is_about(start.elapsed(), peer.shared.limits.answer),
        "{:?}",
        start.elapsed()
    );
}

/// The request is already handled, so the connection can be evicted like a connection with an incomplete request.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_answer_is_not_taken_can_be_evicted() {
    let mut peer = Peer::start(64);
    peer.stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(
        peer.state.eviction_class(),
        Some(EvictionClass::Unfinished(_))
    ));
    peer.state.evict();
    let start = Instant::now();
    peer.serving.await.unwrap();
    assert!(start.elapsed() < MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_answer_is_taken_at_last_is_an_idle_one() {
    let mut peer = Peer::start(64);
    peer.stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    let mut taken = vec![0; 4096];
    while !matches!(peer.state.eviction_class(), Some(EvictionClass::Idle(_))) {
        assert_ne!(peer.stream.read(&mut taken).await.unwrap(), 0);
        sleep(MS).await;
    }
}

/// Otherwise the kernel would respond to further bytes with a reset, and the client might never read the rejection.
#[tokio::test(start_paused = true)]
async fn behind_a_refusal_the_peer_is_heard_out_for_a_moment() {
    let mut peer = Peer::start(4096);
    let answer = peer
        .ask(b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(
        peer.stream.read(&mut [0]).await.unwrap(),
        0,
        "the server has said all it has to say"
    );
    peer.stream.write_all(&[b'x'; 9999]).await.unwrap();
    let lasted = peer.lasts().await;
    assert!(is_about(lasted, Duration::from_secs(1)), "{lasted:?}");
}
