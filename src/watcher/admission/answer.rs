//! The response to a review, in the format of the public watcher.
//!
//! The review is always allowed, independent of the message.

use axum::http::StatusCode;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY,
};
use axum::response::{IntoResponse, Response};
use policy::change::ReviewDecision;

/// Message if KCP accepted the event before the response, as in the public watcher.
pub(super) const SUCCEEDED: &str = "kcp request succeeded";

/// Message if the event is delivered after the response, and survives the end of the process.
pub(super) const QUEUED: &str = "event queued for KCP";

/// Message if the event is delivered after the response, unless the process ends before.
pub(super) const QUEUED_IN_MEMORY: &str = "event queued in memory only";

/// Prefix of the message if the event was not delivered or is not stored.
pub(super) const FAILED: &str = "kcp request failed";

/// Maximum length of the message in characters. Names that an API server stores are shorter.
const MESSAGE_LENGTH: usize = 1_024;

/// Maximum length of a warning in characters. The API server may truncate longer warnings.
const WARNING_LENGTH: usize = 120;

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) message: String,
    /// Warning that is shown to the client of the API server.
    pub(super) warning: Option<String>,
}

impl Answer {
    /// Returns the response to the review of `decision`.
    pub(super) fn into_response(self, decision: &ReviewDecision) -> Response {
        let message = shortened(&self.message, MESSAGE_LENGTH);
        let mut body = Vec::with_capacity(256 + message.len() + decision.uid.len());
        body.push(b'{');
        for (key, value) in [
            ("\"kind\":", decision.kind),
            ("\"apiVersion\":", decision.api_version),
        ] {
            if let Some(value) = value {
                push(&mut body, key, value);
                body.push(b',');
            }
        }
        push(&mut body, r#""response":{"uid":"#, &decision.uid);
        let before = r#","allowed":true,"status":{"metadata":{},"status":"Success","message":"#;
        push(&mut body, before, message);
        body.push(b'}');
        if let Some(warning) = &self.warning {
            let warning = shortened(warning, WARNING_LENGTH);
            push(&mut body, r#","warnings":["#, warning);
            body.push(b']');
        }
        body.extend_from_slice(b"}}");
        let json = HeaderValue::from_static("application/json");
        (security_headers(), [(CONTENT_TYPE, json)], body).into_response()
    }
}

/// Returns at most the first `characters` characters of a text.
fn shortened(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters);
    end.map_or(text, |(end, _)| &text[..end])
}

/// Appends raw JSON and a JSON string. Writing to a vector cannot fail.
fn push(body: &mut Vec<u8>, raw: &str, text: &str) {
    body.extend_from_slice(raw.as_bytes());
    let _infallible = serde_json::to_writer(body, text);
}

/// Returns the response to a request that is not a review.
pub(super) fn refusal(status: StatusCode, text: String) -> Response {
    (status, security_headers(), text + "\n").into_response()
}

/// Returns the headers that the public watcher sends with each response to a review, with identical values.
fn security_headers() -> [(HeaderName, HeaderValue); 2] {
    [
        (
            STRICT_TRANSPORT_SECURITY,
            HeaderValue::from_static("max-age=31536000; includeSubDomains"),
        ),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'self'"),
        ),
    ]
}
