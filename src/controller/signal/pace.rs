//! Rate limit of signals: each signal makes KIM reconcile the complete runtime.
//!
//! The caller passes the current time and random numbers.

use std::num::NonZeroU32;
use std::time::Duration;

use component_base::backoff::{Backoff, spread};
use tokio::time::Instant;

/// Backoff of a Runtime after failed writes.
pub(super) const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(5),
};

/// The rate limit; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest interval. A random amount of up to a fifth is subtracted, so that the average rate is the configured rate.
    longest: Duration,
    next: Instant,
}

impl Pace {
    pub(crate) fn new(per_second: NonZeroU32, now: Instant) -> Self {
        Self {
            longest: Duration::from_secs(10) / 9 / per_second.get(),
            next: now,
        }
    }

    /// Returns the earliest time of the next signal.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Counts a signal. Unused capacity is lost, so no burst follows a pause.
    pub(crate) fn goes(&mut self, now: Instant, random: u64) {
        self.next = self.next.max(now) + spread(self.longest, random);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_on_average_and_a_pause_is_followed_by_no_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(NonZeroU32::new(10).unwrap(), start);
        for step in 0..1000_u64 {
            let now = pace.next();
            pace.goes(now, (u64::MAX / 1000) * step);
        }
        let took = pace.next() - start;
        assert!(
            took > Duration::from_secs(99) && took < Duration::from_secs(101),
            "{took:?}"
        );
        let later = pace.next() + Duration::from_hours(1);
        pace.goes(later, 0);
        assert!(pace.next() > later + Duration::from_millis(88));
    }
}
