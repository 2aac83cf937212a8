//! How a change spread over runtimes: which share of them had it after which time.
//!
//! Invariant: a quantile is over *all* runtimes that should have got it, so one that never did moves the quantiles
//! towards "never" and cannot be left out by accident.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When runtimes converged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Curve {
    /// In ascending order.
    times: Vec<Duration>,
    /// How many should have.
    of: usize,
}

impl Curve {
    /// Of the times of those that converged, out of so many.
    pub(super) fn new(mut times: Vec<Duration>, of: usize) -> Self {
        times.sort_unstable();
        Self { times, of }
    }

    /// After which time that many per mille of all had it; `None` if they never had.
    pub(super) fn quantile(&self, per_mille: usize) -> Option<Duration> {
        let rank = (self.of * per_mille).div_ceil(1000).max(1);
        self.times.get(rank - 1).copied()
    }

    /// After which time all had it.
    pub(super) fn last(&self) -> Option<Duration> {
        self.quantile(1000)
    }

    /// Points of the curve, time and per mille, few enough to be drawn.
    pub(super) fn points(&self) -> Vec<(Duration, usize)> {
        let step = self.times.len().div_ceil(DRAWN).max(1);
        let last = self.times.len().saturating_sub(1);
        let drawn = |index: &usize| index.is_multiple_of(step) || *index == last;
        (0..self.times.len())
            .filter(drawn)
            .map(|index| (self.times[index], (index + 1) * 1000 / self.of.max(1)))
            .collect()
    }
}

/// More points than that are on top of each other.
const DRAWN: usize = 150;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn seconds(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        times.into_iter().map(Duration::from_secs).collect()
    }

    #[rstest]
    #[case::median(500, Some(50))]
    #[case::p99(990, Some(99))]
    #[case::last(1000, Some(100))]
    #[case::first(0, Some(1))]
    fn a_quantile_is_the_time_of_its_rank(#[case] per_mille: usize, #[case] expected: Option<u64>) {
        let curve = Curve::new(seconds((1..=100).rev()), 100);
        assert_eq!(curve.quantile(per_mille), expected.map(Duration::from_secs));
    }

    #[test]
    fn who_never_converged_counts() {
        let curve = Curve::new(seconds(1..=98), 100);
        assert_eq!(curve.quantile(980), Some(Duration::from_secs(98)));
        assert_eq!((curve.quantile(990), curve.last()), (None, None));
        assert_eq!(curve.points().last(), Some(&(Duration::from_secs(98), 980)));
    }

    #[test]
    fn a_drawn_curve_has_few_points_and_its_end() {
        let curve = Curve::new(seconds(1..=5000), 5000);
        let points = curve.points();
        assert!(points.len() <= DRAWN + 1, "{}", points.len());
        assert_eq!(points.last(), Some(&(Duration::from_secs(5000), 1000)));
    }
}
