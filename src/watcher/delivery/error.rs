//! Reasons why KCP did not accept a request. Errors contain only the status and the requested wait, and no other content of
//! a response.

use std::sync::Arc;
use std::time::Duration;

use tower::BoxError;

use crate::certificates::CertificateError;
use crate::metrics::{FAILED_REQUEST, REQUEST_SETUP};

/// Reason why KCP did not accept a request.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// KCP returned a status other than 2xx. Redirects are never followed.
    #[error("KCP returned {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Value of `Retry-After`; at most [`super::MAX_RETRY_AFTER`].
        retry_after: Option<Duration>,
    },
    /// The connection could not be established, or it broke: name resolution, TCP, TLS, or an invalid HTTP response. In TLS
    /// 1.3 a rejected certificate of the watcher also causes this error.
    #[error("connection to KCP failed")]
    Unreachable(#[source] BoxError),
    /// The request was sent, and no response arrived in time.
    #[error("no response from KCP in time")]
    NoResponse,
    /// Nothing was sent, because there are no usable certificates.
    #[error("no valid certificates")]
    Setup(#[source] Arc<CertificateError>),
}

/// A step of the connection setup timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StepTimeout {
    /// Wait for a free connection.
    #[error("timed out waiting for a connection")]
    Wait,
    #[error("timed out connecting")]
    Connect,
    #[error("timed out in the TLS handshake")]
    Handshake,
}

/// Scope of a failure, which determines the requests that are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// KCP is not reachable.
    All,
    /// The listener of the manager, or the route to the listener.
    Manager,
    /// The manager, unless other managers do not respond either. The gateway accepted the request, and no response arrived.
    NoResponse,
    /// Only this event.
    Event,
}

impl PostError {
    /// Returns the label `error_reason` of `watcher_failed_kcp_total`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Setup(_) => REQUEST_SETUP,
            _ => FAILED_REQUEST,
        }
    }

    /// Returns the label of the counter of failed deliveries.
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

    /// Returns the wait that KCP requests.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether the public watcher would retry at once: transport errors and 5xx.
    pub(super) fn transient(&self) -> bool {
        matches!(self.kind(), "unreachable" | "5xx")
    }

    /// Returns whether a retry of the same request would fail in the same way: a 4xx that depends neither on the sender nor
    /// on the rate of requests.
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
                // Failures of authentication, routing or rate, which do not depend on the event.
                401 | 403..=405 | 407 | 408 | 421 | 425 | 429 => FailureScope::Manager,
                400..500 => FailureScope::Event,
                _ => FailureScope::Manager,
            },
        }
    }
}

#[cfg(test)]
mod tests;
