//! The answer to a review, in the public watcher's shape.
//!
//! Whatever is said, the review is allowed.

use axum::http::StatusCode;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY,
};
use axum::response::{IntoResponse, Response};
use policy::change::Verdict;

/// The message where KCP took the event before the answer: the public watcher's.
pub(super) const SUCCEEDED: &str = "kcp request succeeded";

/// The message where the event is delivered after the answer, and survives the end of the process.
pub(super) const QUEUED: &str = "event queued for KCP";

/// The message where the event is delivered after the answer, unless the process ends before.
pub(super) const QUEUED_IN_MEMORY: &str = "event queued in memory only";

/// What the message begins with where the event was not delivered, or is not kept.
pub(super) const FAILED: &str = "kcp request failed";

/// The longest message, in characters: names that an API server stores are shorter.
const MESSAGE_LENGTH: usize = 1_024;

/// Longer warnings may be cut by the API server.
const WARNING_LENGTH: usize = 120;

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) message: String,
    /// Shown to the client that made the request.
    pub(super) warning: Option<String>,
}

impl Answer {
    /// The document, for the review that `verdict` is about.
    pub(super) fn into_response(self, verdict: &Verdict) -> Response {
        let message = shortened(&self.message, MESSAGE_LENGTH);
        let mut body = Vec::with_capacity(256 + message.len() + verdict.uid.len());
        body.push(b'{');
        for (key, value) in [
            ("\"kind\":", verdict.kind),
            ("\"apiVersion\":", verdict.api_version),
        ] {
            if let Some(value) = value {
                push(&mut body, key, value);
                body.push(b',');
            }
        }
        push(&mut body, r#""response":{"uid":"#, &verdict.uid);
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

/// The first characters of a text, at most so many.
fn shortened(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters);
    end.map_or(text, |(end, _)| &text[..end])
}

/// A text of JSON as it stands, and behind it another one as a JSON string; writing that cannot fail.
fn push(body: &mut Vec<u8>, raw: &str, text: &str) {
    body.extend_from_slice(raw.as_bytes());
    let _infallible = serde_json::to_writer(body, text);
}

/// An answer to what is no review.
pub(super) fn refusal(status: StatusCode, text: String) -> Response {
    (status, security_headers(), text + "\n").into_response()
}

/// What the public watcher sends with every answer to a review, word for word.
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
