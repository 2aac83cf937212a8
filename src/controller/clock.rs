//! Wall-clock time for what is remembered across restarts, and its relation to the time that timers go by.
//!
//! Invariant: within one term of office it moves with the timers, so a wall clock that is set does not end a wait, nor
//! does it prolong one.

use jiff::Timestamp;
use tokio::time::Instant;

/// See the module. Copies are the same clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    at: Timestamp,
}

impl Clock {
    /// One that begins with the wall clock's time.
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            at: Timestamp::now(),
        }
    }

    /// The time now.
    pub(super) fn now(&self) -> Timestamp {
        let passed = self.began.elapsed();
        self.at.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// When a timer has to go off for a time; now, if that is past.
    pub(super) fn instant(&self, time: Timestamp) -> Instant {
        let left = self.now().duration_until(time);
        // A timer that goes off a moment early would find that it is not time yet.
        Instant::now() + left.try_into().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_comes_when_the_timer_goes_off() {
        let clock = Clock::new();
        let later = clock.now().checked_add(Duration::from_mins(5)).unwrap();
        tokio::time::sleep_until(clock.instant(later)).await;
        assert!(clock.now() >= later);
        assert!(clock.instant(later) <= Instant::now());
    }
}
