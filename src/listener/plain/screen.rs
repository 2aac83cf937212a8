//! The socket as hyper sees it: keeps a copy of each header, and waits for no peer for ever.
//!
//! Two framings are how requests are smuggled past a gateway. Hyper resolves them as RFC 9112 §6.3 permits, before the
//! header map is seen: an equal second `Content-Length` is dropped, and `Transfer-Encoding` wins. We refuse both, as the
//! RFC prefers. Invariant: a request is believed only if its header was seen whole, from its first byte; so a pipelined one,
//! which no gateway sends, is refused, too.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// From the first byte of a request to the end of its header.
const HEADER: Duration = Duration::from_secs(5);

/// How long a connection may wait for its next request: longer than gateways keep theirs between two heartbeats.
const IDLE: Duration = Duration::from_mins(5);

/// How long a peer may take none of our bytes; answers are small, so any at all is suspicious.
const STALL: Duration = Duration::from_secs(30);

/// How long we read on behind our last answer: were bytes left unread, closing would reset the connection, and the
/// answer with it.
const FAREWELL: Duration = Duration::from_secs(1);

/// What is known of the request that is being read. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Screen(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// A request is being handled; what arrives is its body.
    busy: bool,
    /// When the header began.
    began: Option<Instant>,
    header: Vec<u8>,
    complete: bool,
}

impl Screen {
    /// Hyper has parsed a header. Whether the request is to be believed.
    pub(super) fn begin(&self, method: &str) -> bool {
        let mut state = self.state();
        let believed = state.complete && has_one_framing(&state.header, method);
        *state = State {
            busy: true,
            ..State::default()
        };
        believed
    }

    /// The request is answered; what arrives now begins the next one.
    pub(super) fn rest(&self) {
        self.state().busy = false;
    }

    fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.busy || state.complete {
            return;
        }
        state.began.get_or_insert_with(Instant::now);
        // The blank line may have begun in what came before.
        let from = state.header.len().saturating_sub(2);
        state.header.extend_from_slice(bytes);
        if let Some(end) = header_end(&state.header, from) {
            state.header.truncate(end);
            state.complete = true;
        }
    }

    /// How long the peer may now be silent; `None`: as long as the handler takes.
    fn patience(&self) -> Option<Duration> {
        let state = self.state();
        match (state.busy, state.began) {
            (true, _) => None,
            (false, Some(began)) => Some(HEADER.saturating_sub(began.elapsed())),
            (false, None) => Some(IDLE),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Offset behind the header's blank line, looked for from `from` on.
fn header_end(bytes: &[u8], from: usize) -> Option<usize> {
    let text = bytes.iter().enumerate().skip(from);
    let mut line_ends = text.filter(|&(_, &byte)| byte == b'\n').map(|(at, _)| at);
    line_ends.find_map(|at| match bytes.get(at + 1..) {
        // Empty lines before a request line do not end anything.
        _ if bytes[..at].iter().all(u8::is_ascii_whitespace) => None,
        Some([b'\n', ..]) => Some(at + 2),
        Some([b'\r', b'\n', ..]) => Some(at + 3),
        _ => None,
    })
}

/// Whether `header` begins with `method` and says at most once where the body ends.
fn has_one_framing(header: &[u8], method: &str) -> bool {
    let header = header.trim_ascii_start();
    let Some(rest) = header.strip_prefix(method.as_bytes()) else {
        return false;
    };
    let names = rest.split(|&byte| byte == b'\n').skip(1);
    let names = names.map(|line| line.split(|&byte| byte == b':').next().unwrap_or_default());
    let framings = names.filter(|name| {
        name.eq_ignore_ascii_case(b"content-length")
            || name.eq_ignore_ascii_case(b"transfer-encoding")
    });
    framings.count() <= 1
}

/// A connection under a [`Screen`].
pub(super) struct Screened {
    tcp: TcpStream,
    screen: Screen,
    reading: Option<Alarm>,
    writing: Option<Alarm>,
    leaving: Option<Alarm>,
}

/// When patience ends.
type Alarm = Pin<Box<Sleep>>;

impl Screened {
    pub(super) fn new(tcp: TcpStream, screen: Screen) -> Self {
        Self {
            tcp,
            screen,
            reading: None,
            writing: None,
            leaving: None,
        }
    }

    /// Passes `progress` of writing on, but not `Pending` for ever.
    fn patiently<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.writing = None;
            return progress;
        }
        let alarm = self.writing.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Screened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.tcp).poll_read(context, buffer) {
            self.reading = None;
            let arrived = buffer.filled().get(before..).unwrap_or_default();
            if !arrived.is_empty() {
                self.screen.received(arrived);
            }
            return Poll::Ready(result);
        }
        let Some(patience) = self.screen.patience() else {
            self.reading = None;
            return Poll::Pending;
        };
        let alarm = self
            .reading
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Screened {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.tcp).poll_write(context, bytes);
        self.patiently(context, progress)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.tcp).poll_flush(context);
        self.patiently(context, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.leaving.is_none() {
            let progress = Pin::new(&mut self.tcp).poll_shutdown(context);
            ready!(self.patiently(context, progress))?;
        }
        let this = &mut *self;
        let alarm = this
            .leaving
            .get_or_insert_with(|| Box::pin(sleep(FAREWELL)));
        if alarm.as_mut().poll(context).is_pending() {
            ready!(poll_discard(&mut this.tcp, context));
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads and forgets until the peer ends.
fn poll_discard(tcp: &mut TcpStream, context: &mut Context<'_>) -> Poll<()> {
    let mut scratch = [0; 4096];
    loop {
        let mut buffer = ReadBuf::new(&mut scratch);
        let read = ready!(Pin::new(&mut *tcp).poll_read(context, &mut buffer));
        if read.is_err() || buffer.filled().is_empty() {
            return Poll::Ready(());
        }
    }
}

#[cfg(test)]
mod tests;
