//! Bodies that know their bounds: the request's, and the response's end.
//!
//! Invariant: a reader of a [`BoundedBody`] gets at most the allowed bytes before the allowed time, else an
//! error; the kind of the fault stays visible to the server, whatever the handler makes of the error.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::Limits;
use crate::pulse::Pulse;

/// Why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("the body did not arrive in time")]
    TooSlow,
}

/// What a body reports to the server that has handed it to a handler.
#[derive(Clone, Default)]
pub(crate) struct FaultReport(Arc<AtomicU8>);

impl FaultReport {
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(BodyFault::TooLarge),
            2 => Some(BodyFault::TooSlow),
            _ => None,
        }
    }

    fn set(&self, fault: BodyFault) {
        let code = match fault {
            BodyFault::TooLarge => 1,
            BodyFault::TooSlow => 2,
        };
        self.0.store(code, Ordering::Release);
    }
}

/// A request body with the limits of its server.
pub(crate) struct BoundedBody {
    inner: Incoming,
    left: u64,
    deadline: Instant,
    /// Made only when the body keeps its reader waiting; most arrive with their header.
    alarm: Option<Pin<Box<Sleep>>>,
    report: FaultReport,
    pulse: Arc<Pulse>,
    ended: bool,
}

impl BoundedBody {
    pub(crate) fn new(inner: Incoming, limits: &Limits, pulse: Arc<Pulse>) -> Self {
        Self {
            inner,
            left: limits.body_bytes.try_into().unwrap_or(u64::MAX),
            deadline: Instant::now() + limits.body,
            alarm: None,
            report: FaultReport::default(),
            pulse,
            ended: false,
        }
    }

    /// Whether the peer announces more than is allowed.
    pub(crate) fn is_announced_too_large(&self) -> bool {
        self.inner.size_hint().lower() > self.left
    }

    pub(crate) fn report(&self) -> FaultReport {
        self.report.clone()
    }

    fn fail(&mut self, fault: BodyFault) -> axum::Error {
        self.report.set(fault);
        axum::Error::new(fault)
    }

    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let deadline = self.deadline;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        alarm.as_mut().poll(context).is_ready()
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(fault) = self.report.fault() {
            return Poll::Ready(Some(Err(axum::Error::new(fault))));
        }
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let size = frame
                    .data_ref()
                    .map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
                match self.left.checked_sub(size) {
                    Some(left) => {
                        self.left = left;
                        Poll::Ready(Some(Ok(frame)))
                    }
                    None => Poll::Ready(Some(Err(self.fail(BodyFault::TooLarge)))),
                }
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(axum::Error::new(error)))),
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Poll::Pending if self.is_late(context) => {
                Poll::Ready(Some(Err(self.fail(BodyFault::TooSlow))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.pulse.leave_unread();
        }
    }
}

/// A response body; when hyper lets go of it, the connection waits for its next request.
pub(crate) struct ClosingBody {
    inner: axum::body::Body,
    pulse: Arc<Pulse>,
}

impl ClosingBody {
    pub(crate) fn new(inner: axum::body::Body, pulse: Arc<Pulse>) -> Self {
        Self { inner, pulse }
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
        self.pulse.rest();
    }
}
