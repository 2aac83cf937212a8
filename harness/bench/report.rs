//! The format of all results: rows with bounds in a table, on the terminal and in `docs/benchmarks.md`.
//!
//! Every part of a bench has its own section in the page, between two markers. A full run of the part replaces the section.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use comfy_table::{Table as Cells, TableStyle, presets};

use crate::Outcome;
use crate::environment::{Bench, describe};
use crate::statistics::Estimate;
use clusters::{progress, workspace};

/// Arguments that all benches share.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Exit with 1 if a required bound is missed.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) effort: Effort,
    /// Core of the system under test; the harness sets it for its second process.
    #[arg(long, hide = true)]
    pub(crate) core: Option<usize>,
}

/// Arguments of a bench with parts that can be measured separately.
#[derive(Debug, Clone, Args)]
pub struct PartsArgs<P: ValueEnum + Send + Sync + 'static> {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Parts to measure; the default is all parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) parts: Vec<P>,
}

/// Amount of measurements, and selection of bounds. The bounds of a quick run, for CI, allow for a slow, busy machine; a
/// regression to ten times the cost exceeds them.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Effort {
    /// A tenth of the load with loose bounds, on binaries of profile e2e; docs/benchmarks.md is not written.
    #[arg(long)]
    pub(crate) quick: bool,
}

impl Effort {
    /// Returns a count, divided by ten in a quick run.
    pub(crate) fn count(self, full: u32) -> u32 {
        self.choose(full, full.div_ceil(10))
    }

    /// Returns the value for this run, such as a limit or a number of rounds.
    pub(crate) fn choose<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    text: String,
    required: bool,
    met: bool,
}

impl Bound {
    /// Returns a condition that determines the exit code of `--check`.
    pub(crate) fn required(text: impl Into<String>, met: bool) -> Self {
        Self {
            text: text.into(),
            required: true,
            met,
        }
    }

    pub(crate) fn at_most(result: impl Into<Estimate>, limit: f64, unit: &str) -> Self {
        Self::required(format!("≤ {limit}{unit}"), result.into().high <= limit)
    }

    pub(crate) fn at_least(result: Estimate, limit: f64, unit: &str) -> Self {
        Self::required(format!("≥ {limit}{unit}"), result.low >= limit)
    }

    pub(crate) fn zero(count: impl TryInto<u64>) -> Self {
        Self::required("= 0", count.try_into().is_ok_and(|count| count == 0))
    }

    /// Makes the bound a target, which is shown and does not determine the exit code.
    pub(crate) fn target(mut self) -> Self {
        self.required = false;
        self
    }

    /// Returns this bound, which is met only if the same bound of another round is also met.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.met &= other.met;
        self
    }

    fn cell(&self) -> String {
        let mark = if self.met { "✓" } else { "✗" };
        let kind = if self.required { "" } else { " target" };
        format!("{mark}{kind} {}", self.text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Name of the measure with its unit, and one cell for each further column except the last, which contains the bounds.
    pub(crate) cells: Vec<String>,
    bounds: Vec<Bound>,
}

impl Row {
    pub(crate) fn new<T: Into<String>>(cells: impl IntoIterator<Item = T>) -> Self {
        Self {
            cells: cells.into_iter().map(Into::into).collect(),
            bounds: Vec::new(),
        }
    }

    /// Returns a row of estimates with this number of digits.
    pub(crate) fn of(
        measure: &str,
        results: impl IntoIterator<Item = Estimate>,
        digits: usize,
    ) -> Self {
        let results = results.into_iter().map(|it| format!("{it:.digits$}"));
        Self::new([measure.to_owned()].into_iter().chain(results))
    }

    pub(crate) fn bound(mut self, bound: impl Into<Option<Bound>>) -> Self {
        self.bounds.extend(bound.into());
        self
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    /// Names of the columns before `bound`.
    columns: Vec<&'static str>,
    pub(crate) rows: Vec<Row>,
    /// Markdown below the table, such as a chart; it is not shown on the terminal.
    pub(crate) appendix: String,
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = &'static str>, rows: Vec<Row>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows,
            appendix: String::new(),
        }
    }

    pub(crate) fn meets_its_bounds(&self) -> bool {
        let mut bounds = self.rows.iter().flat_map(|row| &row.bounds);
        bounds.all(|bound| bound.met || !bound.required)
    }

    fn render(&self, style: TableStyle) -> String {
        let mut table = Cells::new();
        let header = self.columns.iter().copied().chain(["bound"]);
        table.load_style(style).set_header(header);
        for row in &self.rows {
            let mut cells = row.cells.clone();
            cells.resize(self.columns.len(), String::new());
            let bounds: Vec<String> = row.bounds.iter().map(Bound::cell).collect();
            cells.push(bounds.join(", "));
            table.add_row(cells);
        }
        table.trim_fmt()
    }
}

#[derive(Default)]
pub(crate) struct Report {
    text: String,
    missed: bool,
}

impl Report {
    /// Measures a part, and writes its section of the page unless the run is quick.
    pub(crate) async fn add(
        &mut self,
        bench: &Bench,
        section: &str,
        measured: impl Future<Output = anyhow::Result<Table>>,
    ) -> anyhow::Result<()> {
        let environment = describe(bench.effort, section).await?;
        let table = progress::show(section, measured).await?;
        if !bench.effort.quick {
            let page = workspace::root().join(PAGE);
            let text = std::fs::read_to_string(&page).context(PAGE)?;
            let markdown = table.render(presets::ASCII_MARKDOWN);
            let content = format!("{environment}\n\n{markdown}{}", table.appendix);
            let text = replace_section(&text, section, &content);
            let text = text.with_context(|| format!("{PAGE}: no section `{section}`"))?;
            std::fs::write(&page, text).context(PAGE)?;
        }
        let shown = table.render(presets::UTF8_FULL_CONDENSED);
        self.text += &[section, ": ", &environment, "\n", &shown, "\n"].concat();
        self.missed |= !table.meets_its_bounds();
        Ok(())
    }

    pub(crate) fn finish(self, check: bool) -> Outcome {
        let ends = ["all required bounds are met", "a required bound is missed"];
        let text = self.text + ends[usize::from(self.missed)];
        (text, ExitCode::from(u8::from(check && self.missed)))
    }
}

fn replace_section(page: &str, section: &str, content: &str) -> Option<String> {
    let begin = format!("<!-- begin: bench {section} -->");
    let end = format!("<!-- end: bench {section} -->");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{content}\n{end}{after}"))
}

const PAGE: &str = "docs/benchmarks.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_is_compared_with_the_end_of_the_interval() {
        let [inside, across] = [1.9, 2.0].map(|high| Estimate {
            median: 1.8,
            low: 1.7,
            high,
        });
        assert!(Bound::at_most(inside, 1.9, " ×").met);
        assert!(!Bound::at_most(across, 1.9, " ×").met);
        assert!(Bound::at_least(inside, 1.7, "/s").met);
        assert!(!Bound::at_least(inside, 1.75, "/s").met);
        assert!(Bound::zero(0).met && !Bound::zero(1).met && !Bound::zero(-1).met);
    }

    #[test]
    fn only_a_missed_required_bound_fails_and_only_with_check() {
        let [met, missed] = [true, false].map(|met| Bound::required("= 0", met));
        for (bound, check, success) in [
            (missed.clone(), true, false),
            (missed.clone(), false, true),
            (missed.target(), true, true),
            (met.clone(), true, true),
        ] {
            let rows = [met.clone(), bound].map(|it| Row::new(["a"]).bound(it));
            let missed = !Table::new(["measure"], rows.to_vec()).meets_its_bounds();
            let text = String::new();
            let (_, code) = Report { text, missed }.finish(check);
            assert_eq!(code == ExitCode::SUCCESS, success);
        }
    }

    #[test]
    fn bounds_follow_the_last_column_in_every_row() {
        let bound = Bound::at_most(21.0, 20.0, " MiB");
        let row = Row::new(["RSS, MiB", "21.0"]).bound(bound.clone());
        let other = Row::new(["other"]).bound(bound.target());
        let text = Table::new(["measure", "result"], vec![row, other]);
        let text = text.render(presets::ASCII_MARKDOWN);
        for (line, expected) in text.lines().skip(2).zip([
            ["RSS, MiB", "21.0", "✗ ≤ 20 MiB"],
            ["other", "", "✗ target ≤ 20 MiB"],
        ]) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            assert_eq!(cells[1..4], expected);
        }
    }

    #[test]
    fn only_the_text_between_the_markers_of_a_section_changes() {
        let section = |name, content| {
            format!("<!-- begin: bench {name} -->\n{content}\n<!-- end: bench {name} -->\n")
        };
        let page = |content| ["# Title\n", &section("a", content), &section("b", "")].concat();
        assert_eq!(replace_section(&page("old"), "a", "new"), Some(page("new")));
        assert_eq!(replace_section(&page("old"), "c", "new"), None);
    }

    #[test]
    fn page_has_a_section_for_every_part() {
        let page = std::fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let fanout = crate::fanout::Part::value_variants().iter();
        let events = crate::events::Part::value_variants().iter();
        let sections = fanout.map(|part| crate::section("fanout", part));
        let sections = sections.chain(events.map(|part| crate::section("events", part)));
        for section in sections.chain(["admission".to_owned()]) {
            assert!(replace_section(&page, &section, "").is_some(), "{section}");
        }
    }
}
