//! A small accept loop for a handful of short requests.
//!
//! Invariant: one request a connection, and a connection ends within [`LIFETIME`], so that no
//! client can hold a slot by being slow at anything.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Far above two probes and a few scrapers, far below what memory would notice.
const CONNECTIONS: usize = 32;
/// A request head is one packet; five seconds allow for a retransmission or two.
const HEAD: Duration = Duration::from_secs(5);
/// The usual scrape timeout: nobody waits longer for the answer.
const LIFETIME: Duration = Duration::from_secs(10);
/// How long answers under way may take once the end has been asked for.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Without it a process out of file descriptors would spin in `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: TcpListener, router: Router, end: &CancellationToken) {
    let connections = TaskTracker::new();
    end.run_until_cancelled(accept(&listener, &router, &connections))
        .await;
    drop(listener);
    connections.close();
    // Whoever is still slow now is cut off with the process.
    timeout(LAST_ANSWERS, connections.wait()).await.ok();
}

async fn accept(listener: &TcpListener, router: &Router, connections: &TaskTracker) {
    let slots = std::sync::Arc::new(Semaphore::new(CONNECTIONS));
    // The semaphore is never closed, so the loop ends only by being dropped.
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer(stream, router.clone());
                connections.spawn(async move {
                    timeout(LIFETIME, answer).await.ok();
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept connection on the admin endpoint");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        // A probe that hangs up early is the client's business.
        tracing::debug!(%error, "admin connection aborted");
    }
}
