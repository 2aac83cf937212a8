//! Why a post was not taken. Nothing of what KCP or the gateway wrote is in an error but the status and the wait it asks for.

use std::sync::Arc;
use std::time::Duration;

use tower::BoxError;

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
    /// No connection, or it broke: name, TCP, TLS, or not HTTP. In TLS 1.3 a refusal of the watcher's certificate shows
    /// here.
    #[error("connection to KCP failed")]
    Unreachable(#[source] BoxError),
    /// The post was sent, and no answer came in time.
    #[error("no response from KCP in time")]
    NoResponse,
    /// Nothing was sent: there are no certificates to send it with.
    #[error("no valid certificates")]
    Setup(#[source] Arc<CertificateError>),
}

/// A step on the way to a connection took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StepTimeout {
    /// Until another post gave its connection up.
    #[error("timed out waiting for a connection")]
    Wait,
    #[error("timed out connecting")]
    Connect,
    #[error("timed out in the TLS handshake")]
    Handshake,
}

/// What a failure concerns, that is: which posts wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// There is no way to KCP.
    All,
    /// The manager's listener, or the route to it.
    Manager,
    /// The manager, unless others do not respond, either: the gateway took the post, and nothing came back.
    NoResponse,
    /// This event alone.
    Event,
}

impl PostError {
    /// The label `error_reason` of `watcher_failed_kcp_total`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Setup(_) => REQUEST_SETUP,
            _ => FAILED_REQUEST,
        }
    }

    /// The label of the counter of failed deliveries.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::NoResponse => "unreachable",
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
            _ => None,
        }
    }

    /// Whether the public watcher would try again at once: transport errors and 5xx.
    pub(super) fn transient(&self) -> bool {
        matches!(self.kind(), "unreachable" | "5xx")
    }

    /// Whether the same post would be answered the same: a 4xx that says nothing about who sends it, or how often.
    pub(super) fn is_permanent(&self) -> bool {
        let Self::Refused { status, .. } = self else {
            return false;
        };
        let passing = [401, 403, 407, 408, 421, 423, 425, 429];
        (400..500).contains(status) && !passing.contains(status)
    }

    pub(super) fn scope(&self) -> FailureScope {
        match self {
            Self::NoResponse => FailureScope::NoResponse,
            Self::Unreachable(_) | Self::Setup(_) => FailureScope::All,
            Self::Refused { status, .. } => match status {
                // Who we are, where the route leads, how fast we go: not about one event.
                401 | 403..=405 | 407 | 408 | 421 | 425 | 429 => FailureScope::Manager,
                400..500 => FailureScope::Event,
                _ => FailureScope::Manager,
            },
        }
    }
}

#[cfg(test)]
mod tests;
