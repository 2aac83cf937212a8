//! Pages of `docs/reference` and the embedded JSON Schema, generated from the code.
//!
//! The content is generated at run time from the commands, metrics and custom resources. One test compares the files with
//! the code. `cargo reference` runs it with the variable `UPDATE_REFERENCE`, which makes it write the files first. Compiled
//! as a module of the tests only.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

mod api_page;
mod document_schema;
mod documents;
mod exposition;
mod flags;
mod metrics;
mod monitoring;
mod permissions;
mod promql;
mod queries;

/// Command that writes the files.
const COMMAND: &str = "cargo reference";

/// A file of the repository with its expected text.
struct Page {
    path: &'static str,
    text: String,
}

fn pages() -> [Page; 4] {
    [
        Page {
            path: "docs/reference/flags.md",
            text: flags::page(),
        },
        Page {
            path: "docs/reference/metrics.md",
            text: metrics::page(),
        },
        Page {
            path: "docs/reference/api.md",
            text: api_page::page(),
        },
        Page {
            path: "src/api/config/schema.json",
            text: format!("{:#}\n", document_schema::schema()),
        },
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the start of a generated page.
fn heading(title: &str, about: &str) -> String {
    format!(
        "# {title}\n\n<!-- Generated from the code by `{COMMAND}`; do not edit. -->\n\n{about}\n"
    )
}

/// Returns a table in Markdown. A cell is one line, and a pipe in it is escaped.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| cell.replace('\n', " ").replace('|', "\\|"))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let header: Vec<String> = header.iter().map(|&it| it.to_owned()).collect();
    let mut text = format!("\n{}", line(&header));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "|{}", "---|".repeat(header.len()));
    text.extend(rows.iter().map(|row| line(row)));
    text
}

/// Returns a text as code, or a dash if it is empty.
fn code(text: &str) -> String {
    if text.is_empty() {
        return "–".to_owned();
    }
    format!("`{text}`")
}

#[test]
fn generated_files_are_up_to_date() {
    let writes = std::env::var_os("UPDATE_REFERENCE").is_some();
    for Page { path, text } in pages() {
        if writes {
            let path = root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &text).unwrap();
        }
        let file = fs::read_to_string(root().join(path)).unwrap_or_default();
        let differing = file
            .lines()
            .zip(text.lines())
            .find(|(is, should)| is != should);
        assert!(
            file == text,
            "{path} is not up to date: run `{COMMAND}` and commit the result; first difference: {differing:?}"
        );
    }
}
