//! Log messages about requests that cannot become an event. Each kind of message is logged at most once in [`PAUSE`], and
//! contains only 64 characters of the UID of a request and the position of an error.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use component_base::telemetry::LogLimit;
use policy::change::{ReviewError, SkipReason};

/// Minimum time between two messages of one kind.
const PAUSE: Duration = Duration::from_mins(1);

/// Maximum number of logged characters of a UID.
const UID_LENGTH: usize = 64;

/// Log of bad requests. Clones share the rate limits.
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
    /// Logs that a request is not a review, and the reason.
    pub(super) fn malformed(&self, reason: &str, bytes: usize) {
        if let Some(skipped) = self.malformed.permit() {
            tracing::warn!(reason, bytes, skipped, "request is not an AdmissionReview");
        }
    }

    /// Logs that a change may be missed, because a review does not specify what was changed.
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

/// Returns the reason why a body is not a review, with the position of the error. Neither error repeats content of the request.
pub(super) fn reason(error: &ReviewError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
