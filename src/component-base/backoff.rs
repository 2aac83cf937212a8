//! How long to wait: jittered exponential back-off and spread periods.
//!
//! Invariant: pure functions of their arguments; chance is an argument, so that tests choose it.
//! Deliberately absent: sleeping, counting attempts, deciding what deserves a retry.

use std::time::Duration;

/// A doubling delay between a first and a longest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest delay after the first failure.
    pub base: Duration,
    /// The longest delay ever.
    pub cap: Duration,
}

impl Backoff {
    /// What a watch on an API server waits: client-go's reflector uses the same bounds.
    pub const WATCH: Self = Self {
        base: Duration::from_millis(800),
        cap: Duration::from_secs(30),
    };

    /// The delay after `attempt` earlier failures in a row (0 for the first).
    ///
    /// Half of it is fixed and half is chance, so that replicas which failed together do not
    /// come back together, and none comes back at once. `random` is uniform over `u64`.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let doublings = 2_u32.saturating_pow(attempt);
        let longest = self.base.saturating_mul(doublings).min(self.cap);
        let half = longest / 2;
        half + share(half, random)
    }
}

/// A period shortened by up to a fifth, so that replicas started together drift apart.
#[must_use]
pub fn spread(period: Duration, random: u64) -> Duration {
    let fifth = period / 5;
    period.saturating_sub(share(fifth, random))
}

/// `random / 2⁶⁴` of a duration.
fn share(whole: Duration, random: u64) -> Duration {
    let nanos = (whole.as_nanos() * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(30),
    };

    #[rstest]
    #[case::first(0, 500, 1_000)]
    #[case::second(1, 1_000, 2_000)]
    #[case::fifth(4, 8_000, 16_000)]
    #[case::capped(5, 15_000, 30_000)]
    #[case::far_beyond_any_shift(u32::MAX, 15_000, 30_000)]
    fn delay_lies_between_half_and_whole(
        #[case] attempt: u32,
        #[case] least: u64,
        #[case] most: u64,
    ) {
        let least = Duration::from_millis(least);
        let most = Duration::from_millis(most);
        assert_eq!(BACKOFF.delay(attempt, 0), least);
        let longest = BACKOFF.delay(attempt, u64::MAX);
        assert!(longest < most && longest + Duration::from_millis(1) > most);
        let middle = BACKOFF.delay(attempt, u64::MAX / 2);
        assert!(least < middle && middle < longest);
    }

    #[test]
    fn spread_only_shortens() {
        let period = Duration::from_secs(5);
        assert_eq!(spread(period, 0), period);
        let shortest = spread(period, u64::MAX);
        assert!(shortest >= Duration::from_secs(4));
        assert!(shortest < Duration::from_secs(4) + Duration::from_millis(1));
    }

    #[test]
    fn a_delay_of_nothing_stays_nothing() {
        let none = Backoff {
            base: Duration::ZERO,
            cap: Duration::ZERO,
        };
        assert_eq!(none.delay(7, u64::MAX), Duration::ZERO);
    }
}
