//! Why a request is refused, and what its sender is told.
//!
//! Invariant: an answer quotes nothing of the request. A refusal that a repetition cannot mend is 4xx; one that it can
//! is 503 with `Retry-After`, since senders repeat 5xx alone.

use std::error::Error as StdError;

use api::event::EventError;
use axum::body::Body;
use http::header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};

use crate::authorities::ChainError;
use crate::certificate::Malformed;
use crate::forwarded::ForwardedError;
use crate::verifier::Refusal;

/// Why a request is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("header too large")]
    HeaderTooLarge,
    #[error("request does not come from the gateway")]
    NotTheGateway,
    #[error("header has no usable client certificate")]
    Forwarded(#[source] ForwardedError),
    #[error("malformed client certificate")]
    Malformed(#[source] Malformed),
    #[error("client certificate not verified")]
    Chain(#[source] ChainError),
    #[error("sender not accepted")]
    Verifier(#[source] Refusal),
    #[error("body rejected")]
    Body(#[source] EventError),
    #[error("body not received")]
    BodyLost,
    #[error("body not received in time")]
    BodyLate,
    #[error("queue full")]
    QueueFull,
    #[error("queue closed by the operator")]
    Abandoned,
}

impl Refused {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Forwarded(_) | Self::Malformed(_) | Self::Chain(_) => StatusCode::UNAUTHORIZED,
            Self::NotTheGateway | Self::Verifier(Refusal::Denied(_)) => StatusCode::FORBIDDEN,
            Self::Body(EventError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Verifier(Refusal::NoRuntimeId) | Self::Body(_) | Self::BodyLost => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::Verifier(Refusal::Unavailable(_)) | Self::QueueFull | Self::Abandoned => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Whether it counts as a failed verification of the sender.
    pub(crate) fn is_verification(&self) -> bool {
        matches!(
            self,
            Self::NotTheGateway
                | Self::Forwarded(_)
                | Self::Malformed(_)
                | Self::Chain(_)
                | Self::Verifier(Refusal::NoRuntimeId | Refusal::Denied(_))
        )
    }

    pub(crate) fn response(&self, retry_after: &HeaderValue) -> Response<Body> {
        let status = self.status();
        let mut response = Response::new(Body::from(self.text()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, plain);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, retry_after.clone());
        }
        response
    }

    /// What the sender may know: this error and, where it is ours and quotes nobody, its cause.
    fn text(&self) -> String {
        let cause: Option<&dyn StdError> = match self {
            Self::Forwarded(error) => Some(error),
            Self::Malformed(error) => Some(error),
            Self::Chain(error) => Some(error),
            Self::Verifier(refusal) => Some(refusal),
            Self::Body(error) => Some(error),
            _ => None,
        };
        cause.map_or_else(|| format!("{self}\n"), |cause| format!("{self}: {cause}\n"))
    }

    /// The whole chain of causes, for the log; not that of a body, which may quote its sender.
    pub(crate) fn reason(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source().filter(|_| !matches!(self, Self::Body(_)));
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests;
