//! Bodies that know their bounds: the request's, and the response's end.
//!
//! Invariant: a handler gets a request's body whole or not at all. It arrives within the allowed bytes, the allowed
//! time and the server's budget, else reading it is an error; the kind of the fault stays visible to the server,
//! whatever the handler makes of the error.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::{Body as AxumBody, Bytes};
use futures::stream;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::budget::{BudgetShare, Evicted};
use crate::limits::Limits;
use crate::state::ConnectionState;

/// Why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("body too large")]
    TooLarge,
    #[error("body not received in time")]
    TooSlow,
    #[error("memory for request bodies exhausted")]
    OverBudget,
}

/// What a body reports to the server that has handed it to a handler: why it ended early, if it did.
pub(crate) type FaultReport = Arc<OnceLock<BodyFault>>;

/// Why a body was not read to its end.
enum Broken {
    Fault(BodyFault),
    /// The peer has gone, or what it sent is not valid HTTP.
    Peer(hyper::Error),
}

impl From<Evicted> for Broken {
    fn from(_: Evicted) -> Self {
        Self::Fault(BodyFault::OverBudget)
    }
}

/// A request body with the limits of its server, not read yet.
pub(crate) struct BoundedBody {
    inner: Incoming,
    limit: usize,
    deadline: Instant,
    share: Option<BudgetShare>,
    report: FaultReport,
    state: Arc<ConnectionState>,
    ended: bool,
}

impl BoundedBody {
    pub(crate) fn new(
        inner: Incoming,
        limits: &Limits,
        share: BudgetShare,
        state: Arc<ConnectionState>,
    ) -> Self {
        Self {
            inner,
            limit: limits.body_bytes,
            deadline: Instant::now() + limits.body,
            share: Some(share),
            report: FaultReport::default(),
            state,
            ended: false,
        }
    }

    /// Whether the peer announces more than is allowed.
    fn is_announced_too_large(&self) -> bool {
        usize::try_from(self.inner.size_hint().lower()).map_or(true, |bytes| bytes > self.limit)
    }

    pub(crate) fn report(&self) -> FaultReport {
        Arc::clone(&self.report)
    }

    /// The body for a handler. Nothing is read before the handler asks for it; then it comes in one piece.
    pub(crate) fn into_body(self) -> AxumBody {
        if self.inner.is_end_stream() {
            return AxumBody::empty();
        }
        AxumBody::from_stream(stream::once(self.read()))
    }

    async fn read(mut self) -> Result<Bytes, axum::Error> {
        let Some(mut share) = self.share.take() else {
            return Ok(Bytes::new());
        };
        self.state.await_body();
        let deadline = self.deadline;
        let read = tokio::select! {
            biased;
            read = self.collect(&mut share) => read,
            () = sleep_until(deadline) => Err(Broken::Fault(if share.is_waiting() {
                BodyFault::OverBudget
            } else {
                BodyFault::TooSlow
            })),
        };
        self.state.handle_body();
        match read {
            Ok(bytes) => Ok(bytes.held_with(share)),
            Err(Broken::Peer(error)) => Err(axum::Error::new(error)),
            Err(Broken::Fault(fault)) => {
                self.report.get_or_init(|| fault);
                Err(axum::Error::new(fault))
            }
        }
    }

    async fn collect(&mut self, share: &mut BudgetShare) -> Result<Collected, Broken> {
        if self.is_announced_too_large() {
            return Err(Broken::Fault(BodyFault::TooLarge));
        }
        let mut arrived = 0;
        while let Some(piece) = self.next_piece(share).await? {
            let first = arrived == 0;
            arrived += piece.len();
            if arrived > self.limit {
                return Err(Broken::Fault(BodyFault::TooLarge));
            }
            if first && self.inner.is_end_stream() {
                share.count(piece.len()).await?;
                self.ended = true;
                return Ok(Collected::AtOnce(piece));
            }
            // Copied, so that no piece keeps the whole of the connection's buffer.
            share.append(&piece).await?;
        }
        let body = share.complete().await?;
        self.ended = true;
        Ok(Collected::Pieces(body))
    }

    async fn next_piece(&mut self, share: &BudgetShare) -> Result<Option<Bytes>, Broken> {
        loop {
            let frame = tokio::select! {
                biased;
                () = share.evicted() => return Err(Evicted.into()),
                frame = poll_fn(|context| Pin::new(&mut self.inner).poll_frame(context)) => frame,
            };
            match frame.transpose().map_err(Broken::Peer)? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                    // Trailers are of no use to a handler that gets the body in one piece.
                }
            }
        }
    }
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.state.leave_unread();
        }
    }
}

/// A whole body, as it came.
enum Collected {
    /// With one read: most bodies.
    AtOnce(Bytes),
    Pieces(Vec<u8>),
}

impl Collected {
    /// The bytes; `share` is given back when the last reference to them is dropped.
    fn held_with(self, share: BudgetShare) -> Bytes {
        Bytes::from_owner(HeldBody {
            body: self,
            _share: share,
        })
    }
}

struct HeldBody {
    body: Collected,
    _share: BudgetShare,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        match &self.body {
            Collected::AtOnce(bytes) => bytes,
            Collected::Pieces(bytes) => bytes,
        }
    }
}

/// A response body; when hyper lets go of it, the connection waits for its next request.
pub(crate) struct ClosingBody {
    inner: AxumBody,
    state: Arc<ConnectionState>,
}

impl ClosingBody {
    pub(crate) fn new(inner: AxumBody, state: Arc<ConnectionState>) -> Self {
        Self { inner, state }
    }
}

impl Body for ClosingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for ClosingBody {
    fn drop(&mut self) {
        self.state.rest();
    }
}
