//! Errors of bodies that are not a review, shared by both kinds of decisions, so that the API server gets the same
//! response from each.

use serde_json::error::Category;

/// The supported version of reviews.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";

/// The kind of a review.
pub(crate) const KIND: &str = "AdmissionReview";

/// Maximum size of a UID, in bytes, because the response repeats it. UIDs of the API server have 36 bytes.
const MAX_UID_BYTES: usize = 128;

/// Reason why a body is not an AdmissionReview v1. The servers respond with HTTP 400 (the public watcher responds
/// with 200 and an empty body).
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The bytes are not UTF-8.
    #[error("body: not UTF-8")]
    Encoding(#[source] std::str::Utf8Error),
    /// The body is not JSON, is truncated, or a field of the review is missing, duplicate or of another type.
    #[error("body: not an AdmissionReview")]
    Shape(#[source] JsonError),
    /// The body is not an AdmissionReview, and too large for a parse that determines the position of the error.
    #[error("body: not an AdmissionReview")]
    NoReview,
    /// The body has another kind or version.
    #[error("body: expected {KIND} of {API_VERSION}, got {kind:?} of {api_version:?}")]
    Kind {
        /// The kind in the body, at most 64 characters of it.
        kind: String,
        /// The version in the body, at most 64 characters of it.
        api_version: String,
    },
    /// The request is missing.
    #[error("request: missing")]
    NoRequest,
    /// The UID is missing, so no response is possible.
    #[error("request.uid: missing")]
    NoUid,
    /// The UID is longer than 128 bytes; the response would repeat it.
    #[error("request.uid: exceeds {MAX_UID_BYTES} bytes")]
    UidTooLong,
}

/// Kind and position of an error in JSON. It contains no text of the input, unlike the errors of serde_json: the text
/// may contain secrets, and may be as large as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at line {line}, column {column}")]
pub struct JsonError {
    problem: &'static str,
    line: usize,
    column: usize,
}

impl From<&serde_json::Error> for JsonError {
    fn from(error: &serde_json::Error) -> Self {
        Self {
            problem: match error.classify() {
                Category::Io => "unreadable input",
                Category::Syntax => "invalid JSON",
                Category::Data => "missing, duplicate or mistyped field",
                Category::Eof => "unexpected end",
            },
            line: error.line(),
            column: error.column(),
        }
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self::from(&error)
    }
}

impl ReviewError {
    /// Checks the length of the UID of a review.
    pub(crate) fn check_uid(uid: &str) -> Result<(), Self> {
        match uid.len() {
            0 => Err(Self::NoUid),
            1..=MAX_UID_BYTES => Ok(()),
            _ => Err(Self::UidTooLong),
        }
    }

    pub(crate) fn of_kind(kind: &str, api_version: &str) -> Self {
        Self::Kind {
            kind: shortened(kind),
            api_version: shortened(api_version),
        }
    }
}

/// Returns the first characters of a text. A response repeats only a part of the text of a request.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
