//! The server behind a gateway that ends TLS: HTTP/1.1 without encryption, which `serve` does not offer.
//!
//! Invariant: as in `serve`, every byte that a peer may withhold has a deadline, and every request whose header was read
//! gets exactly one answer. A header is only believed where it is seen whole (`screen`).
//!
//! Deliberately absent: displacing idle connections at the cap. Peers are a gateway's pooled connections, which are few,
//! and a NetworkPolicy keeps others away.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::FutureExt as _;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::screen::{Screen, Screened};

mod screen;

/// Hyper's buffer for one connection; a larger header is answered 431. Room for the forwarded certificate and the rest.
const BUFFER_BYTES: usize = 72 * 1024;

/// After an error of accepting that does not go away by itself, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How one server ends and how many it serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    pub(crate) connections: usize,
    pub(crate) linger: Duration,
    pub(crate) grace: Duration,
}

/// Requests were unanswered at the end of the grace.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) connections: usize,
}

/// What the connections of one server share.
#[derive(Clone)]
struct Shared {
    router: Router,
    /// Answers ask their peers to close.
    closing: CancellationToken,
    /// Idle connections go.
    stopping: CancellationToken,
}

/// Serves `router` until `shutdown`, then drains: goes on for the linger, stops accepting, waits for the grace.
pub(crate) async fn run(
    listener: TcpListener,
    router: Router,
    manners: Manners,
    shutdown: CancellationToken,
) -> Result<(), Cut> {
    let shared = Shared {
        router,
        closing: shutdown.clone(),
        stopping: CancellationToken::new(),
    };
    let places = Arc::new(Semaphore::new(manners.connections));
    let mut connections = JoinSet::new();
    let end = async {
        shutdown.cancelled().await;
        sleep(manners.linger).await;
    };
    accept_until(end, &listener, &mut connections, |tcp| {
        let place = Arc::clone(&places).try_acquire_owned().ok()?;
        let shared = shared.clone();
        Some(async move {
            converse(tcp, shared).await;
            drop(place);
        })
    })
    .await;
    drop(listener);
    shared.stopping.cancel();
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(manners.grace, all_ended).await.is_ok() {
        return Ok(());
    }
    let cut = connections.len();
    connections.shutdown().await;
    Err(Cut { connections: cut })
}

/// Accepts until `end`; `attend` says what is done with a connection, if there is a place for it.
async fn accept_until<F: Future<Output = ()> + Send + 'static>(
    end: impl Future<Output = ()>,
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    attend: impl Fn(TcpStream) -> Option<F>,
) {
    let mut end = pin!(end);
    loop {
        tokio::select! {
            biased;
            () = &mut end => return,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, _peer)) => {
                    attend(tcp).map(|serving| connections.spawn(serving));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Serves requests on `tcp` until it ends.
async fn converse(tcp: TcpStream, shared: Shared) {
    // Fails only on a socket that is gone.
    let _ = tcp.set_nodelay(true);
    let screen = Screen::default();
    let stopping = shared.stopping.clone();
    let service = {
        let screen = screen.clone();
        // The part before the await runs while hyper has just parsed the header that the screen has kept.
        service_fn(move |request: hyper::Request<Incoming>| {
            let believed = screen.begin(request.method().as_str());
            exchange(shared.clone(), screen.clone(), believed, request)
        })
    };
    let connection = http1::Builder::new()
        // Hyper's own header clock also runs while a connection is idle; the screen's does not.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(Screened::new(tcp, screen)), service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection aborted");
    }
}

async fn exchange(
    shared: Shared,
    screen: Screen,
    believed: bool,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    let mut response = if believed {
        route(&shared.router, request.map(Body::new)).await
    } else {
        text(
            StatusCode::BAD_REQUEST,
            "the end of the request is ambiguous\n",
        )
    };
    if !believed || shared.closing.is_cancelled() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    screen.rest();
    Ok(response)
}

async fn route(router: &Router, request: Request) -> Response {
    match AssertUnwindSafe(router.clone().oneshot(request))
        .catch_unwind()
        .await
    {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        // A verifier of the operator has a defect; the connection goes on.
        Err(_panic) => text(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
