//! `docs/benchmarks.md`: each bench has a part of it, between two markers; and where the figures of a bench's parts wait
//! for each other.
//!
//! Invariant: what is outside the markers is the author's.

use std::fmt::Display;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use clusters::workspace;

/// Replaces the part of one bench.
pub(super) fn put(bench: &str, part: &str) -> anyhow::Result<()> {
    let page = workspace::root().join(PAGE);
    let text = std::fs::read_to_string(&page).context(PAGE)?;
    let text = between_markers(&text, bench, part)
        .with_context(|| format!("{PAGE} has no markers for `{bench}`"))?;
    std::fs::write(&page, text).context(PAGE)
}

fn between_markers(page: &str, bench: &str, part: &str) -> Option<String> {
    let begin = format!("<!-- begin: harness bench {bench} -->");
    let end = format!("<!-- end: harness bench {bench} -->");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{part}\n{end}{after}"))
}

fn file(bench: &str, part: impl Display) -> PathBuf {
    workspace::state().join(format!("{bench}-{part}.json"))
}

/// Keeps the figures of a part for when the others are measured.
pub(super) fn keep(
    bench: &str,
    part: impl Display,
    measured: &impl Serialize,
) -> anyhow::Result<()> {
    let file = file(bench, part);
    std::fs::write(&file, serde_json::to_vec(measured)?).with_context(|| file.display().to_string())
}

/// Figures of a run before; what an older harness wrote and this one does not understand was not measured.
pub(super) fn kept<T: DeserializeOwned>(bench: &str, part: impl Display) -> Option<T> {
    serde_json::from_slice(&std::fs::read(file(bench, part)).ok()?).ok()
}

const PAGE: &str = "docs/benchmarks.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_markers_changes() {
        let page = |part: &str| {
            format!(
                "# Title\n<!-- begin: harness bench a -->\n{part}\n<!-- end: harness bench a -->\n\
                 rest\n<!-- begin: harness bench b -->\n<!-- end: harness bench b -->\n"
            )
        };
        let new = between_markers(&page("old"), "a", "new");
        assert_eq!(new, Some(page("new")));
        assert_eq!(between_markers(&page("old"), "c", "new"), None);
    }
}
