//! Rate limit of equal log messages that many clients or objects can cause at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Permits one message per interval, and the first message at once.
#[derive(Debug)]
pub struct LogLimit {
    interval: Duration,
    /// When the next message may be logged, and the number of messages that were suppressed since the last one.
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogLimit {
    /// Creates a limit of one message per interval.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::default(),
        }
    }

    /// Returns the number of messages that were suppressed since the last one, or `None` if no message may be logged now.
    pub fn permit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, suppressed) = &mut *state;
        if next.is_some_and(|next| now < next) {
            *suppressed += 1;
            return None;
        }
        *next = Some(now + self.interval);
        Some(std::mem::take(suppressed))
    }
}
