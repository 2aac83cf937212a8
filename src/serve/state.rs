//! State of one connection, and the time until which it is permitted.
//!
//! The task of the connection writes it (socket adapter, request service). The timeouts of the connection and the limiter
//! read it. The lock is held for a few instructions and never across an await.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::BodyFault;
use crate::framing::HeaderScanner;
use crate::limits::Limits;

/// Time after the end of accepting in which an idle connection is still read. The kernel may have received a request that
/// the reactor has not reported yet. Such a request arrived in time and is served.
const LAST_LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// The TLS handshake is in progress.
    Handshake,
    /// No byte of a next request has arrived.
    Idle,
    /// A header is incomplete.
    Header,
    /// A request is being handled, or its response is being written.
    Handling,
    /// A handler waits for the rest of the body of its request.
    Body,
    /// The server has closed its side. The socket adapter limits the rest.
    Closing,
}

/// Decision of the server about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosePhase {
    Open,
    /// No connections have been accepted since then, and idle connections are closed.
    Stopping(Instant),
    /// The connection has been closing since then.
    Closing(Instant),
}

/// Cost class of evicting a connection, and the start of that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionClass {
    /// The connection has sent no complete request, its next request is incomplete, or its client accepts no bytes.
    Unfinished(Instant),
    /// The connection has sent a request and may send another.
    Idle(Instant),
}

/// Bytes that the server stores for the clients of all connections.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    /// Bytes of incomplete headers.
    pub(crate) headers: AtomicUsize,
    /// Bytes of response bodies that are not completely written.
    pub(crate) answers: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct ConnectionState {
    strict_framing: bool,
    all: Arc<KeptBytes>,
    inner: Mutex<Inner>,
    evicted: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    phase: ConnectionPhase,
    since: Instant,
    served: bool,
    unread: bool,
    /// Reason why the body of this request ended early, if it did.
    body_fault: Option<BodyFault>,
    /// Since when the client has accepted no bytes of a response.
    stalled: Option<Instant>,
    header_bytes: usize,
    answer_bytes: usize,
    scanner: Option<HeaderScanner>,
}

impl ConnectionState {
    /// Creates the state of a new connection. `strict_framing` specifies whether [`begin`](Self::begin) checks headers.
    pub(crate) fn new(strict_framing: bool, all: Arc<KeptBytes>) -> Self {
        let inner = Inner {
            phase: ConnectionPhase::Handshake,
            since: Instant::now(),
            served: false,
            unread: false,
            body_fault: None,
            stalled: None,
            header_bytes: 0,
            answer_bytes: 0,
            scanner: None,
        };
        Self {
            strict_framing,
            all,
            inner: Mutex::new(inner),
            evicted: CancellationToken::new(),
        }
    }

    /// Records that the connection is ready for a request: after the handshake, and after each response.
    pub(crate) fn rest(&self) {
        let mut inner = self.inner();
        inner.phase = ConnectionPhase::Idle;
        inner.since = Instant::now();
    }

    /// Records received bytes.
    pub(crate) fn received(&self, bytes: &[u8]) {
        let mut inner = self.inner();
        if inner.phase == ConnectionPhase::Idle {
            inner.phase = ConnectionPhase::Header;
            inner.since = Instant::now();
        }
        if inner.phase == ConnectionPhase::Header && !self.evicted.is_cancelled() {
            inner.header_bytes += bytes.len();
            self.all.headers.fetch_add(bytes.len(), Ordering::Relaxed);
            if self.strict_framing {
                inner.scanner.get_or_insert_default().read(bytes);
            }
        }
    }

    /// Records that the header of a request is complete. Returns whether the request may be handled: with strict framing
    /// only if its header was scanned from its first byte and is unambiguous.
    pub(crate) fn begin(&self, method: &str) -> bool {
        let mut inner = self.inner();
        self.forget_header(&mut inner);
        let scanner = inner.scanner.take();
        inner.phase = ConnectionPhase::Handling;
        inner.served = true;
        inner.unread = false;
        inner.body_fault = None;
        !self.strict_framing || scanner.is_some_and(|it| it.is_unambiguous(method))
    }

    /// Records that a handler waits for the body of this request.
    pub(crate) fn await_body(&self) {
        let mut inner = self.inner();
        inner.phase = ConnectionPhase::Body;
        inner.since = Instant::now();
    }

    /// Records that the wait for the body has ended: it is complete, or the request is rejected.
    pub(crate) fn handle_body(&self) {
        self.inner().phase = ConnectionPhase::Handling;
    }

    /// Records a fault of the body. The server then responds instead of the handler.
    pub(crate) fn fail_body(&self, fault: BodyFault) {
        self.inner().body_fault = Some(fault);
    }

    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.inner().body_fault
    }

    /// Records that the body of this request will not be read to its end.
    pub(crate) fn leave_unread(&self) {
        self.inner().unread = true;
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.inner().unread
    }

    /// Records that a response with a body of this size will be written.
    pub(crate) fn answer(&self, bytes: usize) {
        let mut inner = self.inner();
        if !self.evicted.is_cancelled() {
            inner.answer_bytes += bytes;
            self.all.answers.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Records that all responses are written.
    pub(crate) fn flushed(&self) {
        self.forget_answers(&mut self.inner());
    }

    /// Returns since when the client has accepted no bytes of a stored response, if it is stalled.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        let inner = self.inner();
        inner.stalled.filter(|_| inner.answer_bytes > 0)
    }

    /// Records whether the client accepts no bytes of a response.
    pub(crate) fn stall(&self, stalled: bool) {
        self.inner().stalled = stalled.then(Instant::now);
    }

    /// Returns whether the client has sent an incomplete request or accepts no bytes of a response, or whether the
    /// connection is closing.
    pub(crate) fn waits_for_its_peer(&self) -> bool {
        use ConnectionPhase::{Body, Closing, Header};
        let inner = self.inner();
        matches!(inner.phase, Header | Body | Closing) || inner.stalled.is_some()
    }

    /// Records that the server closes its side. Returns whether the client may still be sending unread bytes. In that case
    /// closing makes the kernel send a reset, which can destroy the response before the client has read it.
    pub(crate) fn close(&self) -> bool {
        let mut inner = self.inner();
        let sending = inner.unread || inner.phase == ConnectionPhase::Header;
        inner.phase = ConnectionPhase::Closing;
        sending
    }

    /// Returns the deadline of the client, if the connection waits for the client.
    pub(crate) fn due(&self, limits: &Limits, close_phase: ClosePhase) -> Option<Instant> {
        use ConnectionPhase::{Body, Closing, Handling, Handshake, Header, Idle};
        let inner = self.inner();
        match (inner.phase, close_phase) {
            // A body has a separate timeout.
            (Handshake | Handling | Body | Closing, _) => None,
            (Idle, ClosePhase::Open) => Some(inner.since + limits.idle),
            (Idle, ClosePhase::Stopping(since)) if inner.served => {
                Some(since.max(inner.since) + LAST_LOOK)
            }
            (Idle, ClosePhase::Closing(since)) => Some(since.max(inner.since) + limits.header),
            // A new connection was dialed for a request that is in transit, and which Go does not retry on another
            // connection. It gets the header timeout, even while the server stops.
            (Header, _) | (Idle, ClosePhase::Stopping(_)) => Some(inner.since + limits.header),
        }
    }

    /// Returns the cost class of evicting this connection; `None` while its request is being handled.
    pub(crate) fn eviction_class(&self) -> Option<EvictionClass> {
        let inner = self.inner();
        if let Some(since) = inner.stalled {
            return Some(EvictionClass::Unfinished(since));
        }
        match inner.phase {
            ConnectionPhase::Handling => None,
            ConnectionPhase::Idle if inner.served => Some(EvictionClass::Idle(inner.since)),
            _ => Some(EvictionClass::Unfinished(inner.since)),
        }
    }

    /// Returns since when a header is incomplete, if this is the case.
    pub(crate) fn header_since(&self) -> Option<Instant> {
        let inner = self.inner();
        (inner.phase == ConnectionPhase::Header).then_some(inner.since)
    }

    /// Evicts this connection, because a newer connection requires its place or memory.
    pub(crate) fn evict(&self) {
        self.evicted.cancel();
        self.forget(&mut self.inner());
    }

    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Removes the header from the sum, because it is complete or the connection is evicted.
    fn forget_header(&self, inner: &mut Inner) {
        let bytes = std::mem::take(&mut inner.header_bytes);
        self.all.headers.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn forget_answers(&self, inner: &mut Inner) {
        // Called at each flush. All connections share the sum.
        if inner.answer_bytes > 0 {
            let bytes = std::mem::take(&mut inner.answer_bytes);
            self.all.answers.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn forget(&self, inner: &mut Inner) {
        self.forget_header(inner);
        self.forget_answers(inner);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.forget(&mut self.inner());
    }
}

#[cfg(test)]
mod tests;
