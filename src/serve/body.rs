//! Bodies that know their bounds: the request's, and the response's end.
//!
//! Invariant: a handler gets a request's body whole or not at all. It arrives within the allowed bytes, the allowed
//! time and the server's budget, else reading it is an error; the kind of the fault stays visible to the server,
//! whatever the handler makes of the error.

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

/// Why a body was not read to its end.
enum Broken {
    Fault(BodyFault),
    /// The peer has gone, or what it sent is not valid HTTP.
    Peer(axum::Error),
}

impl From<Evicted> for Broken {
    fn from(_: Evicted) -> Self {
        Self::Fault(BodyFault::OverBudget)
    }
}

/// The body of a request for its handler, within the limits of the server. Nothing is read before the handler asks for it;
/// then it comes in one piece.
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
            // Most bodies come with one read.
            if is_first && self.pieces.is_end_stream() {
                share.count(piece.len()).await?;
                return Ok(piece);
            }
            // Copied, so that no piece keeps the whole of the connection's buffer.
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

/// A whole body; its share is given back when the last reference to the bytes is dropped.
struct HeldBody {
    body: Bytes,
    _share: BudgetShare,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
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
