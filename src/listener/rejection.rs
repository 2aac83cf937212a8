//! Reasons for rejections, the responses to senders, and the log messages.
//!
//! Invariant: neither a response nor a log message quotes the request, except the common name that it claims. The status is
//! 4xx if a retry cannot succeed. Otherwise it is 503, or 429 if the runtime of the sender is the cause, with
//! `Retry-After`.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use http::header::{RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use watcher_types::EventError;

use crate::authentication::VerifyError;
use crate::certificate::{CertificateError, ClientCertificate};
use crate::xfcc::ForwardedError;

/// Maximum number of log messages per minute. Further messages are counted.
const LINES: u32 = 30;

/// Maximum number of claimed names whose last rejection is stored. Each is logged again after an hour, or when the limit is
/// reached.
const NAMES: usize = 1024;

/// Maximum number of logged bytes of a claimed common name.
const NAME_BYTES: usize = 128;

/// Reason why a request is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("header too large")]
    HeaderTooLarge,
    #[error("request does not come from the gateway")]
    NotTheGateway,
    #[error("header has no usable client certificate")]
    Forwarded(#[source] ForwardedError),
    #[error("client certificate rejected")]
    Certificate(#[from] CertificateError),
    #[error("sender not accepted")]
    Verifier(#[source] VerifyError),
    #[error("body rejected")]
    Body(#[source] EventError),
    #[error("body not received")]
    BodyIncomplete,
    #[error("body not received in time")]
    BodyTimeout,
    #[error("limit of the runtime reached")]
    RuntimeLimit,
    #[error("queue full")]
    QueueFull,
    #[error("queue closed by the operator")]
    QueueClosed,
}

impl From<ForwardedError> for Rejection {
    fn from(error: ForwardedError) -> Self {
        match error {
            ForwardedError::NotTheGateway => Self::NotTheGateway,
            other => Self::Forwarded(other),
        }
    }
}

impl Rejection {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Forwarded(_) | Self::Certificate(_) => StatusCode::UNAUTHORIZED,
            Self::NotTheGateway | Self::Verifier(VerifyError::Denied(_)) => StatusCode::FORBIDDEN,
            Self::Body(EventError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Verifier(VerifyError::NoRuntimeId) | Self::Body(_) | Self::BodyIncomplete => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::RuntimeLimit => StatusCode::TOO_MANY_REQUESTS,
            Self::Verifier(VerifyError::Unavailable(_)) | Self::QueueFull | Self::QueueClosed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    pub(crate) fn response(&self, retry_after: &HeaderValue) -> Response {
        let status = self.status();
        let no_sniff = [(X_CONTENT_TYPE_OPTIONS, "nosniff")];
        let retried = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let retry_after = retried.then(|| [(RETRY_AFTER, retry_after.clone())]);
        // The text is sent as text/plain in UTF-8.
        (status, no_sniff, retry_after, self.text() + "\n").into_response()
    }

    /// Returns this error and its cause, for the sender. The text is equal for all rejections of the same kind.
    pub(crate) fn text(&self) -> String {
        match self.source() {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    /// Returns the whole chain of causes, for the log, except errors of the parser, which may quote the body.
    pub(crate) fn reason(&self) -> String {
        let mut text = self.text();
        let cause = self.source().and_then(StdError::source);
        let mut cause = cause.filter(|_| !matches!(self, Self::Body(_)));
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// Log of rejections: one message for each claimed name and change of the reason, and at most [`LINES`] per minute.
/// Rejections with 503, which may concern the whole fleet, are warnings, and have a separate limit.
#[derive(Default)]
pub(crate) struct RejectionLog([Mutex<Logged>; 2]);

#[derive(Default)]
struct Logged {
    /// The last reason, by claimed name.
    reasons: HashMap<String, String>,
    reasons_since: Option<Instant>,
    minute: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl Logged {
    /// Returns the number of messages that were suppressed before this message, or `None` if this message is suppressed.
    fn admit(&mut self, name: &str, reason: String, now: Instant) -> Option<u64> {
        let over = |since: Option<Instant>, period| since.is_none_or(|it| now - it >= period);
        if self.reasons.len() >= NAMES || over(self.reasons_since, Duration::from_hours(1)) {
            self.reasons.clear();
            self.reasons_since = Some(now);
        }
        if self.reasons.get(name) == Some(&reason) {
            return None;
        }
        if over(self.minute, Duration::from_mins(1)) {
            self.minute = Some(now);
            self.lines = 0;
        }
        if self.lines >= LINES {
            self.suppressed += 1;
            return None;
        }
        self.reasons.insert(name.to_owned(), reason);
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl RejectionLog {
    /// Logs a rejection of a request that claims to come from this client.
    pub(crate) fn write(
        &self,
        rejection: &Rejection,
        claimed: Option<&ClientCertificate>,
        head: &Parts,
    ) {
        let name = claimed.and_then(ClientCertificate::common_name);
        let name = name.unwrap_or_default();
        let name = &name[..name.floor_char_boundary(NAME_BYTES)];
        let unavailable = rejection.status().is_server_error();
        let logged = &self.0[usize::from(unavailable)];
        let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(suppressed) = logged.admit(name, rejection.text(), Instant::now()) else {
            return;
        };
        drop(logged);
        let peer = head.extensions.get::<ConnectInfo<SocketAddr>>();
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    status = %rejection.status(),
                    reason = rejection.reason(),
                    unverified_common_name = ?name,
                    leaf_sha256 = claimed.map(|it| format!("{:x}", Sha256::digest(it.der()))),
                    peer = peer.map(|ConnectInfo(address)| tracing::field::display(address)),
                    suppressed,
                    "request rejected"
                )
            };
        }
        if unavailable {
            line!(warn);
        } else {
            line!(info);
        }
    }
}

#[cfg(test)]
mod tests;
