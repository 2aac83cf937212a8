//! Request bodies with limits, and the end of response bodies.
//!
//! Invariant: a handler gets the complete body of a request or an error. The body must arrive within the size limit, the
//! time limit and the budget of the server. The server stores the kind of the fault, independent of how the handler
//! processes the error.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body as AxumBody, BodyDataStream, Bytes};
use futures::{StreamExt as _, stream};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::budget::{BudgetShare, Evicted};
use crate::limits::Limits;
use crate::state::ConnectionState;

/// Reason why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("body too large")]
    TooLarge,
    #[error("body not received in time")]
    TooSlow,
    #[error("memory for request bodies exhausted")]
    OverBudget,
}

/// Reason why a body was not read to its end.
enum Broken {
    Fault(BodyFault),
    /// The client is disconnected, or sent invalid HTTP.
    Peer(axum::Error),
}

impl From<Evicted> for Broken {
    fn from(_: Evicted) -> Self {
        Self::Fault(BodyFault::OverBudget)
    }
}

/// Returns the body of a request for its handler, within the limits of the server. The body is only read when the handler
/// reads it, and then arrives as one piece.
pub(crate) fn bounded(
    body: Incoming,
    limits: &Limits,
    share: BudgetShare,
    state: Arc<ConnectionState>,
) -> AxumBody {
    if body.is_end_stream() {
        return AxumBody::empty();
    }
    let reader = BodyReader {
        pieces: AxumBody::new(body).into_data_stream(),
        limit: limits.body_bytes,
        deadline: Instant::now() + limits.body,
        state,
        ended: false,
    };
    AxumBody::from_stream(stream::once(reader.read(share)))
}

struct BodyReader {
    pieces: BodyDataStream,
    limit: usize,
    deadline: Instant,
    state: Arc<ConnectionState>,
    ended: bool,
}

impl BodyReader {
    async fn read(mut self, mut share: BudgetShare) -> Result<Bytes, axum::Error> {
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
            Ok(body) => {
                self.ended = true;
                Ok(Bytes::from_owner(HeldBody {
                    body,
                    _share: share,
                }))
            }
            Err(Broken::Peer(error)) => Err(error),
            Err(Broken::Fault(fault)) => {
                self.state.fail_body(fault);
                Err(axum::Error::new(fault))
            }
        }
    }

    async fn collect(&mut self, share: &mut BudgetShare) -> Result<Bytes, Broken> {
        let announced = usize::try_from(self.pieces.size_hint().lower());
        if announced.map_or(true, |bytes| bytes > self.limit) {
            return Err(Broken::Fault(BodyFault::TooLarge));
        }
        let mut arrived = 0;
        loop {
            let piece = tokio::select! {
                biased;
                () = share.evicted() => return Err(Evicted.into()),
                piece = self.pieces.next() => piece.transpose().map_err(Broken::Peer)?,
            };
            let Some(piece) = piece else {
                return Ok(share.complete().await?.into());
            };
            let is_first = arrived == 0;
            arrived += piece.len();
            if arrived > self.limit {
                return Err(Broken::Fault(BodyFault::TooLarge));
            }
            // Most bodies arrive with one read.
            if is_first && self.pieces.is_end_stream() {
                share.count(piece.len()).await?;
                return Ok(piece);
            }
            // Copied, so that a piece does not keep the whole buffer of the connection in memory.
            share.append(&piece).await?;
        }
    }
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        if !self.ended && !self.pieces.is_end_stream() {
            self.state.leave_unread();
        }
    }
}

/// A complete body. Its share is released when the last reference to the bytes is dropped.
struct HeldBody {
    body: Bytes,
    _share: BudgetShare,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// A response body. When hyper drops it, the connection waits for its next request.
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
