//! What the log says of requests that cannot become an event: a kind of line at most once in [`PAUSE`], with nothing of a request
//! but 64 characters of its uid and the place of an error.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use component_base::telemetry::LogLimit;
use policy::change::{ReviewError, SkipReason};

/// The time between two lines of one kind.
const PAUSE: Duration = Duration::from_mins(1);

/// Characters of a uid that are logged.
const UID_LENGTH: usize = 64;

/// The log of bad requests. Clones share its pauses.
#[derive(Clone, Debug)]
pub struct RequestLog {
    malformed: Arc<LogLimit>,
    unseen: Arc<LogLimit>,
}

impl Default for RequestLog {
    fn default() -> Self {
        let limit = || Arc::new(LogLimit::new(PAUSE));
        Self {
            malformed: limit(),
            unseen: limit(),
        }
    }
}

impl RequestLog {
    /// A request was not a review, because of `reason`.
    pub(super) fn malformed(&self, reason: &str, bytes: usize) {
        if let Some(skipped) = self.malformed.permit() {
            tracing::warn!(reason, bytes, skipped, "request is not an AdmissionReview");
        }
    }

    /// A change may not be seen, because a review does not say what was changed.
    pub(super) fn unseen(&self, skip_reason: &SkipReason, uid: &str) {
        if let Some(skipped) = self.unseen.permit() {
            let uid: String = uid.chars().take(UID_LENGTH).collect();
            tracing::warn!(
                reason = skip_reason.code(),
                uid,
                skipped,
                "skipped invalid review, change may be missed"
            );
        }
    }
}

/// Why a body is not a review, with the place of the error. Neither error repeats what the sender wrote.
pub(super) fn reason(error: &ReviewError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
