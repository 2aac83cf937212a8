//! What the log says of requests that cannot become an event: a kind of line at most once in [`PAUSE`], with nothing of a request
//! but 64 characters of its uid and the place of an error.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::change::{ReviewError, SkipReason};

/// The time between two lines of one kind.
const PAUSE: Duration = Duration::from_mins(1);

/// Characters of a uid that are logged.
const UID_LENGTH: usize = 64;

/// The log of bad requests. Clones share its pauses.
#[derive(Clone, Debug, Default)]
pub struct RequestLog {
    malformed: Arc<Mutex<Pause>>,
    unseen: Arc<Mutex<Pause>>,
}

#[derive(Debug, Default)]
struct Pause {
    last: Option<Instant>,
    /// Requests without a line since.
    skipped: u64,
}

impl RequestLog {
    /// A request was not a review, because of `reason`.
    pub(super) fn malformed(&self, reason: &str, bytes: usize) {
        if let Some(skipped) = admit(&self.malformed) {
            tracing::warn!(reason, bytes, skipped, "request is not an AdmissionReview");
        }
    }

    /// A change may not be seen, because a review does not say what was changed.
    pub(super) fn unseen(&self, skip_reason: &SkipReason, uid: &str) {
        if let Some(skipped) = admit(&self.unseen) {
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

/// How many requests had no line since the last; `None`: this one has none either.
fn admit(pause: &Mutex<Pause>) -> Option<u64> {
    let mut pause = pause.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if pause.last.is_some_and(|last| now < last + PAUSE) {
        pause.skipped += 1;
        return None;
    }
    pause.last = Some(now);
    Some(std::mem::take(&mut pause.skipped))
}

/// Why a body is not a review, with the place of the error. Neither error repeats what the sender wrote.
pub(super) fn reason(error: &ReviewError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
