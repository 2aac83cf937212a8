//! Tests of the time from the shutdown token to the end.

use std::time::Duration;

use tokio::net::TcpStream;

use super::fixture::{GET, LONG, Running, in_time};
use crate::{Counter, Error};

const WAIT: &str = "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn server(linger: Duration, grace: Duration) -> Running {
    Running::start(|options| (options.linger, options.grace) = (linger, grace)).await
}

#[tokio::test]
async fn while_lingering_it_serves_old_and_new_connections_and_asks_them_to_close() {
    let server = server(LONG, LONG).await;
    let (mut idle, mut untouched) = (server.connect().await, server.connect().await);
    let first = idle.ask(GET).await.unwrap();
    assert_eq!((first.status, first.closes()), (200, false));

    server.shutdown.cancel();
    let mut new = server.connect().await;
    for client in [&mut idle, &mut untouched, &mut new] {
        let answer = client.ask(GET).await.unwrap();
        assert_eq!((answer.status, answer.closes()), (200, true));
        client.closed().await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_was_begun_is_finished() {
    let server = server(Duration::ZERO, LONG).await;
    let mut client = server.connect().await;
    client.send(WAIT).await.unwrap();
    server.until(|seen| seen.get(Counter::Requests) == 1).await;

    server.shutdown.cancel();
    in_time(async { while TcpStream::connect(server.address).await.is_ok() {} }).await;
    server.release.notify_one();
    let answer = client.response().await.unwrap();
    assert_eq!((answer.body.as_str(), answer.closes()), ("released", true));
    client.closed().await.unwrap();
    assert!(server.ended().await.is_ok());
}

#[tokio::test]
async fn after_lingering_it_refuses_closes_idle_connections_and_ends() {
    let server = server(Duration::from_millis(50), LONG).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.ask(GET).await.unwrap().status, 200);
    let address = server.address;

    server.shutdown.cancel();
    idle.closed().await.unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "still listening"
    );
    assert!(server.ended().await.is_ok());
}

#[tokio::test]
async fn a_connection_dialled_before_the_end_may_still_send_its_first_request() {
    let server = server(Duration::ZERO, LONG).await;
    let mut fresh = server.connect().await;
    server.shutdown.cancel();
    in_time(async { while TcpStream::connect(server.address).await.is_ok() {} }).await;
    let answer = fresh.ask(GET).await.unwrap();
    assert_eq!((answer.status, answer.closes()), (200, true));
    assert!(server.ended().await.is_ok());
}

#[tokio::test]
async fn a_request_that_hangs_is_cut_after_the_grace() {
    let server = server(Duration::ZERO, Duration::from_millis(50)).await;
    let mut client = server.connect().await;
    client.send(WAIT).await.unwrap();
    server.until(|seen| seen.get(Counter::Requests) == 1).await;

    server.shutdown.cancel();
    client.closed().await.unwrap();
    let statistics = server.statistics.clone();
    let ended = server.ended().await;
    assert!(
        matches!(ended, Err(Error::ShutdownTimeout { connections: 1 })),
        "{ended:?}"
    );
    assert_eq!(
        (
            statistics.get(Counter::Aborted),
            statistics.get(Counter::Open)
        ),
        (1, 0)
    );
}

/// Many clients send requests continuously while the server shuts down. Each client continues until a response requests to
/// close the connection. No request may be lost. A client that gets no CPU until the end of the linger time would find its
/// connection closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_by_a_shutdown_under_load() {
    let server = std::sync::Arc::new(server(LONG, LONG).await);
    let clients: Vec<_> = (0..8)
        .map(|_| tokio::spawn(ask_until_told_to_close(server.clone())))
        .collect();
    server.until(|seen| seen.get(Counter::Requests) > 200).await;
    server.shutdown.cancel();
    for client in clients {
        assert!(in_time(client).await.unwrap() > 0);
    }
}

async fn ask_until_told_to_close(server: std::sync::Arc<Running>) -> usize {
    let mut client = server.connect().await;
    for answered in 1.. {
        let answer = client.ask(GET).await.unwrap();
        assert_eq!(answer.status, 200);
        if answer.closes() {
            client.closed().await.unwrap();
            return answered;
        }
    }
    0
}
