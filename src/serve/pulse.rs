//! What one connection is doing right now, and until when it may.
//!
//! Invariant: written by the connection's own task (socket adapter, request service), read by its clock and
//! by the cap. The lock is held for a few instructions and never across an await.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::framing::header_end;
use crate::limits::Limits;

/// The largest request header in bytes, also hyper's buffer for one connection.
pub(crate) const HEADER_BYTES: usize = 64 * 1024;

/// After accepting has ended, how long an idle connection is still listened to. The kernel may hold a request that
/// the reactor has not reported yet; it arrived in time and is served.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Headers are copied piecewise, so that the copy stays small although reads bring bodies along.
const PIECE: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// TLS is being agreed.
    Handshake,
    /// No byte of a next request has come.
    Waiting,
    /// A header has begun and not ended.
    Header,
    /// A request is being read, handled or answered.
    Busy,
    /// Our side has ended; the socket adapter bounds the rest.
    Closing,
}

/// What the server has decided about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    Serving,
    /// Nothing new has been accepted since then; whoever is idle goes.
    Stopping(Instant),
    /// Asked to close since then.
    Leaving(Instant),
}

pub(crate) struct Pulse {
    state: Mutex<State>,
    displaced: CancellationToken,
}

struct State {
    stage: Stage,
    since: Instant,
    served: bool,
    unread: bool,
    header: Vec<u8>,
    header_complete: bool,
}

impl Pulse {
    pub(crate) fn new(now: Instant) -> Self {
        let state = State {
            stage: Stage::Handshake,
            since: now,
            served: false,
            unread: false,
            header: Vec::new(),
            header_complete: false,
        };
        Self {
            state: Mutex::new(state),
            displaced: CancellationToken::new(),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    /// Ready to read a request: after the handshake, and after each response.
    pub(crate) fn rest(&self) {
        let mut state = self.state();
        state.stage = Stage::Waiting;
        state.since = Instant::now();
    }

    /// Bytes came. Those of a header are kept until [`Pulse::begin`] has judged it.
    pub(crate) fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.stage == Stage::Waiting {
            state.stage = Stage::Header;
            state.since = Instant::now();
        }
        if state.stage == Stage::Header {
            state.keep_header(bytes);
        }
    }

    /// A request's header is complete. Returns what `judge` says of its raw bytes.
    pub(crate) fn begin<T>(&self, judge: impl FnOnce(&[u8]) -> T) -> T {
        let mut state = self.state();
        let verdict = judge(&state.header);
        state.header.clear();
        state.header_complete = false;
        state.stage = Stage::Busy;
        state.served = true;
        state.unread = false;
        verdict
    }

    /// The body of this request will not be read to its end.
    pub(crate) fn leave_unread(&self) {
        self.state().unread = true;
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.state().unread
    }

    /// Our side ends. Returns whether the peer may still be sending what nobody will read: closing then makes
    /// the kernel send a reset, which can destroy our answer before the peer has read it.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state();
        let sending = state.unread || state.stage == Stage::Header;
        state.stage = Stage::Closing;
        sending
    }

    /// When the peer's time is up, if it is the peer that has to do something.
    pub(crate) fn due(&self, limits: &Limits, course: Course) -> Option<Instant> {
        let state = self.state();
        match (state.stage, course) {
            (Stage::Handshake | Stage::Busy | Stage::Closing, _) => None,
            (Stage::Waiting, Course::Serving) => Some(state.since + limits.idle),
            (Stage::Waiting, Course::Stopping(since)) if state.served => {
                Some(since.max(state.since) + LAST_LOOK)
            }
            (Stage::Waiting, Course::Leaving(since)) => {
                Some(since.max(state.since) + limits.header)
            }
            // A fresh connection was dialled for a request that is on its way, and which Go does not send again
            // elsewhere: it has as long as a header, also while the server stops.
            (Stage::Header, _) | (Stage::Waiting, Course::Stopping(_)) => {
                Some(state.since + limits.header)
            }
        }
    }

    /// How cheap it is to lose this connection, cheapest first; `None` while it serves a request.
    pub(crate) fn worth(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        (state.stage != Stage::Busy).then_some((state.served, state.since))
    }

    /// A newer connection takes this one's place.
    pub(crate) fn displace(&self) {
        self.displaced.cancel();
    }

    pub(crate) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep_header(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            if self.header_complete || self.header.len() > HEADER_BYTES {
                return;
            }
            // The blank line may straddle two pieces.
            let from = self.header.len().saturating_sub(3);
            self.header.extend_from_slice(piece);
            if let Some(end) = self.header.get(from..).and_then(header_end) {
                self.header.truncate(from + end);
                self.header_complete = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
