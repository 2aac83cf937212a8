//! The figures of the events: one table, on the terminal and between two markers of `docs/benchmarks.md`.
//!
//! Invariant: what is outside the markers is the author's; a bound that is missed is shown, and decides the exit code
//! of `--check`.

use std::time::Duration;

use comfy_table::{Table, TableStyle, presets};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    measure: String,
    ours: String,
    /// With `--notify=sync`.
    sync: String,
    /// Of the model of the public watcher.
    public: String,
    bound: Option<Bound>,
}

/// What must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Bound {
    text: String,
    met: bool,
}

impl Row {
    pub(super) fn new(measure: impl Into<String>, ours: impl Into<String>) -> Self {
        Self {
            measure: measure.into(),
            ours: ours.into(),
            sync: String::new(),
            public: String::new(),
            bound: None,
        }
    }

    /// Beside what others take for it.
    pub(super) fn beside(self, sync: String, public: String) -> Self {
        Self {
            sync,
            public,
            ..self
        }
    }

    pub(super) fn at_most(self, figure: f64, limit: f64, unit: &str) -> Self {
        self.bound(format!("≤ {limit}{unit}"), figure <= limit)
    }

    pub(super) fn at_least(self, figure: f64, limit: f64, unit: &str) -> Self {
        self.bound(format!("≥ {limit}{unit}"), figure >= limit)
    }

    /// None may be.
    pub(super) fn none(self, count: usize) -> Self {
        self.bound("= 0".to_owned(), count == 0)
    }

    fn bound(self, text: String, met: bool) -> Self {
        let bound = Some(Bound { text, met });
        Self { bound, ..self }
    }

    fn cells(&self) -> [String; 5] {
        let bound = self.bound.as_ref().map(|bound| {
            let mark = if bound.met { "✓" } else { "✗" };
            format!("{mark} must {}", bound.text)
        });
        [
            self.measure.clone(),
            self.ours.clone(),
            self.sync.clone(),
            self.public.clone(),
            bound.unwrap_or_default(),
        ]
    }
}

/// What was measured by one command.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    /// Machine, moment and what else a reader must know.
    pub(super) circumstances: String,
    pub(super) command: String,
    pub(super) rows: Vec<Row>,
}

/// Everything.
pub(super) struct Figures {
    pub(super) parts: Vec<Measured>,
}

impl Figures {
    /// Whether every bound is met.
    pub(super) fn hold(&self) -> bool {
        let bounds = self.rows().filter_map(|row| row.bound.as_ref());
        bounds.into_iter().all(|bound| bound.met)
    }

    /// For the terminal.
    pub(super) fn shown(&self) -> String {
        format!(
            "{}{}",
            self.circumstances(),
            self.table(presets::UTF8_FULL_CONDENSED)
        )
    }

    /// For the page.
    pub(super) fn markdown(&self) -> String {
        format!(
            "{}\n{}",
            self.circumstances(),
            self.table(presets::ASCII_MARKDOWN)
        )
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.parts.iter().flat_map(|part| &part.rows)
    }

    fn circumstances(&self) -> String {
        let line = |part: &Measured| format!("- `{}`: {}\n", part.command, part.circumstances);
        self.parts.iter().map(line).collect()
    }

    fn table(&self, style: TableStyle) -> String {
        let mut table = Table::new();
        table.load_style(style).set_header(HEADER);
        for row in self.rows() {
            table.add_row(row.cells());
        }
        table.trim_fmt()
    }
}

/// How long something took, each time.
#[derive(Clone)]
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new(times: impl IntoIterator<Item = Duration>) -> anyhow::Result<Self> {
        let mut histogram = Histogram::new(3)?;
        for time in times {
            histogram.record(u64::try_from(time.as_nanos())?)?;
        }
        Ok(Self(histogram))
    }

    /// Milliseconds within which this share was done.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        Duration::from_nanos(self.0.value_at_quantile(share)).as_secs_f64() * 1e3
    }
}

/// KiB as MiB.
pub(super) fn mebibytes(kib: u32) -> f64 {
    f64::from(kib) / 1024.0
}

/// Of something so many: precise to 2³², where no count of this bench comes near.
pub(super) fn number(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}

const HEADER: [&str; 5] = [
    "measure",
    "ours",
    "ours, `notify: sync`",
    "public watcher (model)",
    "bound",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bound_that_is_missed_decides() {
        let good = Row::new("a", "1").at_most(1.0, 2.0, " ms");
        let bad = Row::new("b", "1").at_least(1.0, 2.0, "/s");
        let figures = |rows| Figures {
            parts: vec![Measured {
                circumstances: String::new(),
                command: String::new(),
                rows,
            }],
        };
        assert!(figures(vec![good.clone()]).hold());
        assert!(!figures(vec![good, bad.clone()]).hold());
        assert_eq!(bad.cells()[4], "✗ must ≥ 2/s");
    }

    #[test]
    fn times_are_milliseconds() {
        let times = Times::new([1, 2, 100].map(Duration::from_millis)).unwrap();
        assert!((times.quantile(0.5) - 2.0).abs() < 0.01);
        assert!((times.quantile(1.0) - 100.0).abs() < 0.1);
    }
}
