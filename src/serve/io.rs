//! The socket as hyper sees it: reports what arrives to the connection's state, and bounds every wait for the peer.
//!
//! Invariant: writing, flushing and closing end, by progress or by [`io::ErrorKind::TimedOut`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::limiter::ConnectionPermit;

/// How long bytes are read and dropped after a refusal (a lingering close), so that the peer gets to read it. Bounds what
/// a peer can make the server decrypt for nothing.
const LINGERING_CLOSE: Duration = Duration::from_secs(1);

pub(crate) struct ConnectionIo<S> {
    stream: S,
    permit: ConnectionPermit,
    timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    closing: Closing,
}

enum Closing {
    No,
    Ending { peer_is_sending: bool },
    Lingering(Pin<Box<Sleep>>),
    Done,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionIo<S> {
    /// `timeout`: how long a peer may take none of our bytes.
    pub(crate) fn new(stream: S, permit: ConnectionPermit, timeout: Duration) -> Self {
        Self {
            stream,
            permit,
            timeout,
            stalled: None,
            closing: Closing::No,
        }
    }

    /// Passes `progress` on; `Pending` for longer than the timeout becomes an error.
    fn within_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            if self.stalled.take().is_some() {
                self.permit.state.stall(false);
            }
            return progress;
        }
        if self.stalled.is_none() {
            self.permit.stalled();
        }
        let timeout = self.timeout;
        let alarm = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads and drops what comes until the peer ends.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let arrived = &buffer.filled()[before..];
        if !arrived.is_empty() {
            self.permit.received(arrived);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_timeout(context, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.within_timeout(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(context);
        // hyper flushes once it has no bytes of an answer left.
        if progress.is_ready() {
            self.permit.state.flushed();
        }
        self.within_timeout(context, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.closing = match &mut self.closing {
                Closing::No => Closing::Ending {
                    peer_is_sending: self.permit.state.close(),
                },
                &mut Closing::Ending { peer_is_sending } => {
                    let progress = Pin::new(&mut self.stream).poll_shutdown(context);
                    ready!(self.within_timeout(context, progress))?;
                    if peer_is_sending {
                        Closing::Lingering(Box::pin(sleep(LINGERING_CLOSE)))
                    } else {
                        Closing::Done
                    }
                }
                Closing::Lingering(alarm) => {
                    if alarm.as_mut().poll(context).is_pending() {
                        ready!(self.poll_discard(context));
                    }
                    Closing::Done
                }
                Closing::Done => return Poll::Ready(Ok(())),
            };
        }
    }
}
