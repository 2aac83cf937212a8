//! How fast signals are given: each costs the manager a whole reconciliation of its runtime.
//!
//! No clock and no chance of its own.

use std::num::NonZeroU32;
use std::time::Duration;

use component_base::backoff::{Backoff, spread};
use tokio::time::Instant;

/// After failures, per runtime.
pub(super) const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(5),
};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest distance; a fifth of it is chance, so that on average the rate is as set.
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

    /// When the next one may go.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// One goes now. What was not used is lost: a pause is followed by no burst.
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
