//! What both decisions say of a body that is no review, in one place: the API server sees the same answer from each.

use serde_json::error::Category;

/// The version of reviews that is read.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";

/// The kind of a review.
pub(crate) const KIND: &str = "AdmissionReview";

/// The largest uid that is answered, in bytes, because the answer repeats it. The API server's have 36.
const MAX_UID_BYTES: usize = 128;

/// Why a body is no AdmissionReview v1. The edges answer HTTP 400 (the public watcher answers 200 with nothing).
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The bytes are no UTF-8.
    #[error("body: not UTF-8")]
    Encoding(#[source] std::str::Utf8Error),
    /// Not JSON, cut off, or a field of the review that is missing, of another type or there twice.
    #[error("body: not an AdmissionReview")]
    Shape(#[source] JsonError),
    /// Not an AdmissionReview, and too large for a parse that tells the place of the error.
    #[error("body: not an AdmissionReview")]
    NoReview,
    /// Another kind or version.
    #[error("body: expected {KIND} of {API_VERSION}, got {kind:?} of {api_version:?}")]
    Kind {
        /// The kind that came, at most 64 characters of it.
        kind: String,
        /// The version that came, at most 64 characters of it.
        api_version: String,
    },
    /// There is no request.
    #[error("request: missing")]
    NoRequest,
    /// There is no uid to answer to.
    #[error("request.uid: missing")]
    NoUid,
    /// The uid is longer than 128 bytes; the answer would repeat it.
    #[error("request.uid: exceeds {MAX_UID_BYTES} bytes")]
    UidTooLong,
}

/// How and where a text is not the expected JSON. It repeats nothing of the text, which serde_json's error does at any
/// length: the text may hold secrets, and may be as large as a request.
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
    /// Checks the length of a review's uid.
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

/// Text of a request goes into an answer only in part.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
