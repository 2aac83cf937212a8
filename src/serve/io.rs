//! Adapter of the socket for hyper: reports received bytes to the state of the connection, and limits each wait for the client.
//!
//! Invariant: writing, flushing and closing end, by progress or by [`io::ErrorKind::TimedOut`].

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::limiter::ConnectionPermit;

/// Time in which bytes are read and dropped after a rejection (a lingering close), so that the client can read the rejection.
pub(crate) const LINGERING_CLOSE: Duration = Duration::from_secs(1);

/// A connection, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Drops received bytes, and returns their number; 0 at the end. The bytes are not decrypted, so that unwanted bytes
    /// have a low cost.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Records that received bytes were complete, so that the stream has returned them.
    fn returned(&mut self) {}
}

impl Stream for TcpStream {
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = [MaybeUninit::uninit(); 16 * 1024];
        loop {
            ready!(self.poll_read_ready(context))?;
            // With this flag Linux does not copy the bytes.
            let receive = || Ok(recv(&*self, &mut scratch, RecvFlags::TRUNC)?.1);
            match self.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

/// Maximum number of bytes of a handshake. That of a client with a chain of certificates has a few kB. TLS alone would accept
/// messages of 64 KiB, which clients without credentials could leave incomplete on every connection.
#[cfg(feature = "tls")]
const MAX_HANDSHAKE: usize = 24 * 1024;

/// Maximum number of bytes after the handshake until TLS returns some: a record has up to 18 kB, and as many bytes of the
/// next records may be read before it is complete.
#[cfg(feature = "tls")]
const MAX_RECORDS: usize = 40 * 1024;

/// A socket below TLS, which fails beyond [`MAX_HANDSHAKE`], and after the handshake beyond [`MAX_RECORDS`].
#[cfg(feature = "tls")]
pub(crate) struct TlsSocket {
    tcp: TcpStream,
    incomplete: usize,
    limit: usize,
}

#[cfg(feature = "tls")]
impl TlsSocket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            incomplete: 0,
            limit: MAX_HANDSHAKE,
        }
    }

    /// Records that the handshake or a record is complete.
    pub(crate) fn completed(&mut self) {
        self.incomplete = 0;
        self.limit = MAX_RECORDS;
    }
}

#[cfg(feature = "tls")]
impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.incomplete > self.limit {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(context, buffer))?;
        self.incomplete += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "tls")]
impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(feature = "tls")]
impl Stream for tokio_rustls::server::TlsStream<TlsSocket> {
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.get_mut().0.tcp.poll_discard(context)
    }

    fn returned(&mut self) {
        self.get_mut().0.completed();
    }
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = [0; 1024];
        let mut buffer = ReadBuf::new(&mut scratch);
        let progress = Pin::new(self).poll_read(context, &mut buffer);
        progress.map_ok(|()| buffer.filled().len())
    }
}

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

impl<S: Stream> ConnectionIo<S> {
    /// Creates an adapter. `timeout` is the maximum time in which the client accepts no bytes.
    pub(crate) fn new(stream: S, permit: ConnectionPermit, timeout: Duration) -> Self {
        Self {
            stream,
            permit,
            timeout,
            stalled: None,
            closing: Closing::No,
        }
    }

    /// Returns `progress`. If it is `Pending` for longer than the timeout, returns an error.
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

    /// Drops received bytes until the client ends the connection.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while ready!(self.stream.poll_discard(context)).is_ok_and(|bytes| bytes > 0) {}
        Poll::Ready(())
    }
}

impl<S: Stream> AsyncRead for ConnectionIo<S> {
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
            self.stream.returned();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncWrite for ConnectionIo<S> {
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
        // hyper flushes after it has written all bytes of a response.
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

#[cfg(all(test, feature = "tls"))]
mod tests {
    use rstest::rstest;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// TLS reads ahead: of a body that arrives faster than it is read, two records may be read before one is complete.
    #[rstest]
    #[case::handshake(false, 16 * 1024)]
    #[case::two_records(true, 2 * 16_406 + 4_096)]
    #[tokio::test]
    async fn incomplete_bytes_are_limited(#[case] is_complete: bool, #[case] permitted: usize) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, mut socket) = (client.unwrap(), TlsSocket::new(accepted.unwrap().0));
        if is_complete {
            socket.completed();
        }
        client.write_all(&vec![0; 96 * 1024]).await.unwrap();
        drop(client);
        let (mut read, mut chunk) = (0, [0; 4_096]);
        let error = loop {
            match socket.read(&mut chunk).await {
                Ok(0) => panic!("no limit"),
                Ok(bytes) => read += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(
            (permitted..=permitted + 16 * 1024).contains(&read),
            "{read}"
        );
    }
}
