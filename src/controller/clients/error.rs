//! Why a runtime cannot be opened, and why a call to it failed.
//!
//! Invariant: no text of an answer and nothing of a kubeconfig is in an error. What an API server writes is reduced to
//! its machine-readable reason and the names of fields, both bounded. Deliberately absent: retries; an error only says
//! whether one makes sense and when.

use std::io;
use std::time::Duration;

use http::header::InvalidHeaderValue;

use super::reason::Reason;

/// Why the access that a kubeconfig describes cannot be used. Only another kubeconfig helps.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A certificate of the authority cannot be an anchor.
    #[error("the TLS library refuses the certificate authority")]
    Authority(#[source] rustls::Error),
    /// Key and certificate are not a pair, or of a kind that TLS here does not know.
    #[error("the TLS library refuses the client certificate and its key")]
    Identity(#[source] rustls::Error),
    /// The token cannot stand in a header.
    #[error("token: not a valid header value")]
    Token(#[source] InvalidHeaderValue),
    /// The process's cryptography lacks what TLS 1.2 and 1.3 need.
    #[error("the TLS library cannot be configured")]
    Provider(#[source] rustls::Error),
}

/// Why a call failed. Whether a write that got no answer took effect is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection, or it broke before the answer was complete.
    #[error("connection failed")]
    Unreachable(#[source] TransportError),
    /// The address is one that no runtime may have.
    #[error("server")]
    AddressRefused(#[source] AddressError),
    /// Connecting or the answer took too long.
    #[error("{0} within {1:?}")]
    TimedOut(Phase, Duration),
    /// No trustworthy session: its certificate or ours was refused.
    #[error("TLS")]
    Tls(#[source] TlsError),
    /// 429.
    #[error("API server returned 429")]
    Throttled {
        /// What `Retry-After` says.
        retry_after: Option<Duration>,
    },
    /// 409.
    #[error("API server returned 409 ({reason})")]
    Conflict {
        /// The API server's.
        reason: Reason,
    },
    /// Another 3xx or 4xx: redirects are never followed.
    #[error("API server returned {status} ({reason})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The API server's.
        reason: Reason,
    },
    /// 5xx, or a status that no HTTP server should answer.
    #[error("API server returned {status}")]
    Server {
        /// The HTTP status.
        status: u16,
        /// What `Retry-After` says.
        retry_after: Option<Duration>,
    },
    /// The answer is larger than [`super::MAX_BODY`].
    #[error("response of the API server exceeds {} bytes", super::MAX_BODY)]
    Oversized,
    /// A success whose body is not JSON.
    #[error("response of the API server is not JSON")]
    NotJson,
    /// The path given to the call cannot stand in a request.
    #[error("not a valid request path")]
    InvalidPath,
}

/// How a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The name does not resolve.
    #[error("host name cannot be resolved")]
    Name(#[source] io::Error),
    /// TCP or the bytes below TLS.
    #[error("TCP connection failed")]
    Connection(#[source] io::Error),
    /// HTTP: reset, closed too early, or not HTTP.
    #[error("HTTP exchange aborted")]
    Exchange(#[source] hyper::Error),
}

/// Why no runtime may have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It belongs to this machine, to its network, to a metadata service, or to no machine.
    #[error("loopback, link-local and metadata addresses are not allowed")]
    Special,
    /// It belongs to the API server of the control plane.
    #[error("the API server of the control plane is not allowed")]
    ControlPlane,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Name, TCP, TLS and HTTP set-up.
    Connecting,
    /// From sending the request to the last byte of the answer.
    Answering,
}

/// Why there is no TLS session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// Not issued by the kubeconfig's authority.
    #[error("certificate of the API server is not issued by the CA of the kubeconfig")]
    UnknownIssuer,
    /// Its time is over.
    #[error("certificate of the API server has expired")]
    Expired,
    /// Its time is to come.
    #[error("certificate of the API server is not valid yet")]
    NotYetValid,
    /// Issued for another host.
    #[error("certificate of the API server is for another name")]
    WrongName,
    /// Another fault of its certificate.
    #[error("certificate of the API server is invalid")]
    Certificate,
    /// The API server refuses our certificate, or wants one.
    #[error("client certificate rejected by the API server")]
    ClientRefused,
    /// It does not speak TLS, or none that we speak.
    #[error("handshake failed")]
    Handshake,
}

impl CallError {
    /// Whether the same call may succeed later without anybody changing anything for it.
    #[must_use]
    pub fn transient(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut(..)
            | Self::Throttled { .. }
            | Self::Server { .. } => true,
            Self::Conflict { reason } => reason.is_stale_write(),
            Self::Refused { status, .. } => *status == REQUEST_TIMEOUT,
            Self::AddressRefused(_)
            | Self::Tls(_)
            | Self::Oversized
            | Self::NotJson
            | Self::InvalidPath => false,
        }
    }

    /// Whether any other call would fail now too: the API server is not reached, or asks to be left alone. A write that times
    /// out does not say that, as an admission webhook of the cluster may have delayed it.
    #[must_use]
    pub fn concerns_all_calls(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::AddressRefused(_)
            | Self::TimedOut(Phase::Connecting, _)
            | Self::Tls(_)
            | Self::Throttled { .. } => true,
            Self::Server { retry_after, .. } => retry_after.is_some(),
            Self::TimedOut(Phase::Answering, _)
            | Self::Conflict { .. }
            | Self::Refused { .. }
            | Self::Oversized
            | Self::NotJson
            | Self::InvalidPath => false,
        }
    }

    /// How long the API server asks to stay away; at most [`super::MAX_RETRY_AFTER`].
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } | Self::Server { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Status code of the response; `None` if there was none.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Throttled { .. } => Some(429),
            Self::Conflict { .. } => Some(409),
            Self::Refused { status, .. } | Self::Server { status, .. } => Some(*status),
            Self::Unreachable(_)
            | Self::AddressRefused(_)
            | Self::TimedOut(..)
            | Self::Tls(_)
            | Self::Oversized
            | Self::NotJson
            | Self::InvalidPath => None,
        }
    }

    /// A fault of the handshake.
    pub(super) fn of_handshake(error: io::Error) -> Self {
        match tls_error(&error) {
            Some(fault) => Self::Tls(fault),
            None => Self::Unreachable(TransportError::Connection(error)),
        }
    }

    /// A fault of an exchange. In TLS 1.3 a server judges our certificate only after the handshake looks done to us.
    pub(super) fn of_exchange(error: hyper::Error) -> Self {
        match tls_error(&error) {
            Some(fault) => Self::Tls(fault),
            None => Self::Unreachable(TransportError::Exchange(error)),
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Connecting => "no connection",
            Self::Answering => "no response",
        })
    }
}

/// Finds the TLS library's own error behind an error.
fn tls_error(error: &(dyn std::error::Error + 'static)) -> Option<TlsError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(TlsError::of(error));
        }
        // The source of an io::Error is its content's source, so the content itself must be asked for.
        next = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

impl TlsError {
    fn of(error: &rustls::Error) -> Self {
        use rustls::AlertDescription as Alert;
        use rustls::CertificateError as Fault;
        use rustls::Error;
        match error {
            // Authorities of many clusters bear one name ("kubernetes"), so the wrong one often shows by its signature.
            Error::InvalidCertificate(Fault::UnknownIssuer | Fault::BadSignature) => {
                Self::UnknownIssuer
            }
            Error::InvalidCertificate(Fault::Expired | Fault::ExpiredContext { .. }) => {
                Self::Expired
            }
            Error::InvalidCertificate(Fault::NotValidYet | Fault::NotValidYetContext { .. }) => {
                Self::NotYetValid
            }
            Error::InvalidCertificate(
                Fault::NotValidForName | Fault::NotValidForNameContext { .. },
            ) => Self::WrongName,
            Error::InvalidCertificate(_) => Self::Certificate,
            Error::AlertReceived(
                Alert::AccessDenied
                | Alert::BadCertificate
                | Alert::CertificateExpired
                | Alert::CertificateRequired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::DecryptError
                | Alert::UnknownCA
                | Alert::UnsupportedCertificate,
            ) => Self::ClientRefused,
            _ => Self::Handshake,
        }
    }
}

const REQUEST_TIMEOUT: u16 = 408;
