//! One table, ratios first: on the terminal, and as Markdown between two markers of `docs/benchmarks.md`.
//!
//! Invariant: what is outside the markers is the author's. Bounds that *must* hold decide the exit code of `--check`;
//! those that are *aimed* at are shown.

use comfy_table::{Table, TableStyle, presets};

use super::answers::Kind;
use super::calls::Calls;
use super::machine::Circumstances;
use super::reviews::Size;
use super::rounds::{Comparison, Latency};
use super::statistics::Spread;

/// Everything that was measured.
pub(super) struct Figures {
    pub(super) circumstances: Circumstances,
    pub(super) command: String,
    pub(super) capacities: Vec<(Size, Kind, String, Comparison)>,
    pub(super) latencies: Vec<(Size, String, u32, (Latency, Latency))>,
    /// Resident KiB of no-op and webhook.
    pub(super) idle: (u32, u32),
    pub(super) peak: (u32, u32),
    pub(super) calls: Calls,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    measure: String,
    ratio: String,
    noop: String,
    webhook: String,
    bound: Option<Bound>,
}

/// What a figure should be.
#[derive(Debug, Clone, PartialEq)]
struct Bound {
    text: String,
    must: bool,
    met: bool,
}

impl Bound {
    fn at_most(figure: f64, limit: f64, unit: &str) -> Self {
        Self {
            text: format!("≤ {limit}{unit}"),
            must: false,
            met: figure <= limit,
        }
    }

    fn must(self) -> Self {
        Self { must: true, ..self }
    }

    fn cell(&self) -> String {
        let word = if self.must { "must" } else { "aim" };
        let mark = if self.met { "✓" } else { "✗" };
        format!("{mark} {word} {}", self.text)
    }
}

impl Figures {
    /// Whether everything holds that must.
    pub(super) fn hold(&self) -> bool {
        self.rows()
            .iter()
            .filter_map(|row| row.bound.as_ref())
            .all(|bound| bound.met || !bound.must)
    }

    /// For the terminal.
    pub(super) fn shown(&self) -> String {
        let headline = self.headline();
        format!(
            "{headline}\n{}\n{}",
            self.circumstances,
            table(&self.rows(), presets::UTF8_FULL_CONDENSED)
        )
    }

    /// For the page.
    pub(super) fn markdown(&self) -> String {
        format!(
            "{}\n\n`{}` · {}\n\n{}",
            self.headline(),
            self.command,
            self.circumstances,
            table(&self.rows(), presets::ASCII_MARKDOWN)
        )
    }

    /// The one figure to remember.
    fn headline(&self) -> String {
        let distance = self.distance().map_or_else(
            || "unknown".to_owned(),
            |ratio| format!("{ratio:.2}, target ≤ {LIMIT}"),
        );
        format!(
            "**Distance to the limit** (CPU of the webhook ÷ CPU of a no-op, typical Pod, all features): {distance}"
        )
    }

    fn distance(&self) -> Option<Spread> {
        self.capacities
            .iter()
            .find(|(size, kind, ..)| (*size, *kind) == (Size::Typical, Kind::AllFeatures))
            .map(|(.., comparison)| comparison.ratio)
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (size, kind, name, comparison) in &self.capacities {
            rows.push(cpu_row(*size, *kind, name, comparison));
        }
        for (.., name, comparison) in &self.capacities {
            rows.push(rate_row(name, comparison));
        }
        for (size, name, rate, (noop, webhook)) in &self.latencies {
            for (quantile, share) in QUANTILES {
                let figures = (noop.quantile(share), webhook.quantile(share));
                let mut row = latency_row(*size, quantile, figures);
                row.measure = format!("{quantile} ms at {rate}/s, {name}");
                if quantile == "p99" {
                    row.noop.push_str(&by_round(noop.p99));
                    row.webhook.push_str(&by_round(webhook.p99));
                }
                rows.push(row);
            }
        }
        rows.push(memory_row("RSS idle", self.idle, Some(20.0)));
        rows.push(memory_row("RSS peak", self.peak, None));
        rows.push(self.calls_row());
        rows
    }

    fn calls_row(&self) -> Row {
        let calls = self.calls;
        Row {
            measure: "API calls beside leases and watches".to_owned(),
            ratio: String::new(),
            noop: "–".to_owned(),
            webhook: format!("{} in {} reviews", calls.most(), calls.reviews),
            bound: Some(Bound {
                text: "= 0".to_owned(),
                must: true,
                met: calls.most() == 0 && calls.reviews > 0,
            }),
        }
    }
}

fn cpu_row(size: Size, kind: Kind, name: &str, comparison: &Comparison) -> Row {
    let cpu = comparison.webhook.cpu.median;
    let bound = match (size, kind) {
        (Size::Typical, Kind::AllFeatures) => {
            Some(Bound::at_most(comparison.ratio.median, LIMIT, " ×").must())
        }
        (Size::Large, Kind::AllFeatures) => Some(Bound::at_most(cpu, 150.0, " µs")),
        (Size::Typical, _) => Some(Bound::at_most(cpu, 30.0, " µs")),
        _ => None,
    };
    let left_out = match comparison.rejected {
        0 => String::new(),
        rounds => format!(" [{rounds} disturbed rounds left out]"),
    };
    Row {
        measure: format!("CPU µs/review, {name}{left_out}"),
        ratio: format!("{:.2}", comparison.ratio),
        noop: format!("{:.1}", comparison.noop.cpu),
        webhook: format!("{:.1}", comparison.webhook.cpu),
        bound,
    }
}

fn rate_row(name: &str, comparison: &Comparison) -> Row {
    let (noop, webhook) = (comparison.noop.rate, comparison.webhook.rate);
    Row {
        measure: format!("1000 reviews/s on one core, {name}"),
        ratio: format!("{:.2}", webhook.median / noop.median),
        noop: format!("{:.1}", noop.times(1e-3)),
        webhook: format!("{:.1}", webhook.times(1e-3)),
        bound: None,
    }
}

fn latency_row(size: Size, quantile: &str, (noop, webhook): (f64, f64)) -> Row {
    let limit = match (size, quantile) {
        (Size::Typical, "p50") => Some(0.15),
        (Size::Typical, "p99") => Some(1.0),
        (Size::Typical, "p99.9") => Some(3.0),
        (Size::Large, "p99") => Some(2.0),
        _ => None,
    };
    Row {
        measure: quantile.to_owned(),
        ratio: format!("{:.2}", webhook / noop),
        noop: format!("{noop:.3}"),
        webhook: format!("{webhook:.3}"),
        bound: limit.map(|limit| Bound::at_most(webhook, limit, " ms")),
    }
}

/// How far the rounds of a figure over all of them lie apart.
fn by_round(spread: Spread) -> String {
    format!(" ({:.3}–{:.3})", spread.least, spread.largest)
}

fn memory_row(measure: &str, (noop, webhook): (u32, u32), limit: Option<f64>) -> Row {
    let mebibytes = |kib: u32| f64::from(kib) / 1024.0;
    let (noop, webhook) = (mebibytes(noop), mebibytes(webhook));
    Row {
        measure: format!("{measure}, MiB"),
        ratio: format!("{:.2}", webhook / noop),
        noop: format!("{noop:.1}"),
        webhook: format!("{webhook:.1}"),
        bound: limit.map(|limit| Bound::at_most(webhook, limit, " MiB").must()),
    }
}

fn table(rows: &[Row], style: TableStyle) -> String {
    let mut table = Table::new();
    table
        .load_style(style)
        .set_header(["measure", "webhook ÷ no-op", "no-op", "webhook", "bound"]);
    for row in rows {
        let bound = row.bound.as_ref().map(Bound::cell).unwrap_or_default();
        table.add_row([&row.measure, &row.ratio, &row.noop, &row.webhook, &bound]);
    }
    table.trim_fmt()
}

/// CPU of the webhook by CPU of the no-op.
const LIMIT: f64 = 1.9;
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_its_ratio_before_its_figures() {
        let row = memory_row("RSS idle", (10 * 1024, 21 * 1024), Some(20.0));
        let text = table(std::slice::from_ref(&row), presets::ASCII_MARKDOWN);
        let last = text.lines().last().unwrap();
        let cells: Vec<&str> = last.split('|').map(str::trim).collect();
        assert_eq!(
            cells[1..6],
            ["RSS idle, MiB", "2.10", "10.0", "21.0", "✗ must ≤ 20 MiB"]
        );
        assert_eq!(
            row.bound.map(|bound| (bound.must, bound.met)),
            Some((true, false))
        );
    }
}
