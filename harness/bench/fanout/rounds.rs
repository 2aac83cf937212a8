//! The rounds of every scenario as one row each.

use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, chart, quantile};

pub(super) struct Sample {
    pub(super) scenario: String,
    /// Seconds until each runtime had the change. Without it, nothing was to change on the runtimes.
    pub(super) curve: Option<Vec<f64>>,
    /// What the columns after the times have.
    pub(super) values: [f64; VALUES.len()],
    pub(super) bounds: Vec<Bound>,
}

/// A row for each scenario: medians of its rounds, and bounds that every round meets.
pub(super) fn table(samples: &[Sample], runtimes: usize) -> anyhow::Result<Table> {
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for (index, first) in samples.iter().enumerate() {
        let name = first.scenario.as_str();
        if samples[..index].iter().any(|it| it.scenario == name) {
            continue;
        }
        let rounds: Vec<&Sample> = samples.iter().filter(|it| it.scenario == name).collect();
        let of_curves: Vec<&Vec<f64>> = rounds.iter().filter_map(|it| it.curve.as_ref()).collect();
        let mut cells = vec![name.to_owned(), runtimes.to_string()];
        for share in [0.5, 0.99, 1.0] {
            let times = Estimate::range(of_curves.iter().map(|it| quantile(it, share)));
            cells.push(times.map_or("–".to_owned(), |it| format!("{it:.1}")));
        }
        for (index, (_, digits)) in VALUES.iter().enumerate() {
            let values = Estimate::range(rounds.iter().map(|it| it.values[index]))?;
            cells.push(format!("{values:.digits$}"));
        }
        let row = first.bounds.iter().enumerate().map(|(index, bound)| {
            let others = rounds.iter().filter_map(|it| it.bounds.get(index));
            others.fold(bound.clone(), Bound::and)
        });
        rows.push(row.fold(Row::new(cells), Row::bound));
        if !of_curves.is_empty() {
            curves.push((name, of_curves.into_iter().flatten().copied().collect()));
        }
    }
    let columns = ["scenario", "runtimes", "p50 s", "p99 s", "last s"].into_iter();
    let columns = columns.chain(VALUES.map(|(name, _)| name));
    let mut table = Table::new(columns, rows);
    table.appendix = chart(&curves);
    Ok(table)
}

const VALUES: [(&str, usize); 8] = [
    ("writes each", 2),
    ("reads each", 2),
    ("handshakes each", 2),
    ("most in flight", 0),
    ("CPU s", 1),
    ("CPU ÷ simulator", 2),
    ("RSS MiB end", 1),
    ("RSS MiB peak", 1),
];
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_median_and_range_of_its_rounds_and_bounds_that_every_round_meets() {
        let sample = |scenario: &str, seconds: Option<f64>, met| Sample {
            scenario: scenario.to_owned(),
            curve: seconds.map(|it| vec![it]),
            values: [seconds.unwrap_or_default(); VALUES.len()],
            bounds: vec![Bound::required("a bound", met)],
        };
        let mut samples = vec![
            sample("a", Some(2.0), true),
            sample("b", None, true),
            sample("a", Some(1.0), true),
            sample("a", Some(4.0), true),
        ];
        let all_met = table(&samples, 7).unwrap();
        assert_eq!(all_met.rows.len(), 2);
        assert_eq!(all_met.rows[0].cells[..3], ["a", "7", "2.0 [1.0–4.0]"]);
        assert_eq!(all_met.rows[1].cells[..3], ["b", "7", "–"]);
        assert!(all_met.meets_its_bounds());
        samples[2].bounds = vec![Bound::required("a bound", false)];
        assert!(!table(&samples, 7).unwrap().meets_its_bounds());
    }
}
