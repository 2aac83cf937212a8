//! Figures out of rounds: what the middle is, how far they lie apart, which rounds were disturbed.
//!
//! Deliberately absent: means (one disturbed round moves them) and tests of significance (five rounds carry none).

use std::fmt;

/// The middle of some figures, and the least and the largest of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) largest: f64,
}

impl Spread {
    /// Nothing of nothing.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median = match figures.len() {
            0 => return None,
            odd if odd % 2 == 1 => figures[middle],
            _ => f64::midpoint(figures[middle - 1], figures[middle]),
        };
        Some(Self {
            median,
            least: figures[0],
            largest: *figures.last()?,
        })
    }

    /// In another unit.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            median: self.median * factor,
            least: self.least * factor,
            largest: self.largest * factor,
        }
    }
}

/// `18.2 (17.9–18.8)`; the precision is that of the format.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self {
            median,
            least,
            largest,
        } = self;
        write!(f, "{median:.digits$} ({least:.digits$}–{largest:.digits$})")
    }
}

/// Whether each figure is within `tolerance` (a share) of the median of all.
pub(super) fn steady(figures: &[f64], tolerance: f64) -> Vec<bool> {
    let median = Spread::of(figures.iter().copied()).map_or(0.0, |spread| spread.median);
    figures
        .iter()
        .map(|figure| (figure - median).abs() <= tolerance * median)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_a_disturbed_round() {
        for (figures, median, least, largest) in [
            (vec![3.0], 3.0, 3.0, 3.0),
            (vec![9.0, 1.0, 2.0], 2.0, 1.0, 9.0),
            (vec![4.0, 1.0, 2.0, 100.0], 3.0, 1.0, 100.0),
        ] {
            let expected = Spread {
                median,
                least,
                largest,
            };
            assert_eq!(Spread::of(figures), Some(expected));
        }
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_round_that_moved_by_more_than_the_tolerance_is_disturbed() {
        let figures = [10.0, 10.9, 9.1, 11.2, 8.7];
        assert_eq!(steady(&figures, 0.1), [true, true, true, false, false]);
    }

    #[test]
    fn a_spread_reads_as_median_and_bounds() {
        let spread = Spread::of([1.0, 2.0, 4.0]).unwrap().times(10.0);
        assert_eq!(format!("{spread:.1}"), "20.0 (10.0–40.0)");
    }
}
