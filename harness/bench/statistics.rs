//! Estimates from repeated rounds: a median with a bootstrap confidence interval, quantiles, and curves of convergence.
//!
//! A bound is compared with the end of the interval, not with the median, so a result inside the noise of the machine does
//! not pass. No round is left out. Means are not used: one disturbed round moves them.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;

/// A median and the ends of its 95 % confidence interval, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    /// A counted value, which has no uncertainty.
    pub(crate) fn exact(value: f64) -> Self {
        Self {
            median: value,
            low: value,
            high: value,
        }
    }

    /// The median of the samples with a percentile bootstrap interval.
    ///
    /// # Errors
    /// Without samples.
    pub(crate) fn of(samples: &[f64]) -> anyhow::Result<Self> {
        Self::bootstrap(samples).context("no samples")
    }

    /// The estimate of one of two values that every round has, such as CPU time and rate.
    ///
    /// # Errors
    /// Without rounds.
    pub(crate) fn of_rounds(rounds: &[[f64; 2]], index: usize) -> anyhow::Result<Self> {
        let samples: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
        Self::of(&samples)
    }

    fn bootstrap(samples: &[f64]) -> Option<Self> {
        let mut sample = samples.to_vec();
        let middle = median(&mut sample)?;
        // The same samples always give the same interval.
        let mut random = fastrand::Rng::with_seed(1);
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            for value in &mut sample {
                *value = samples[random.usize(0..samples.len())];
            }
            medians.push(median(&mut sample)?);
        }
        Some(Self {
            median: middle,
            low: quantile(&mut medians, 0.025)?,
            high: quantile(&mut medians, 0.975)?,
        })
    }

    /// The estimate in another unit.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            median: self.median * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }
}

/// `1.86 [1.80–1.92]`, or `12` for a counted value; the precision is that of the format.
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

/// The middle of the samples, which are put in order; `None` without samples.
fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    let middle = samples.len() / 2;
    let upper = *samples.get(middle)?;
    let even = samples.len().is_multiple_of(2);
    Some(if even {
        f64::midpoint(samples[middle - 1], upper)
    } else {
        upper
    })
}

/// The sample of the nearest rank, such as the median for a share of 0.5; the samples are put in order.
pub(crate) fn quantile(samples: &mut [f64], share: f64) -> Option<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    let of = number(samples.len());
    let rank = (1..=samples.len()).find(|rank| number(*rank) >= share * of);
    samples.get(rank?.checked_sub(1)?).copied()
}

/// A quantile of durations, in milliseconds; `None` without durations.
pub(crate) fn milliseconds(durations: impl Iterator<Item = Duration>, share: f64) -> Option<f64> {
    let mut samples: Vec<f64> = durations.map(|it| it.as_secs_f64() * 1e3).collect();
    quantile(&mut samples, share)
}

/// When runtimes got a change: seconds in ascending order, infinite for a runtime that never gets it.
#[derive(Debug, Clone)]
pub(crate) struct Curve(Vec<f64>);

impl Curve {
    pub(crate) fn new(times: impl IntoIterator<Item = Option<Duration>>) -> Self {
        let seconds = |time: Option<Duration>| time.map_or(f64::INFINITY, |it| it.as_secs_f64());
        let mut times: Vec<f64> = times.into_iter().map(seconds).collect();
        times.sort_unstable_by(f64::total_cmp);
        Self(times)
    }

    /// The time after which this share of the runtimes has the change.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        quantile(&mut self.0.clone(), share).unwrap_or(f64::INFINITY)
    }

    /// p50, p99 and last.
    pub(crate) fn cells(&self) -> [String; 3] {
        [0.5, 0.99, 1.0].map(|share| match self.quantile(share) {
            time if time.is_finite() => format!("{time:.1}"),
            _ => "never".to_owned(),
        })
    }

    fn percent_after(&self, seconds: f64) -> usize {
        self.0.partition_point(|it| *it <= seconds) * 100 / self.0.len().max(1)
    }
}

/// A Mermaid chart of curves, which GitHub draws: percent of the runtimes by seconds.
pub(crate) fn chart(curves: &[(String, Curve)]) -> String {
    let times = curves.iter().flat_map(|(_, curve)| &curve.0);
    let slowest = times
        .copied()
        .filter(|it| it.is_finite())
        .fold(0.0, f64::max);
    let step = (slowest / number(POINTS)).ceil().max(1.0);
    let seconds: Vec<f64> = (0..=POINTS).map(|point| step * number(point)).collect();
    let joined = |values: Vec<String>| values.join(", ");
    let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
    let axis = joined(seconds.iter().map(ToString::to_string).collect());
    let mut chart = format!(
        "\n\n```mermaid\nxychart-beta\n    title \"{}\"\n    x-axis \"seconds\" [{axis}]\n    \
         y-axis \"% of the runtimes\" 0 --> 100\n",
        names.join(" · ")
    );
    for (_, curve) in curves {
        let percents = seconds
            .iter()
            .map(|it| curve.percent_after(*it).to_string());
        chart += &["    line [", &joined(percents.collect()), "]\n"].concat();
    }
    chart + "```"
}

/// A count as a number; exact up to 2³², which no count of these benches reaches.
pub(crate) fn number(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}

const RESAMPLES: usize = 4_000;
/// Points of a chart after the first.
const POINTS: u32 = 24;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The median of a resample of 1, 2, … 9 is at most k if at least five of nine draws are: binomial with k/9. That is
    /// 0.1 % for 1, 3.0 % for 2, 97.0 % for 7 and 99.9 % for 8, so the 2.5 % and 97.5 % points are 2 and 8.
    #[test]
    fn interval_of_nine_numbers_is_that_of_the_binomial_distribution() {
        let samples = [5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0];
        let expected = Estimate {
            median: 5.0,
            low: 2.0,
            high: 8.0,
        };
        assert_eq!(Estimate::of(&samples).unwrap(), expected);
    }

    /// 20 draws from the uniform distribution on 0..1, whose median is 0.5, a hundred times.
    #[test]
    fn interval_covers_the_true_median_about_95_times_of_100() {
        let mut random = fastrand::Rng::with_seed(7);
        let covered = (0..100).filter(|_| {
            let samples: Vec<f64> = (0..20).map(|_| random.f64()).collect();
            let Estimate { low, high, .. } = Estimate::of(&samples).unwrap();
            low <= 0.5 && 0.5 <= high
        });
        let covered = covered.count();
        assert!((88..=99).contains(&covered), "{covered} of 100");
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        let estimate = Estimate::of(&[1.0, 1.1, 0.9, 1.0, 50.0]).unwrap();
        assert_eq!(estimate.median.to_bits(), 1.0_f64.to_bits());
        assert!(Estimate::of(&[]).is_err());
    }

    #[rstest]
    #[case::median(0.5, 50.0)]
    #[case::p99(0.99, 99.0)]
    #[case::largest(1.0, 100.0)]
    #[case::smallest(0.0, 1.0)]
    fn quantile_is_the_sample_of_its_rank(#[case] share: f64, #[case] expected: f64) {
        let mut samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut samples, share), Some(expected));
    }

    #[test]
    fn runtime_that_never_gets_the_change_moves_the_quantiles() {
        let times = (1..=98)
            .map(|it| Some(Duration::from_secs(it)))
            .chain([None, None]);
        let curve = Curve::new(times);
        assert_eq!(curve.cells(), ["50.0", "never", "never"]);
        assert!(Curve::new([]).quantile(0.5).is_infinite());
    }

    #[test]
    fn chart_has_a_line_for_each_curve() {
        let times = [1, 12, 24].map(|it| Some(Duration::from_secs(it)));
        let (all, half) = (
            Curve::new(times),
            Curve::new(times.into_iter().chain([None; 3])),
        );
        let chart = chart(&[("a".to_owned(), all), ("b".to_owned(), half)]);
        assert!(
            chart.contains("title \"a · b\"") && chart.contains("[0, 1, 2, "),
            "{chart}"
        );
        assert!(
            chart.contains("line [0, 33, 33, ") && chart.contains(", 100]"),
            "{chart}"
        );
        assert!(
            chart.contains("line [0, 16, 16, ") && chart.contains(", 50]"),
            "{chart}"
        );
    }

    #[test]
    fn estimate_is_written_as_median_and_interval() {
        let estimate = Estimate {
            median: 2.0,
            low: 1.0,
            high: 4.0,
        };
        assert_eq!(format!("{:.1}", estimate.times(10.0)), "20.0 [10.0–40.0]");
        assert_eq!(format!("{:.0}", Estimate::exact(12.0)), "12");
    }
}
