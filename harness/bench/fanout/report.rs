//! The figures of a fan-out: a line for each scenario, and the plot.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::plot::{Line, svg};
use crate::fleet::Totals;
use crate::parts::Row;

/// One scenario that was measured.
#[derive(Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    /// Runtimes that should have converged.
    pub(super) runtimes: usize,
    /// Absent where nothing had to change.
    pub(super) curve: Option<Curve>,
    pub(super) totals: Totals,
    /// Of the controller.
    pub(super) cpu: Duration,
    /// The same, resident, in KiB: at the end, and the most.
    pub(super) memory: (u32, u32),
    pub(super) bounds: Vec<Bound>,
    /// Whether it is a line of the plot.
    pub(super) drawn: bool,
}

/// What must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    pub(super) text: String,
    pub(super) met: bool,
}

impl Bound {
    pub(super) fn new(text: impl Into<String>, met: bool) -> Self {
        Self {
            text: text.into(),
            met,
        }
    }

    /// Of the time after which 99 % had it.
    pub(super) fn p99(curve: &Curve, limit: Duration) -> Self {
        let met = curve.quantile(990).is_some_and(|time| time <= limit);
        Self::new(format!("p99 ≤ {} s", limit.as_secs()), met)
    }

    fn cell(&self) -> String {
        let mark = if self.met { "✓" } else { "✗" };
        format!("{mark} {}", self.text)
    }
}

/// The curves, and that of today's way.
pub(super) fn plot<'a>(
    outcomes: impl Iterator<Item = &'a Outcome>,
    (runtimes, today): (usize, &'a Curve),
) -> String {
    let mut lines: Vec<Line<'_>> = outcomes
        .filter(|outcome| outcome.drawn)
        .filter_map(|outcome| {
            let name = format!("{}, {}", outcome.name, outcome.runtimes);
            Some(Line {
                name,
                curve: outcome.curve.as_ref()?,
            })
        })
        .collect();
    lines.push(Line {
        name: format!("label and wait, {runtimes} (model)"),
        curve: today,
    });
    svg("Share of runtimes that have a change, by time", &lines)
}

/// The line of today's way, which is a model.
pub(super) fn today(runtimes: usize, curve: &Curve) -> Vec<String> {
    let name = "today: label and wait, 5 requests/s (model)".to_owned();
    let mut cells = vec![name, runtimes.to_string()];
    cells.extend(times(Some(curve)));
    cells
}

impl Row for Outcome {
    const HEADER: &'static [&'static str] = &[
        "scenario",
        "runtimes",
        "p50 s",
        "p99 s",
        "last s",
        "writes each",
        "reads each",
        "handshakes each",
        "most in flight",
        "CPU s",
        "RSS MiB end / peak",
        "bound",
    ];

    fn cells(&self) -> Vec<String> {
        let Self {
            name,
            runtimes,
            curve,
            totals,
            cpu,
            memory: (last, most),
            bounds,
            drawn: _,
        } = self;
        let counts = totals.counts;
        let reads = counts.gets + counts.lists + counts.questions;
        let mebibytes = |kib: &u32| format!("{:.1}", f64::from(*kib) / 1024.0);
        let bounds: Vec<String> = bounds.iter().map(Bound::cell).collect();
        let mut cells = vec![name.clone(), runtimes.to_string()];
        cells.extend(times(curve.as_ref()));
        cells.extend([
            per(counts.writes, *runtimes),
            per(reads, *runtimes),
            per(counts.handshakes, *runtimes),
            totals.most_in_flight.to_string(),
            format!("{:.1}", cpu.as_secs_f64()),
            format!("{} / {}", mebibytes(last), mebibytes(most)),
            bounds.join(", "),
        ]);
        cells
    }

    fn holds(&self) -> bool {
        self.bounds.iter().all(|bound| bound.met)
    }
}

fn times(curve: Option<&Curve>) -> [String; 3] {
    [500, 990, 1000].map(|per_mille| {
        let Some(curve) = curve else {
            return "–".to_owned();
        };
        let time = curve.quantile(per_mille);
        time.map_or_else(
            || "never".to_owned(),
            |time| format!("{:.1}", time.as_secs_f64()),
        )
    })
}

fn per(count: u64, runtimes: usize) -> String {
    let narrow = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    format!("{:.2}", narrow(count) / narrow(runtimes.max(1) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Counts;

    fn outcome(runtimes: usize) -> Outcome {
        let curve = Curve::new((1..=10).map(Duration::from_secs).collect(), 10);
        Outcome {
            name: "cold".to_owned(),
            runtimes,
            bounds: vec![Bound::p99(&curve, Duration::from_secs(9))],
            curve: Some(curve),
            totals: Totals {
                counts: Counts {
                    writes: 30,
                    gets: 12,
                    questions: 3,
                    handshakes: 10,
                    ..Counts::default()
                },
                most_in_flight: 7,
                ..Totals::default()
            },
            cpu: Duration::from_millis(1500),
            memory: (10 * 1024, 20 * 1024),
            drawn: true,
        }
    }

    #[test]
    fn a_row_counts_by_runtime() {
        let cells = outcome(10).cells();
        assert_eq!(
            cells,
            [
                "cold",
                "10",
                "5.0",
                "10.0",
                "10.0",
                "3.00",
                "1.50",
                "1.00",
                "7",
                "1.5",
                "10.0 / 20.0",
                "✗ p99 ≤ 9 s"
            ]
        );
        assert_eq!(cells.len(), Outcome::HEADER.len());
    }

    #[test]
    fn who_does_not_converge_is_shown() {
        let curve = Curve::new(vec![Duration::from_secs(1)], 2);
        assert_eq!(times(Some(&curve)), ["1.0", "never", "never"]);
        assert_eq!(times(None), ["–", "–", "–"]);
        assert!(!Bound::p99(&curve, Duration::from_secs(9)).met);
    }
}
