//! Why a post was not taken.
//!
//! Invariant: nothing of what KCP or the gateway wrote is in an error but the status and the wait it asks for.
//! Deliberately absent: what follows from it, but for what it says about whom (see [`PostError::blames`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::certificates::CertificateError;
use crate::metrics::{FAILED_REQUEST, REQUEST_SETUP};

/// Why KCP did not take something.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// KCP answered, and not with 2xx. Redirects are never followed.
    #[error("KCP returned {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What `Retry-After` says; at most [`super::MAX_RETRY_AFTER`].
        retry_after: Option<Duration>,
    },
    /// No answer.
    #[error("connection to KCP failed")]
    Unreachable(#[source] Broken),
    /// Nothing was sent: there are no certificates to send it with.
    #[error("no valid certificates")]
    Setup(#[source] Arc<CertificateError>),
}

/// How far an attempt came.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The name does not resolve.
    #[error("host name cannot be resolved")]
    Name(#[source] io::Error),
    /// TCP.
    #[error("TCP connection failed")]
    Connection(#[source] io::Error),
    /// No trustworthy session: its certificate or ours was refused, or it does not speak TLS.
    #[error("TLS")]
    Session(#[source] io::Error),
    /// Reset, closed too early, or not HTTP. In TLS 1.3 a refusal of our certificate shows here.
    #[error("HTTP exchange aborted")]
    Exchange(#[source] hyper::Error),
    /// Time was up.
    #[error("{0} took too long")]
    TimedOut(Phase),
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until another post gave its connection up.
    Waiting,
    /// Name and TCP.
    Connecting,
    /// TLS.
    Handshake,
    /// From sending the request to the end of the answer's head.
    Answering,
}

/// Whom a failure concerns, that is: whose posts should wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// Everybody's: there is no way to KCP.
    Link,
    /// The manager's: its listener, or the route to it.
    Manager,
    /// The manager's, unless others are not answered, either: the gateway took the post, and nothing came back.
    Silence,
    /// This event's alone.
    Event,
}

impl PostError {
    /// The label `error_reason` of `watcher_failed_kcp_total`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::Unreachable(_) => FAILED_REQUEST,
            Self::Setup(_) => REQUEST_SETUP,
        }
    }

    /// The label of our own counter of refused posts.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Setup(_) => "setup",
            Self::Refused { status, .. } => match status {
                300..400 => "3xx",
                400..500 => "4xx",
                500..600 => "5xx",
                _ => "other",
            },
        }
    }

    /// How long KCP asks to stay away.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unreachable(_) | Self::Setup(_) => None,
        }
    }

    /// Whether the public watcher would try again at once: transport errors and 5xx.
    pub(super) fn transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => (500..600).contains(status),
            Self::Unreachable(_) => true,
            Self::Setup(_) => false,
        }
    }

    /// Whether the same post would be answered the same: a 4xx that says nothing about who sends it, or how often.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                (400..500).contains(status)
                    && !matches!(status, 401 | 403 | 407 | 408 | 421 | 423 | 425 | 429)
            }
            Self::Unreachable(_) | Self::Setup(_) => false,
        }
    }

    pub(super) fn blames(&self) -> Blame {
        match self {
            Self::Unreachable(Broken::TimedOut(Phase::Answering)) => Blame::Silence,
            Self::Unreachable(_) | Self::Setup(_) => Blame::Link,
            Self::Refused { status, .. } => match status {
                // Who we are, where the route leads, how fast we go: not about one event.
                401 | 403..=405 | 407 | 408 | 421 | 425 | 429 => Blame::Manager,
                400..500 => Blame::Event,
                _ => Blame::Manager,
            },
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Waiting => "waiting for a connection",
            Self::Connecting => "connecting",
            Self::Handshake => "the TLS handshake",
            Self::Answering => "its answer",
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::unauthorized(401, Blame::Manager, false)]
    #[case::forbidden(403, Blame::Manager, false)]
    #[case::no_route(404, Blame::Manager, true)]
    #[case::no_method(405, Blame::Manager, true)]
    #[case::too_many(429, Blame::Manager, false)]
    #[case::moved(301, Blame::Manager, false)]
    #[case::broken(500, Blame::Manager, false)]
    #[case::no_listener(503, Blame::Manager, false)]
    #[case::beyond_http(999, Blame::Manager, false)]
    #[case::not_understood(400, Blame::Event, true)]
    #[case::too_large(413, Blame::Event, true)]
    #[case::head_too_large(431, Blame::Event, true)]
    fn a_status_tells_whom_it_concerns(
        #[case] status: u16,
        #[case] blame: Blame,
        #[case] is_permanent: bool,
    ) {
        let retry_after = None;
        let error = PostError::Refused {
            status,
            retry_after,
        };
        assert_eq!(
            (error.blames(), error.is_permanent()),
            (blame, is_permanent)
        );
    }

    /// A listener that hangs is behind a gateway that does not; only what comes before the request is about the way there.
    #[rstest]
    #[case::no_connection(Phase::Connecting, Blame::Link)]
    #[case::no_session(Phase::Handshake, Blame::Link)]
    #[case::no_place(Phase::Waiting, Blame::Link)]
    #[case::no_answer(Phase::Answering, Blame::Silence)]
    fn so_does_what_took_too_long(#[case] phase: Phase, #[case] blame: Blame) {
        let error = PostError::Unreachable(Broken::TimedOut(phase));
        assert_eq!(error.blames(), blame);
    }
}
