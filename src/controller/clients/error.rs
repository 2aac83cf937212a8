//! Errors of clients of runtimes.
//!
//! Invariant: an error contains neither text of a response nor content of a kubeconfig. The response of an API server
//! is reduced to its machine-readable reason and the names of fields, both bounded. Not in here: retries. An error
//! only specifies whether and when a retry is useful.

use std::io;
use std::time::Duration;

use http::header::InvalidHeaderValue;

use super::reason::Reason;

/// Reason why a kubeconfig cannot be used. The kubeconfig has to be replaced.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A CA certificate cannot be a trust anchor.
    #[error("certificate authority rejected by the TLS library")]
    Authority(#[source] rustls::Error),
    /// Key and certificate do not match, or are not supported by the TLS library.
    #[error("client certificate or key rejected by the TLS library")]
    Identity(#[source] rustls::Error),
    /// The token is not a valid header value.
    #[error("token: not a valid header value")]
    Token(#[source] InvalidHeaderValue),
    /// The cryptographic provider does not support TLS 1.2 and 1.3.
    #[error("the TLS library cannot be configured")]
    Provider(#[source] rustls::Error),
}

/// Reason why a request failed. It is unknown whether a write without a response took effect.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection failed, or was closed before the response was complete.
    #[error("connection failed")]
    Unreachable(#[source] TransportError),
    /// A runtime must not have this address.
    #[error("server")]
    AddressRefused(#[source] AddressError),
    /// There was no connection or no complete response in time.
    #[error("{0} within {1:?}")]
    TimedOut(Phase, Duration),
    /// The TLS handshake failed: the certificate of the server or of the client was rejected.
    #[error("TLS")]
    Tls(#[source] TlsError),
    /// Status 429.
    #[error("API server returned 429")]
    Throttled {
        /// The value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// Status 409.
    #[error("API server returned 409 ({reason})")]
    Conflict {
        /// The reason of the API server.
        reason: Reason,
    },
    /// Another status 3xx or 4xx; redirects are not followed.
    #[error("API server returned {status} ({reason})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason of the API server.
        reason: Reason,
    },
    /// Status 5xx, or one that HTTP does not define.
    #[error("API server returned {status}")]
    Server {
        /// The HTTP status.
        status: u16,
        /// The value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The response is larger than [`super::MAX_BODY`].
    #[error("response of the API server exceeds {} bytes", super::MAX_BODY)]
    Oversized,
    /// The response would need more memory than [`super::MAX_DECODED`].
    #[error(
        "response of the API server needs more than {} bytes of memory",
        super::MAX_DECODED
    )]
    TooManyValues,
    /// The body of a successful response is not JSON.
    #[error("response of the API server is not JSON")]
    NotJson,
    /// The path is not valid in a request.
    #[error("not a valid request path")]
    InvalidPath,
}

/// Reason why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The host name cannot be resolved.
    #[error("host name cannot be resolved")]
    Name(#[source] io::Error),
    /// TCP, or the stream below TLS, failed.
    #[error("TCP connection failed")]
    Connection(#[source] io::Error),
    /// HTTP failed: the connection was reset or closed too early, or the server does not use HTTP.
    #[error("HTTP exchange aborted")]
    Exchange(#[source] hyper::Error),
}

/// Reason why a runtime must not have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A loopback, link-local, metadata, multicast or unspecified address.
    #[error("loopback, link-local and metadata addresses are not allowed")]
    Special,
    /// The address of the API server of KCP.
    #[error("the API server of KCP is not allowed")]
    ControlPlane,
}

/// Phase of a request that exceeded its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Name resolution, TCP, TLS and HTTP handshake.
    Connecting,
    /// The time from sending the request to the last byte of the response.
    Answering,
}

/// Reason why the TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The server's certificate is not issued by the CA of the kubeconfig.
    #[error("certificate of the API server is not issued by the CA of the kubeconfig")]
    UnknownIssuer,
    /// The server's certificate has expired.
    #[error("certificate of the API server has expired")]
    Expired,
    /// The server's certificate is not valid yet.
    #[error("certificate of the API server is not valid yet")]
    NotYetValid,
    /// The server's certificate is for another host.
    #[error("certificate of the API server is for another name")]
    WrongName,
    /// The server's certificate is invalid for another reason.
    #[error("certificate of the API server is invalid")]
    Certificate,
    /// The API server rejects the certificate of the client, or requires one.
    #[error("client certificate rejected by the API server")]
    ClientRefused,
    /// The server does not support TLS, or no version that the client supports.
    #[error("handshake failed")]
    Handshake,
}

impl CallError {
    /// Returns whether the same request may succeed later without any change.
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

    /// Returns whether any other request would fail now, too: the API server cannot be reached, or requires a pause.
    /// Returns `false` for a timeout of a response, since an admission webhook of the cluster may have delayed it.
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

    /// Returns whether the error of a read concerns its object only, so that other objects may be read.
    pub(crate) fn concerns_one_object(&self) -> bool {
        !self.concerns_all_calls() && self.status() != Some(UNAUTHORIZED)
    }

    /// Returns the pause that the API server requires, at most [`super::MAX_RETRY_AFTER`].
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } | Self::Server { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether the user of the kubeconfig lacks a permission, or a quota is exceeded.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.status() == Some(403)
    }

    /// Returns whether the object or its API does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Returns the status code of the response; `None` if there was no response.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Throttled { .. } => Some(429),
            Self::Conflict { .. } => Some(409),
            Self::Refused { status, .. } | Self::Server { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Converts the error of a handshake.
    pub(super) fn of_handshake(error: io::Error) -> Self {
        match tls_error(&error) {
            Some(fault) => Self::Tls(fault),
            None => Self::Unreachable(TransportError::Connection(error)),
        }
    }

    /// Converts the error of an exchange. In TLS 1.3 a server verifies the certificate of the client after the
    /// handshake has ended for the client.
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

/// Finds the error of the TLS library among the causes.
fn tls_error(error: &(dyn std::error::Error + 'static)) -> Option<TlsError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(TlsError::of(error));
        }
        // `source` of an `io::Error` skips the inner error, so it has to be read by `get_ref`.
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
            // CAs of many clusters have the same name ("kubernetes"), so a wrong CA is often detected by the signature.
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

const UNAUTHORIZED: u16 = 401;
const REQUEST_TIMEOUT: u16 = 408;
