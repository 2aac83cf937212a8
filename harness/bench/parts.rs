//! A bench in parts: each can be measured alone, its figures wait in a file for those of the others, and all of them
//! are one table.
//!
//! Invariants: a bound that is missed is shown, and decides the exit code of `--check`; a look (`--quick`) keeps
//! nothing. Deliberately absent: what is measured.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use comfy_table::{Table, TableStyle, presets};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::machine::Circumstances;
use super::{Outcome, page};

/// What is to be measured, and what becomes of it.
#[derive(Debug, Clone, Args)]
pub(super) struct Choice<P: ValueEnum + Send + Sync + 'static> {
    /// Exit with 1 if a bound that must hold does not.
    #[arg(long)]
    check: bool,
    /// Measure what was built last, and do not ask cargo whether it is of these sources.
    #[arg(long)]
    pub(super) built: bool,
    /// Measure this binary of the product.
    #[arg(long, value_name = "FILE", requires = "built")]
    pub(super) product: Option<PathBuf>,
    /// Only look: nothing is kept, and nothing written into docs/. Of events, a tenth.
    #[arg(long)]
    pub(super) quick: bool,
    /// Measure these parts alone (otherwise all); the others of the page are what was measured last.
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Vec<P>,
}

/// A line of the table.
pub(super) trait Row: Serialize + DeserializeOwned {
    /// What stands above the cells.
    const HEADER: &'static [&'static str];

    /// What is shown of it.
    fn cells(&self) -> Vec<String>;

    /// Whether its bounds are met.
    fn holds(&self) -> bool;
}

/// What was measured by one command.
#[derive(Serialize, Deserialize)]
struct Measured<R> {
    /// Machine, moment and what else a reader must know.
    circumstances: String,
    command: String,
    rows: Vec<R>,
}

/// Everything.
pub(super) struct Figures<R> {
    bench: &'static str,
    parts: Vec<Measured<R>>,
    /// At the end of the table: what was not measured.
    beside: Vec<Vec<String>>,
}

/// Measures what was chosen, and takes the rest from the runs before.
pub(super) async fn measure<P, R>(
    bench: &'static str,
    choice: &Choice<P>,
    mut measure: impl AsyncFnMut(P) -> anyhow::Result<Vec<R>>,
) -> anyhow::Result<Figures<R>>
where
    P: ValueEnum + PartialEq + Send + Sync + 'static,
    R: Row,
{
    let mut parts = Vec::new();
    for part in P::value_variants() {
        let value = part.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        if !choice.parts.is_empty() && !choice.parts.contains(part) {
            parts.extend(page::kept(bench, name).filter(|_| !choice.quick));
            continue;
        }
        let measured = Measured {
            circumstances: Circumstances::now().await?.to_string(),
            command: format!("cargo harness bench {bench} --parts {name}"),
            rows: measure(part.clone()).await?,
        };
        if !choice.quick {
            page::keep(bench, name, &measured)?;
        }
        parts.push(measured);
    }
    Ok(Figures {
        bench,
        parts,
        beside: Vec::new(),
    })
}

impl<R: Row> Figures<R> {
    /// With a line that was not measured.
    pub(super) fn beside(mut self, cells: Vec<String>) -> Self {
        self.beside.push(cells);
        self
    }

    /// What was measured, in the order of the parts.
    pub(super) fn rows(&self) -> impl Iterator<Item = &R> {
        self.parts.iter().flat_map(|part| &part.rows)
    }

    /// Writes the page, unless this was a look, and tells the terminal.
    pub(super) fn end<P>(&self, choice: &Choice<P>) -> anyhow::Result<Outcome>
    where
        P: ValueEnum + Send + Sync + 'static,
    {
        let circumstances = self.circumstances();
        if !choice.quick {
            let table = self.table(presets::ASCII_MARKDOWN);
            page::put(self.bench, &format!("{circumstances}\n{table}"))?;
        }
        let good = !choice.check || self.hold();
        let text = circumstances + &self.table(presets::UTF8_FULL_CONDENSED);
        Ok(Outcome::new(text, good))
    }

    fn hold(&self) -> bool {
        self.rows().all(Row::holds)
    }

    fn circumstances(&self) -> String {
        let line = |part: &Measured<R>| format!("- `{}`: {}\n", part.command, part.circumstances);
        self.parts.iter().map(line).collect()
    }

    fn table(&self, style: TableStyle) -> String {
        let mut table = Table::new();
        table.load_style(style).set_header(R::HEADER);
        for row in self.rows() {
            table.add_row(row.cells());
        }
        for cells in &self.beside {
            table.add_row(cells);
        }
        table.trim_fmt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Length(u32);

    impl Row for Length {
        const HEADER: &'static [&'static str] = &["length"];

        fn cells(&self) -> Vec<String> {
            vec![self.0.to_string()]
        }

        fn holds(&self) -> bool {
            self.0 < 10
        }
    }

    fn figures(parts: &[&[u32]]) -> Figures<Length> {
        let part = |lengths: &&[u32]| Measured {
            circumstances: "at night".to_owned(),
            command: "cargo".to_owned(),
            rows: lengths.iter().copied().map(Length).collect(),
        };
        Figures {
            bench: "lengths",
            parts: parts.iter().map(part).collect(),
            beside: Vec::new(),
        }
    }

    #[test]
    fn one_bound_that_is_missed_decides() {
        assert!(figures(&[&[1], &[9]]).hold());
        assert!(!figures(&[&[1], &[9, 10]]).hold());
    }

    #[test]
    fn all_parts_are_one_table() {
        let figures = figures(&[&[1, 2], &[3]]).beside(vec!["long".to_owned()]);
        let table = figures.table(presets::ASCII_MARKDOWN);
        let cells = table.lines().map(|line| line.trim_matches(['|', ' ']));
        let cells: Vec<&str> = cells.collect();
        assert_eq!(cells[0], "length");
        assert_eq!(cells[2..], ["1", "2", "3", "long"]);
        assert_eq!(figures.circumstances(), "- `cargo`: at night\n".repeat(2));
    }
}
