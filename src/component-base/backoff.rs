//! Durations of retries and periods, with jitter.
//!
//! Invariant: pure functions; the random number is an argument, so that tests can set it. Not in here: sleeping,
//! counting of attempts, and the decision whether to retry.

use std::time::Duration;

/// Exponential backoff with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the delay after the first failure.
    pub base: Duration,
    /// Upper bound of every delay.
    pub cap: Duration,
}

impl Backoff {
    /// Backoff of a watch on an API server, with the bounds of client-go's reflector.
    pub const WATCH: Self = Self {
        base: Duration::from_millis(800),
        cap: Duration::from_secs(30),
    };

    /// Returns the delay after `attempt` earlier consecutive failures (0 for the first failure).
    ///
    /// One half is fixed and one half is random, so that replicas that failed together do not retry together, and no
    /// replica retries at once. `random` is uniform over `u64`.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let doublings = 2_u32.saturating_pow(attempt);
        let longest = self.base.saturating_mul(doublings).min(self.cap);
        let half = longest / 2;
        half + share(half, random)
    }
}

/// Returns a period that is shortened by up to a fifth at random, so that replicas that were started together do not stay
/// synchronous.
#[must_use]
pub fn spread(period: Duration, random: u64) -> Duration {
    let fifth = period / 5;
    period.saturating_sub(share(fifth, random))
}

/// Returns the fraction `random / 2⁶⁴` of a duration.
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
