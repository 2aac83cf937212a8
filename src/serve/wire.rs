//! The socket as hyper sees it: tells the pulse what arrives, and waits for no peer for ever.
//!
//! Invariant: writing, flushing and closing end, by progress or by [`io::ErrorKind::TimedOut`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::pulse::Pulse;

/// How long we read on behind a refusal, so that the peer gets to read it. Bounds what a peer can make us
/// decrypt for nothing.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct Wire<S> {
    stream: S,
    pulse: Arc<Pulse>,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    closing: Closing,
}

enum Closing {
    No,
    Ending { peer_is_sending: bool },
    Farewell(Pin<Box<Sleep>>),
    Done,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// `patience`: how long a peer may take none of our bytes.
    pub(crate) fn new(stream: S, pulse: Arc<Pulse>, patience: Duration) -> Self {
        Self {
            stream,
            pulse,
            patience,
            stalled: None,
            closing: Closing::No,
        }
    }

    /// Passes `progress` on, but not `Pending` for ever.
    fn patiently<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            if self.stalled.take().is_some() {
                self.pulse.stall(false);
            }
            return progress;
        }
        if self.stalled.is_none() {
            self.pulse.stall(true);
        }
        let patience = self.patience;
        let alarm = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads and forgets until the peer ends.
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if let Some(arrived) = buffer
            .filled()
            .get(before..)
            .filter(|arrived| !arrived.is_empty())
        {
            self.pulse.received(arrived);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.patiently(context, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.patiently(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(context);
        self.patiently(context, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.closing = match &mut self.closing {
                Closing::No => Closing::Ending {
                    peer_is_sending: self.pulse.close(),
                },
                &mut Closing::Ending { peer_is_sending } => {
                    let progress = Pin::new(&mut self.stream).poll_shutdown(context);
                    ready!(self.patiently(context, progress))?;
                    if peer_is_sending {
                        Closing::Farewell(Box::pin(sleep(FAREWELL)))
                    } else {
                        Closing::Done
                    }
                }
                Closing::Farewell(alarm) => {
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
