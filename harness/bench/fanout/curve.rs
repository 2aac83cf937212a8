//! How a change spreads over runtimes: the share of them that has it, by time.
//!
//! A quantile is over all runtimes that should get the change, so one that never gets it moves the quantiles towards
//! "never".

use std::time::Duration;

/// When runtimes had a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Curve {
    /// In ascending order.
    times: Vec<Duration>,
    /// How many runtimes should have it.
    of: usize,
}

impl Curve {
    pub(super) fn new(mut times: Vec<Duration>, of: usize) -> Self {
        times.sort_unstable();
        Self { times, of }
    }

    /// The time after which that many per mille of all runtimes have the change; `None` if they never have.
    pub(super) fn quantile(&self, per_mille: usize) -> Option<Duration> {
        let rank = (self.of * per_mille).div_ceil(1000).max(1);
        self.times.get(rank - 1).copied()
    }

    /// The time after which all runtimes have it.
    pub(super) fn last(&self) -> Option<Duration> {
        self.quantile(1000)
    }

    /// p50, p99 and last, in seconds.
    pub(super) fn cells(&self) -> [String; 3] {
        [500, 990, 1000].map(|per_mille| {
            let time = self.quantile(per_mille);
            time.map_or_else(
                || "never".to_owned(),
                |time| format!("{:.1}", time.as_secs_f64()),
            )
        })
    }

    fn percent_after(&self, time: Duration) -> usize {
        self.times.partition_point(|it| *it <= time) * 100 / self.of.max(1)
    }
}

/// A Mermaid chart of curves, which GitHub draws: percent of the runtimes by seconds.
pub(super) fn chart(curves: &[(String, Curve)]) -> String {
    let slowest = curves
        .iter()
        .filter_map(|(_, curve)| curve.times.last())
        .max();
    let Some(slowest) = slowest else {
        return String::new();
    };
    let step = Duration::from_secs(slowest.as_secs().div_ceil(POINTS).max(1));
    let times: Vec<Duration> = (0..=POINTS)
        .filter_map(|point| step.checked_mul(u32::try_from(point).ok()?))
        .collect();
    let joined = |values: Vec<String>| values.join(", ");
    let axis = joined(
        times
            .iter()
            .map(|time| time.as_secs().to_string())
            .collect(),
    );
    let mut chart = format!(
        "\n\n```mermaid\nxychart-beta\n    title \"{}\"\n    x-axis \"seconds\" [{axis}]\n    y-axis \"% of the runtimes\" 0 --> 100\n",
        curves
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(" · ")
    );
    for (_, curve) in curves {
        let percents = times
            .iter()
            .map(|time| curve.percent_after(*time).to_string())
            .collect();
        chart += &["    line [", &joined(percents), "]\n"].concat();
    }
    chart + "```"
}

const POINTS: u64 = 24;

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
    fn quantile_is_the_time_of_its_rank(#[case] per_mille: usize, #[case] expected: Option<u64>) {
        let curve = Curve::new(seconds((1..=100).rev()), 100);
        assert_eq!(curve.quantile(per_mille), expected.map(Duration::from_secs));
    }

    #[test]
    fn runtime_that_never_gets_the_change_counts() {
        let curve = Curve::new(seconds(1..=98), 100);
        assert_eq!(curve.quantile(980), Some(Duration::from_secs(98)));
        assert_eq!((curve.quantile(990), curve.last()), (None, None));
        assert_eq!(curve.cells(), ["50.0", "never", "never"]);
    }

    #[test]
    fn chart_has_a_line_for_each_curve() {
        let curve = |of| Curve::new(seconds([1, 12, 24]), of);
        let chart = chart(&[("a".to_owned(), curve(3)), ("b".to_owned(), curve(6))]);
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
}
