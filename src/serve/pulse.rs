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
    /// A request is being handled or answered.
    Busy,
    /// A handler waits for the rest of its request's body.
    Body,
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

/// What losing a connection would cost, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// It has sent no complete request, its next one is incomplete, or it takes no answer.
    Unfinished(Instant),
    /// It has sent a request and may send another.
    Idle(Instant),
}

pub(crate) struct Pulse {
    /// How much of a header is kept for [`Pulse::begin`] to judge.
    kept_bytes: usize,
    state: Mutex<State>,
    displaced: CancellationToken,
}

struct State {
    stage: Stage,
    since: Instant,
    served: bool,
    unread: bool,
    /// Since when the peer has taken none of the bytes of an answer.
    stalled: Option<Instant>,
    header: Vec<u8>,
    header_complete: bool,
}

impl Pulse {
    /// `kept_bytes`: how much of a header is kept for [`Pulse::begin`] to judge; 0 if nothing is to be judged.
    pub(crate) fn new(now: Instant, kept_bytes: usize) -> Self {
        let state = State {
            stage: Stage::Handshake,
            since: now,
            served: false,
            unread: false,
            stalled: None,
            header: Vec::new(),
            header_complete: false,
        };
        Self {
            kept_bytes,
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
            state.keep_header(bytes, self.kept_bytes);
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

    /// A handler waits for the body of this request.
    pub(crate) fn await_body(&self) {
        let mut state = self.state();
        state.stage = Stage::Body;
        state.since = Instant::now();
    }

    /// The wait for the body is over: it is complete, or the request is refused.
    pub(crate) fn handle_body(&self) {
        self.state().stage = Stage::Busy;
    }

    /// The body of this request will not be read to its end.
    pub(crate) fn leave_unread(&self) {
        self.state().unread = true;
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.state().unread
    }

    /// Whether the peer takes none of the bytes of an answer.
    pub(crate) fn stall(&self, stalled: bool) {
        self.state().stalled = stalled.then(Instant::now);
    }

    /// Whether the peer has begun a request that it has not completed, takes no answer, or is only listened to any more.
    pub(crate) fn waits_for_its_peer(&self) -> bool {
        let state = self.state();
        matches!(state.stage, Stage::Header | Stage::Body | Stage::Closing)
            || state.stalled.is_some()
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
            // A body has its own clock.
            (Stage::Handshake | Stage::Busy | Stage::Body | Stage::Closing, _) => None,
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

    /// What losing this connection would cost; `None` while its request is handled.
    pub(crate) fn worth(&self) -> Option<Worth> {
        let state = self.state();
        if let Some(since) = state.stalled {
            return Some(Worth::Unfinished(since));
        }
        match state.stage {
            Stage::Busy => None,
            Stage::Waiting if state.served => Some(Worth::Idle(state.since)),
            _ => Some(Worth::Unfinished(state.since)),
        }
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
    fn keep_header(&mut self, bytes: &[u8], kept_bytes: usize) {
        for piece in bytes.chunks(PIECE) {
            if self.header_complete || self.header.len() >= kept_bytes {
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
