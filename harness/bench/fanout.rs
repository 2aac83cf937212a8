//! `harness bench fanout`: the time until a change on the control plane has reached thousands of runtimes.
//!
//! The controller is the product's binary on one core. The simulated runtimes ([`crate::fleet`]) are part of this process on
//! the other core, with a simulated round trip. The control plane is a real API server, which uses the rest of both cores. A
//! runtime has a change when it stores the content that was sent.

mod scenarios;
mod testbed;
mod watchers;

use clap::ValueEnum;

use self::testbed::Settings;
use crate::environment::Bench;
use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, chart, quantile};

/// Scenarios that run in sequence; each part starts with an empty control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Cold start and changes.
    Changes,
    /// Cold start and changes with the settings of a landscape, as far as one machine supports them.
    Production,
    /// Runtimes that do not respond, and kubeconfigs that are no longer valid.
    Faults,
    /// Twice as many runtimes.
    Large,
    /// SIGKILL during changes.
    Kills,
    /// Watchers, their routes and a rotation of their CA, with all controllers.
    Watchers,
}

pub(crate) async fn measure(bench: &Bench, part: Part) -> anyhow::Result<Table> {
    let settings = Settings {
        runtimes: match (bench.effort.quick, part) {
            (true, Part::Large) => 400,
            (true, _) => 200,
            (false, Part::Large) => 10_000,
            // Many more than the concurrent connections, because otherwise every kill would happen at the same point of a
            // change.
            (false, Part::Kills) => 1_000,
            (false, _) => 5_000,
        },
        production: part == Part::Production,
        watchers: part == Part::Watchers,
    };
    Box::pin(scenarios::measure(bench, settings, part)).await
}

struct Sample {
    scenario: String,
    /// Seconds until each runtime had the change; `None` for a scenario that does not change the runtimes.
    curve: Option<Vec<f64>>,
    /// Values of the columns after the times.
    values: [f64; VALUES.len()],
    bounds: Vec<Bound>,
}

/// Returns a row for each scenario: medians of its rounds, and bounds that every round must meet.
fn table(samples: &[Sample], runtimes: usize) -> anyhow::Result<Table> {
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
