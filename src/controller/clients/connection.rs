//! One connection to one API server, from the TLS session to its end.
//!
//! Invariants: a connection ends at most [`CLOSE_TIMEOUT`] after its [`super::Remote`] is dropped, unless a request is
//! in flight; a connection that the server shuts down gracefully completes the requests in flight. Not in here:
//! reconnecting, see [`super::Remote`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::Either;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::error::{CallError, TransportError};
use super::metrics::ClientMetrics;
use super::tls::HTTP_2;

/// An established connection.
pub(super) struct Connection {
    sender: Sender,
    in_use: InUse,
}

/// A guard that keeps a connection open; dropping the last clone closes it.
pub(super) type InUse = Arc<DropGuard>;

/// The sender of requests, by protocol.
enum Sender {
    /// Requests are sent one after the other.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// Requests are concurrent.
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Starts HTTP on a TLS session, with the protocol that ALPN selected.
    pub(super) async fn establish(
        stream: TlsStream<TcpStream>,
        metrics: &ClientMetrics,
    ) -> Result<Self, CallError> {
        let tasks = Tasks::default();
        let sender = handshake(stream, &tasks).await?;
        let closing = CancellationToken::new();
        let in_use = Arc::new(closing.clone().drop_guard());
        let open = metrics.connections.clone();
        open.inc();
        tokio::spawn(async move {
            tasks.finish(closing).await;
            open.dec();
        });
        Ok(Self { sender, in_use })
    }

    /// Returns whether requests can be concurrent.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Waits until a request can be sent. Returns `false` if the server has closed the connection or is shutting it
    /// down. No request was sent in that case, so a request on another connection is not a retry.
    pub(super) async fn is_ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request. The connection is open as long as the second value exists.
    pub(super) fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> (
        impl Future<Output = hyper::Result<Response<Incoming>>> + use<>,
        InUse,
    ) {
        let response = match &mut self.sender {
            Sender::Http1(sender) => Either::Left(sender.send_request(request)),
            Sender::Http2(sender) => Either::Right(sender.send_request(request)),
        };
        (response, self.in_use.clone())
    }
}

/// The tasks that drive one connection.
#[derive(Clone, Default)]
struct Tasks {
    tracker: TaskTracker,
    kill: CancellationToken,
}

impl Tasks {
    /// Waits for the end of the connection. Aborts a closed connection whose peer does not read.
    async fn finish(self, closing: CancellationToken) {
        self.tracker.close();
        tokio::select! {
            () = self.tracker.wait() => return,
            () = closing.cancelled() => {}
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.tracker.wait()).await;
        self.kill.cancel();
        self.tracker.wait().await;
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        use tokio_util::future::FutureExt as _;
        // A wrapper type, since an `async` block would contain the future several times, for every request.
        let kill = self.kill.clone();
        self.tracker
            .spawn(future.with_cancellation_token_owned(kill));
    }
}

async fn handshake(stream: TlsStream<TcpStream>, tasks: &Tasks) -> Result<Sender, CallError> {
    use hyper::rt::Executor as _;
    let aborted = |error| CallError::Unreachable(TransportError::Exchange(error));
    let multiplexed = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let io = TokioIo::new(stream);
    if multiplexed {
        let (sender, connection) = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(READ_AHEAD)
            .initial_connection_window_size(READ_AHEAD)
            .max_header_list_size(MAX_HEADERS)
            .handshake(io)
            .await
            .map_err(aborted)?;
        tasks.execute(connection);
        Ok(Sender::Http2(sender))
    } else {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEADERS as usize)
            .max_buf_size(READ_AHEAD as usize)
            .handshake(io)
            .await
            .map_err(aborted)?;
        tasks.execute(connection);
        Ok(Sender::Http1(sender))
    }
}

/// Time limit for closing a connection: longer than any network round trip, and short enough for an unresponsive peer.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of the headers of a response, in bytes; API servers need one kilobyte.
const MAX_HEADERS: u32 = 32 << 10;

/// Flow-control window, in bytes. With a smaller window, a long list would need more round trips than the timeout allows.
const READ_AHEAD: u32 = 256 << 10;
