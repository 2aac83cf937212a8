//! Why a client of a runtime cannot be created, and why a request failed.
//!
//! Invariant: an error contains no text of a response and nothing of a kubeconfig. What an API server writes is reduced to
//! its machine-readable reason and the names of fields, both bounded. Deliberately absent: retries; an error only says
//! whether one makes sense, and when.

use std::io;
use std::time::Duration;

use http::header::InvalidHeaderValue;

use super::reason::Reason;

/// Why a kubeconfig cannot be used. Only another kubeconfig helps.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A certificate of the authority cannot be a trust anchor.
    #[error("the TLS library refuses the certificate authority")]
    Authority(#[source] rustls::Error),
    /// Key and certificate are not a pair, or of a kind that the TLS library does not support.
    #[error("the TLS library refuses the client certificate and its key")]
    Identity(#[source] rustls::Error),
    /// The token cannot be the value of a header.
    #[error("token: not a valid header value")]
    Token(#[source] InvalidHeaderValue),
    /// The cryptography of the process lacks what TLS 1.2 and 1.3 need.
    #[error("the TLS library cannot be configured")]
    Provider(#[source] rustls::Error),
}

/// Why a request failed. Whether a write without a response took effect is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection, or it was closed before the response was complete.
    #[error("connection failed")]
    Unreachable(#[source] TransportError),
    /// The address is one that no runtime may have.
    #[error("server")]
    AddressRefused(#[source] AddressError),
    /// Connecting or the response took too long.
    #[error("{0} within {1:?}")]
    TimedOut(Phase, Duration),
    /// No TLS session: the certificate of the server or that of the client was rejected.
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
        /// The reason of the API server.
        reason: Reason,
    },
    /// Another 3xx or 4xx: redirects are never followed.
    #[error("API server returned {status} ({reason})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason of the API server.
        reason: Reason,
    },
    /// 5xx, or a status that HTTP does not define.
    #[error("API server returned {status}")]
    Server {
        /// The HTTP status.
        status: u16,
        /// What `Retry-After` says.
        retry_after: Option<Duration>,
    },
    /// The response is larger than [`super::MAX_BODY`].
    #[error("response of the API server exceeds {} bytes", super::MAX_BODY)]
    Oversized,
    /// A success whose body is not JSON.
    #[error("response of the API server is not JSON")]
    NotJson,
    /// The path cannot be that of a request.
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
    /// From sending the request to the last byte of the response.
    Answering,
}

/// Why there is no TLS session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// Not issued by the kubeconfig's authority.
    #[error("certificate of the API server is not issued by the CA of the kubeconfig")]
    UnknownIssuer,
    /// It has expired.
    #[error("certificate of the API server has expired")]
    Expired,
    /// It is not valid yet.
    #[error("certificate of the API server is not valid yet")]
    NotYetValid,
    /// Issued for another host.
    #[error("certificate of the API server is for another name")]
    WrongName,
    /// Another error in its certificate.
    #[error("certificate of the API server is invalid")]
    Certificate,
    /// The API server rejects the certificate of the client, or requires one.
    #[error("client certificate rejected by the API server")]
    ClientRefused,
    /// It does not speak TLS, or no version that the client speaks.
    #[error("handshake failed")]
    Handshake,
}

impl CallError {
    /// Whether the same request may succeed later without any change.
    #[must_use]
    pub fn transient(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut(..)
            | Self::Throttled { .. }
            | Self::Server { .. } => true,
            Self::Conflict { reason } => reason.is_stale_write(),
            Self::Refused { status, .. } => *status == REQUEST_TIMEOUT,
            _ => false,
        }
    }

    /// Whether any other request would fail now too: the API server cannot be reached, or demands a pause. A write that
    /// times out does not mean that, as an admission webhook of the cluster may have delayed it.
    #[must_use]
    pub fn concerns_all_calls(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::AddressRefused(_)
            | Self::TimedOut(Phase::Connecting, _)
            | Self::Tls(_)
            | Self::Throttled { .. } => true,
            Self::Server { retry_after, .. } => retry_after.is_some(),
            _ => false,
        }
    }

    /// The pause that the API server demands; at most [`super::MAX_RETRY_AFTER`].
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
            _ => None,
        }
    }

    /// A failure of the handshake.
    pub(super) fn of_handshake(error: io::Error) -> Self {
        match tls_error(&error) {
            Some(fault) => Self::Tls(fault),
            None => Self::Unreachable(TransportError::Connection(error)),
        }
    }

    /// A failure of an exchange. In TLS 1.3 a server verifies the certificate of the client only after the handshake has ended for
    /// the client.
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

/// Finds the error of the TLS library behind an error.
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
            // Authorities of many clusters have one name ("kubernetes"), so the wrong one often shows by its signature.
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
