//! A limit of equal log lines, for what many clients or objects can cause at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lets one line pass in each interval: the first at once.
#[derive(Debug)]
pub struct LogLimit {
    interval: Duration,
    /// When the next line may pass, and the number of lines that were suppressed since the last one.
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogLimit {
    /// A limit of one line in an interval.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::default(),
        }
    }

    /// Whether a line may be logged now; if so, the number of lines that were suppressed since the last one.
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
