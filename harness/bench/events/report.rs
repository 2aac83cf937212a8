//! The figures of the events: a line for each measure, and what others take for it.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::parts;

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    measure: String,
    ours: String,
    /// With `--delivery-mode=sync`.
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
}

impl parts::Row for Row {
    const HEADER: &'static [&'static str] = &[
        "measure",
        "ours",
        "ours, `notify: sync`",
        "public watcher (model)",
        "bound",
    ];

    fn cells(&self) -> Vec<String> {
        let bound = self.bound.as_ref().map(|bound| {
            let mark = if bound.met { "✓" } else { "✗" };
            format!("{mark} must {}", bound.text)
        });
        let cells = [&self.measure, &self.ours, &self.sync, &self.public];
        let cells = cells.into_iter().cloned();
        cells.chain([bound.unwrap_or_default()]).collect()
    }

    fn holds(&self) -> bool {
        self.bound.as_ref().is_none_or(|bound| bound.met)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Row as _;

    #[test]
    fn a_bound_that_is_missed_is_marked() {
        let good = Row::new("a", "1").at_most(1.0, 2.0, " ms");
        let bad = Row::new("b", "1").at_least(1.0, 2.0, "/s");
        assert_eq!((good.holds(), bad.holds()), (true, false));
        assert_eq!(bad.cells(), ["b", "1", "", "", "✗ must ≥ 2/s"]);
        assert_eq!(bad.cells().len(), Row::HEADER.len());
    }

    #[test]
    fn times_are_milliseconds() {
        let times = Times::new([1, 2, 100].map(Duration::from_millis)).unwrap();
        assert!((times.quantile(0.5) - 2.0).abs() < 0.01);
        assert!((times.quantile(1.0) - 100.0).abs() < 0.1);
    }
}
