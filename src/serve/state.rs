//! What one connection is doing right now, and until when it may.
//!
//! It is written by the connection's own task (socket adapter, request service), and read by its clock and by the limiter.
//! The lock is held for a few instructions and never across an await.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::BodyFault;
use crate::framing::HeaderScanner;
use crate::limits::Limits;

/// After accepting has ended, how long an idle connection is still listened to. The kernel may hold a request that
/// the reactor has not reported yet; it arrived in time and is served.
const LAST_LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// TLS is being negotiated.
    Handshake,
    /// No byte of a next request has come.
    Idle,
    /// A header has begun and not ended.
    Header,
    /// A request is being handled or answered.
    Handling,
    /// A handler waits for the rest of its request's body.
    Body,
    /// Our side has ended; the socket adapter bounds the rest.
    Closing,
}

/// What the server has decided about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosePhase {
    Open,
    /// Nothing new has been accepted since then; idle connections end.
    Stopping(Instant),
    /// Asked to close since then.
    Closing(Instant),
}

/// What evicting a connection would cost, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionClass {
    /// It has sent no complete request, its next one is incomplete, or it takes no answer.
    Unfinished(Instant),
    /// It has sent a request and may send another.
    Idle(Instant),
}

/// What the peers of all connections make the server keep, in bytes.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    /// Of incomplete headers.
    pub(crate) headers: AtomicUsize,
    /// Of the bodies of answers that were not written whole.
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
    /// Why the body of this request ended early, if it did.
    body_fault: Option<BodyFault>,
    /// Since when the peer has taken none of the bytes of an answer.
    stalled: Option<Instant>,
    header_bytes: usize,
    answer_bytes: usize,
    scanner: Option<HeaderScanner>,
}

impl ConnectionState {
    /// `strict_framing`: whether [`begin`](Self::begin) is to judge headers.
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

    /// Ready to read a request: after the handshake, and after each response.
    pub(crate) fn rest(&self) {
        let mut inner = self.inner();
        inner.phase = ConnectionPhase::Idle;
        inner.since = Instant::now();
    }

    /// Bytes came.
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

    /// A request's header is complete. Returns whether the request may be handled: with strict framing only if its header
    /// was seen from its first byte and is unambiguous.
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

    /// A handler waits for the body of this request.
    pub(crate) fn await_body(&self) {
        let mut inner = self.inner();
        inner.phase = ConnectionPhase::Body;
        inner.since = Instant::now();
    }

    /// The wait for the body is over: it is complete, or the request is refused.
    pub(crate) fn handle_body(&self) {
        self.inner().phase = ConnectionPhase::Handling;
    }

    /// The server answers in the handler's place, whatever the handler makes of the fault.
    pub(crate) fn fail_body(&self, fault: BodyFault) {
        self.inner().body_fault = Some(fault);
    }

    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.inner().body_fault
    }

    /// The body of this request will not be read to its end.
    pub(crate) fn leave_unread(&self) {
        self.inner().unread = true;
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.inner().unread
    }

    /// An answer with a body of so many bytes is about to be written.
    pub(crate) fn answer(&self, bytes: usize) {
        let mut inner = self.inner();
        if !self.evicted.is_cancelled() {
            inner.answer_bytes += bytes;
            self.all.answers.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// All answers are written.
    pub(crate) fn flushed(&self) {
        self.forget_answers(&mut self.inner());
    }

    /// Since when the peer takes none of the bytes of an answer that is kept for it, if it does not.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        let inner = self.inner();
        inner.stalled.filter(|_| inner.answer_bytes > 0)
    }

    /// Whether the peer takes none of the bytes of an answer.
    pub(crate) fn stall(&self, stalled: bool) {
        self.inner().stalled = stalled.then(Instant::now);
    }

    /// Whether the peer has begun a request that it has not completed, takes no answer, or is only listened to any more.
    pub(crate) fn waits_for_its_peer(&self) -> bool {
        use ConnectionPhase::{Body, Closing, Header};
        let inner = self.inner();
        matches!(inner.phase, Header | Body | Closing) || inner.stalled.is_some()
    }

    /// Our side ends. Returns whether the peer may still be sending what is not read: closing then makes
    /// the kernel send a reset, which can destroy our answer before the peer has read it.
    pub(crate) fn close(&self) -> bool {
        let mut inner = self.inner();
        let sending = inner.unread || inner.phase == ConnectionPhase::Header;
        inner.phase = ConnectionPhase::Closing;
        sending
    }

    /// When the peer's time is up, if it is the peer that has to do something.
    pub(crate) fn due(&self, limits: &Limits, close_phase: ClosePhase) -> Option<Instant> {
        use ConnectionPhase::{Body, Closing, Handling, Handshake, Header, Idle};
        let inner = self.inner();
        match (inner.phase, close_phase) {
            // A body has its own clock.
            (Handshake | Handling | Body | Closing, _) => None,
            (Idle, ClosePhase::Open) => Some(inner.since + limits.idle),
            (Idle, ClosePhase::Stopping(since)) if inner.served => {
                Some(since.max(inner.since) + LAST_LOOK)
            }
            (Idle, ClosePhase::Closing(since)) => Some(since.max(inner.since) + limits.header),
            // A fresh connection was dialled for a request that is on its way, and which Go does not send again
            // elsewhere: it has as long as a header, also while the server stops.
            (Header, _) | (Idle, ClosePhase::Stopping(_)) => Some(inner.since + limits.header),
        }
    }

    /// What evicting this connection would cost; `None` while its request is handled.
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

    /// Since when a header is incomplete, if one is.
    pub(crate) fn header_since(&self) -> Option<Instant> {
        let inner = self.inner();
        (inner.phase == ConnectionPhase::Header).then_some(inner.since)
    }

    /// A newer connection takes this one's place or memory.
    pub(crate) fn evict(&self) {
        self.evicted.cancel();
        self.forget(&mut self.inner());
    }

    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// The header is complete, or is not counted any more.
    fn forget_header(&self, inner: &mut Inner) {
        let bytes = std::mem::take(&mut inner.header_bytes);
        self.all.headers.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn forget_answers(&self, inner: &mut Inner) {
        // Called at each flush; the sum is shared by all connections.
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
