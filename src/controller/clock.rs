//! Wall-clock time for times that are stored, and its conversion into the time of timers.
//!
//! Invariant: during one leadership term the clock advances with the timers, so setting the system clock neither ends
//! nor extends a wait.

use jiff::Timestamp;
use tokio::time::Instant;

/// A clock that starts at the wall-clock time. Copies are the same clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    start_time: Timestamp,
}

impl Clock {
    /// Creates a clock that starts at the current wall-clock time.
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            start_time: Timestamp::now(),
        }
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Timestamp {
        let passed = self.start.elapsed();
        self.start_time
            .checked_add(passed)
            .unwrap_or(Timestamp::MAX)
    }

    /// Returns the instant at which a timer has to expire for a time. Returns the current instant if the time is in the past.
    pub(super) fn instant(&self, time: Timestamp) -> Instant {
        let remaining = self.now().duration_until(time);
        // Read after `remaining`, so that the timer does not expire before the time is reached.
        Instant::now() + remaining.try_into().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_is_reached_when_the_timer_expires() {
        let clock = Clock::new();
        let later = clock.now().checked_add(Duration::from_mins(5)).unwrap();
        tokio::time::sleep_until(clock.instant(later)).await;
        assert!(clock.now() >= later);
        assert!(clock.instant(later) <= Instant::now());
    }
}
