//! One connection to one API server: made, used, and gone.
//!
//! Invariants: a connection lives while a [`super::Remote`] holds it or a call is using it, and ends at the latest
//! `LINGER` after; it is left to the next call only by calls that were answered to the end, and closed when none
//! came for a while. The place in the slot decides: who holds the slot's lock may use or drop the connection, so an
//! idle connection is never closed under a call that begins. Deliberately absent: reconnecting, which is a decision
//! of the next call.

use std::future::Future;
use std::sync::{Arc, Mutex as Lock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::error::{Broken, CallError};
use super::metrics::FleetMetrics;
use super::tls::HTTP_2;

/// Where a [`super::Remote`] keeps its connection.
pub(super) type Slot = Mutex<Option<Connection>>;

/// An established connection.
pub(super) struct Connection {
    pub(super) sender: Sender,
    usage: Arc<Usage>,
}

/// What sends requests, by the protocol agreed on.
pub(super) enum Sender {
    /// One call at a time.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// Calls side by side.
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What a new connection needs to know.
pub(super) struct Setup<'a> {
    pub(super) slot: &'a Arc<Slot>,
    pub(super) idle: Duration,
    pub(super) metrics: &'a FleetMetrics,
}

impl Connection {
    /// Begins HTTP on a TLS session, as ALPN agreed.
    pub(super) async fn establish(
        setup: Setup<'_>,
        stream: TlsStream<TcpStream>,
    ) -> Result<Self, CallError> {
        let tasks = Tasks::default();
        let sender = handshake(stream, &tasks).await?;
        let ended = CancellationToken::new();
        let usage = Arc::new(Usage {
            state: Lock::new(State {
                calls: 0,
                last: Instant::now(),
                spoilt: false,
            }),
            _ends: ended.clone().drop_guard(),
        });
        let watch = Watch {
            slot: Arc::downgrade(setup.slot),
            usage: Arc::downgrade(&usage),
            idle: setup.idle,
            tasks,
            ended,
        };
        setup.metrics.connections.inc();
        let open = setup.metrics.connections.clone();
        tokio::spawn(async move {
            watch.run().await;
            open.dec();
        });
        Ok(Self { sender, usage })
    }

    /// Whether a call can be sent. Nothing was sent when it says no, so opening another connection is no retry.
    pub(super) async fn is_usable(&mut self) -> bool {
        if self.usage.lock().spoilt {
            return false;
        }
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Begins a call.
    pub(super) fn lease(&self) -> Lease {
        let mut state = self.usage.lock();
        state.calls += 1;
        Lease {
            usage: self.usage.clone(),
            answered: false,
        }
    }
}

/// One call's share in a connection. Dropped early (an error, a timeout, a caller that stopped waiting), it spoils the
/// connection for calls to come: what state the other end is in is then anybody's guess.
pub(super) struct Lease {
    usage: Arc<Usage>,
    answered: bool,
}

impl Lease {
    /// The answer was read to its end.
    pub(super) fn end(mut self) {
        self.answered = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.usage.lock();
        state.calls -= 1;
        state.last = Instant::now();
        state.spoilt |= !self.answered;
    }
}

/// Who uses the connection; the last user's going ends it.
struct Usage {
    state: Lock<State>,
    _ends: DropGuard,
}

struct State {
    calls: usize,
    last: Instant,
    spoilt: bool,
}

impl Usage {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees a connection to its end.
struct Watch {
    slot: Weak<Slot>,
    usage: Weak<Usage>,
    idle: Duration,
    tasks: Tasks,
    ended: CancellationToken,
}

impl Watch {
    async fn run(self) {
        self.tasks.tracker.close();
        tokio::select! {
            () = self.tasks.tracker.wait() => return,
            () = self.ended.cancelled() => {}
            () = self.reap() => {}
        }
        // Time to say goodbye; a peer that does not read would hold it open for ever.
        let _ = tokio::time::timeout(LINGER, self.tasks.tracker.wait()).await;
        self.tasks.kill.cancel();
        self.tasks.tracker.wait().await;
    }

    /// Takes the connection out of its slot once it was idle for long enough.
    async fn reap(&self) {
        let mut due = Instant::now() + self.idle;
        loop {
            tokio::time::sleep_until(due).await;
            let (Some(slot), Some(usage)) = (self.slot.upgrade(), self.usage.upgrade()) else {
                return;
            };
            due = Instant::now() + self.idle;
            // A held lock is a call that begins, or one over HTTP/1.1 under way.
            let Ok(mut slot) = slot.try_lock() else {
                continue;
            };
            let (calls, last) = {
                let state = usage.lock();
                (state.calls, state.last)
            };
            if calls > 0 {
                continue;
            }
            if last + self.idle > Instant::now() {
                due = last + self.idle;
                continue;
            }
            // A spoilt one may have a successor in the slot already; that one has its own watch.
            slot.take_if(|it| Arc::ptr_eq(&it.usage, &usage));
            return;
        }
    }
}

/// The tasks that drive one connection, and the means to end them.
#[derive(Clone, Default)]
struct Tasks {
    tracker: TaskTracker,
    kill: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        use tokio_util::future::FutureExt as _;
        // A wrapper by hand: an `async` block would hold the future several times over, and every request has one.
        let kill = self.kill.clone();
        self.tracker
            .spawn(future.with_cancellation_token_owned(kill));
    }
}

async fn handshake(stream: TlsStream<TcpStream>, tasks: &Tasks) -> Result<Sender, CallError> {
    use hyper::rt::Executor as _;
    let broken = |error| CallError::Unreachable(Broken::Exchange(error));
    let multiplexed = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let io = TokioIo::new(stream);
    if multiplexed {
        let (sender, connection) = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(BODY_AHEAD)
            .initial_connection_window_size(BODY_AHEAD)
            .max_header_list_size(HEAD)
            .handshake(io)
            .await
            .map_err(broken)?;
        tasks.execute(connection);
        Ok(Sender::Http2(sender))
    } else {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(HEAD as usize)
            .max_buf_size(BODY_AHEAD as usize)
            .handshake(io)
            .await
            .map_err(broken)?;
        tasks.execute(connection);
        Ok(Sender::Http1(sender))
    }
}

/// Longer than a round trip round the world and back, short enough that a dead peer costs nothing.
const LINGER: Duration = Duration::from_secs(1);

/// The largest head of an answer, in bytes; API servers need one kilobyte.
const HEAD: u32 = 32 << 10;

/// How much of an answer a server may send before we read it, in bytes. Less would make a long list wait for more
/// round trips than its call has time for.
const BODY_AHEAD: u32 = 256 << 10;
