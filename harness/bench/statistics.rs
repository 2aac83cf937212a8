//! Estimates from repeated rounds: a median with a bootstrap confidence interval, quantiles, and curves of convergence.
//!
//! A bound is compared with the end of the interval, not with the median, so that a result within the noise of the machine does
//! not pass. No round is excluded. Means are not used, because one disturbed round would change them.

use std::fmt;

use anyhow::Context as _;

/// A median and the ends of its 95 % confidence interval, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A counted value, which has no uncertainty.
impl From<f64> for Estimate {
    fn from(value: f64) -> Self {
        let (median, low, high) = (value, value, value);
        Self { median, low, high }
    }
}

impl Estimate {
    /// Returns the median of the samples with a percentile bootstrap interval.
    pub(crate) fn of(samples: &[f64]) -> anyhow::Result<Self> {
        let mut sample = samples.to_vec();
        let middle = median(&mut sample).context("no samples")?;
        // With a fixed seed the same samples always have the same interval.
        let mut random = fastrand::Rng::with_seed(1);
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            for value in &mut sample {
                *value = samples[random.usize(0..samples.len())];
            }
            medians.push(median(&mut sample).unwrap_or(middle));
        }
        let [low, high] = [0.025, 0.975].map(|share| quantile(&medians, share));
        let median = middle;
        Ok(Self { median, low, high })
    }

    /// Returns the median of a few rounds, with the smallest and the largest value as the interval.
    pub(crate) fn range(rounds: impl IntoIterator<Item = f64>) -> anyhow::Result<Self> {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        let median = median(&mut rounds).context("no rounds")?;
        let (low, high) = (rounds[0], rounds[rounds.len() - 1]);
        Ok(Self { median, low, high })
    }

    /// Returns the estimate of one of two values that every round has, such as CPU time and rate.
    pub(crate) fn of_rounds(rounds: &[[f64; 2]], index: usize) -> anyhow::Result<Self> {
        let samples: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
        Self::of(&samples)
    }
}

/// The format is `1.86 [1.80–1.92]`, or `12` for a counted value; the precision is that of the format specification.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { median, low, high } = self;
        write!(f, "{median:.digits$}")?;
        if low < high {
            write!(f, " [{low:.digits$}–{high:.digits$}]")?;
        }
        Ok(())
    }
}

/// Sorts the samples and returns their median; `None` without samples.
fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    let [lower, upper] = [samples.len().checked_sub(1)?, samples.len()].map(|it| samples[it / 2]);
    Some(f64::midpoint(lower, upper))
}

/// Returns the sample with the nearest rank, such as the median for a share of 0.5; infinity without samples.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_unstable_by(f64::total_cmp);
    let of = number(samples.len());
    let mut ranked = samples.into_iter().zip(1_u32..);
    let found = ranked.find(|(_, rank)| f64::from(*rank) >= share * of);
    found.map_or(f64::INFINITY, |(sample, _)| sample)
}

/// Returns a Mermaid chart, which GitHub renders, of the seconds after which runtimes had a change: percentage of the runtimes
/// by seconds.
pub(crate) fn chart(curves: &[(&str, Vec<f64>)]) -> String {
    let slowest = curves.iter().flat_map(|(_, curve)| curve);
    let slowest = slowest.copied().fold(0.0, f64::max);
    let step = (slowest / f64::from(POINTS)).ceil().max(1.0);
    let points = |value: &dyn Fn(f64) -> String| {
        let values = (0..=POINTS).map(|point| value(step * f64::from(point)));
        values.collect::<Vec<_>>().join(", ")
    };
    let names: Vec<&str> = curves.iter().map(|(name, _)| *name).collect();
    let mut chart = format!(
        "\n\n```mermaid\nxychart-beta\n    title \"{}\"\n    x-axis \"seconds\" [{}]\n    \
         y-axis \"% of the runtimes\" 0 --> 100\n",
        names.join(" · "),
        points(&|seconds| seconds.to_string()),
    );
    for (_, curve) in curves {
        let percents = points(&|seconds| {
            let changed = curve.iter().filter(|it| **it <= seconds).count();
            (changed * 100 / curve.len().max(1)).to_string()
        });
        chart += &["    line [", &percents, "]\n"].concat();
    }
    chart + "```"
}

/// Returns a count as a floating-point number; exact up to 2³², which no count of these benches exceeds.
pub(crate) fn number(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}

const RESAMPLES: usize = 4_000;
/// Number of points of a chart after the first.
const POINTS: u32 = 24;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The median of a resample of 1, 2, … 9 is at most k if at least five of nine values are at most k, which is binomial with
    /// k/9. The probability is 0.1 % for 1, 3.0 % for 2, 97.0 % for 7 and 99.9 % for 8, so the 2.5 % and 97.5 % points are 2
    /// and 8.
    #[test]
    fn interval_of_nine_numbers_is_that_of_the_binomial_distribution() {
        let samples = [5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0];
        let (median, low, high) = (5.0, 2.0, 8.0);
        let expected = Estimate { median, low, high };
        assert_eq!(Estimate::of(&samples).unwrap(), expected);
    }

    #[rstest]
    #[case::median(0.5, 50.0)]
    #[case::p99(0.99, 99.0)]
    #[case::largest(1.0, 100.0)]
    #[case::smallest(0.0, 1.0)]
    fn quantile_is_the_sample_of_its_rank(#[case] share: f64, #[case] expected: f64) {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&samples, share).to_bits(), expected.to_bits());
    }

    #[test]
    fn chart_has_a_line_for_each_curve() {
        let fast = vec![24.0, 1.0, 12.0];
        let both = vec![24.0, 1.0, 12.0, 36.0, 48.0, 36.0];
        let chart = chart(&[("a", fast), ("b", both)]);
        let lines = ["line [0, 33, 33, ", "line [0, 16, 16, ", ", 100]\n"];
        for expected in ["title \"a · b\"", "[0, 2, 4, "].iter().chain(&lines) {
            assert!(chart.contains(expected), "{expected} is not in\n{chart}");
        }
    }

    #[test]
    fn estimate_is_written_as_median_and_interval() {
        let rounds = Estimate::range([20.0, 10.0, 40.0]).unwrap();
        assert_eq!(format!("{rounds:.1}"), "20.0 [10.0–40.0]");
        assert_eq!(format!("{:.0}", Estimate::from(12.0)), "12");
        assert!(Estimate::range([]).is_err() && Estimate::of(&[]).is_err());
    }
}
