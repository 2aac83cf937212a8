//! The connections to KCP: few, kept alive, and gone when they are old.
//!
//! Invariants: there are never more than [`Pool::new`]'s `size`; one carries one request at a time; only a connection whose
//! last answer was read to its end, and of the certificates in force, is used again. One that is not used for `idle`, or
//! belongs to older certificates, is closed within another `idle` at the latest, without anybody asking for it.
//!
//! Deliberately absent: HTTP/2 (the public pair speaks HTTP/1.1).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::Broken;
use crate::certificates::OutboundState;

/// The largest head of an answer, in bytes, and how much of an answer is read ahead.
const HEAD: usize = 16 << 10;

/// Longer than a round trip round the world and back, short enough that a dead peer costs nothing.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    places: Semaphore,
    idle: Duration,
    outbound: watch::Receiver<OutboundState>,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Default)]
struct Shelf {
    connections: Vec<Resting>,
    reaped: bool,
}

struct Resting {
    connection: Connection,
    since: Instant,
}

/// An open connection; dropping it closes it.
pub(super) struct Connection {
    pub(super) sender: http1::SendRequest<Full<Bytes>>,
    generation: u64,
    _closes: DropGuard,
}

impl Connection {
    /// Begins HTTP on a TLS session made with the certificates of `generation`.
    pub(super) async fn begin(
        stream: TlsStream<TcpStream>,
        generation: u64,
    ) -> Result<Self, Broken> {
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Broken::Exchange)?;
        let closed = CancellationToken::new();
        let closing = closed.clone();
        tokio::spawn(async move {
            let mut driver = std::pin::pin!(driver);
            tokio::select! {
                // Its error is the exchange's, which is told there.
                _ = &mut driver => return,
                () = closing.cancelled() => {}
            }
            // Time to say goodbye; a peer that does not read would hold it open for ever.
            let _ = timeout(LINGER, driver).await;
        });
        Ok(Self {
            sender,
            generation,
            _closes: closed.drop_guard(),
        })
    }
}

impl Pool {
    pub(super) fn new(
        size: usize,
        idle: Duration,
        outbound: watch::Receiver<OutboundState>,
    ) -> Self {
        Self {
            places: Semaphore::new(size),
            idle,
            outbound,
            shelf: Arc::default(),
        }
    }

    /// Waits until there may be one more connection. (None: the semaphore was closed, which nobody does.)
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// A resting connection of `generation`, the one that rested shortest.
    pub(super) async fn take(&self, generation: u64) -> Option<Connection> {
        loop {
            let resting = self.lock().connections.pop()?;
            let mut connection = resting.connection;
            let fresh = connection.generation == generation && resting.since.elapsed() < self.idle;
            if fresh && connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put_back(&self, connection: Connection) {
        let mut kept = self.lock();
        kept.connections.push(Resting {
            connection,
            since: Instant::now(),
        });
        if !std::mem::replace(&mut kept.reaped, true) {
            let kept = Arc::downgrade(&self.shelf);
            tokio::spawn(reap(kept, self.outbound.clone(), self.idle));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what has rested for too long or is of older certificates, until nothing rests.
async fn reap(
    shelf: Weak<Mutex<Shelf>>,
    mut outbound: watch::Receiver<OutboundState>,
    idle: Duration,
) {
    loop {
        tokio::select! {
            () = sleep(idle) => {}
            changed = outbound.changed() => if changed.is_err() { return },
        }
        let Some(shelf) = shelf.upgrade() else { return };
        let current = outbound
            .borrow_and_update()
            .as_ref()
            .ok()
            .map(|it| it.generation);
        let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.connections.retain(|resting| {
            Some(resting.connection.generation) == current && resting.since.elapsed() < idle
        });
        if shelf.connections.is_empty() {
            shelf.reaped = false;
            return;
        }
    }
}
