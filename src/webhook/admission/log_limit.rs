//! A limit on log lines that a client can cause with each of its requests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines of one kind. Each request is counted in the metrics all the same.
const INTERVAL: Duration = Duration::from_mins(1);

/// Lets one line pass in each interval: the first at once.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// Whether a line may be logged now; if so, the number of lines that were suppressed since the last one.
    pub(super) fn permit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next.is_some_and(|next| now < next) {
            state.suppressed += 1;
            return None;
        }
        state.next = Some(now + INTERVAL);
        Some(std::mem::take(&mut state.suppressed))
    }
}
