//! The three formats of the result. The diff is human-readable, and the others are for programs.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use api::Feature;
use serde::Serialize;
use similar::{Algorithm, TextDiff};

use super::judgement::{Explanation, UNWRITTEN, Verdict};
use super::manifest::Skipped;
use super::near_miss::NearMiss;
use crate::edge::{printable, yaml as document};

#[cfg(test)]
mod tests;

/// Time limit of the diff of one Pod. The remaining text is shown as removed and added.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of listed names of skipped objects of one kind.
const NAMES_OF_A_KIND: usize = 10;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(rename = "pods")]
    pub(super) verdicts: Vec<Verdict>,
    pub(super) skipped: Vec<Skipped>,
}

/// Colors of a diff; none if the output is not a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Palette {
    heading: Style,
    added: Style,
    removed: Style,
    hunk: Style,
    warning: Style,
}

impl Palette {
    /// Returns colors for a terminal, unless they are disabled (`NO_COLOR`, see no-color.org).
    pub(super) fn of_this_terminal() -> Self {
        Self::of(io::stdout().is_terminal(), |name| env::var_os(name))
    }

    fn of(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let refused = variable("NO_COLOR").is_some_and(|it| !it.is_empty());
        let dumb = variable("TERM").is_some_and(|it| it == "dumb");
        if is_terminal && !refused && !dumb {
            Self::colours()
        } else {
            Self::default()
        }
    }

    pub(super) fn colours() -> Self {
        Self {
            heading: Style::new().bold(),
            added: AnsiColor::Green.on_default(),
            removed: AnsiColor::Red.on_default(),
            hunk: AnsiColor::Cyan.on_default(),
            warning: AnsiColor::Yellow.on_default(),
        }
    }

    /// Returns the style of a line of a unified diff, by its prefix.
    fn of_line(self, line: &str) -> Style {
        match line {
            _ if line.starts_with("--- ") || line.starts_with("+++ ") => self.heading,
            _ if line.starts_with("@@") => self.hunk,
            _ if line.starts_with('+') => self.added,
            _ if line.starts_with('-') => self.removed,
            _ => Style::new(),
        }
    }
}

/// Returns the report for programs. Its format is stable (`{"pods":[…],"skipped":[…]}`).
pub(super) fn json(report: &Report) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(report).context(UNWRITTEN)?;
    Ok(format!("{text}\n"))
}

/// Returns the Pods as they would be admitted, changed or not.
pub(super) fn yaml(report: &Report) -> anyhow::Result<String> {
    let documents: Result<Vec<_>, _> = report
        .verdicts
        .iter()
        .map(|verdict| document(&verdict.after))
        .collect();
    Ok(documents?.join("---\n"))
}

/// Returns the human-readable report: a block of comments and a unified diff per Pod. Programs that parse diffs skip the
/// comments.
pub(super) fn diff(report: &Report, palette: Palette) -> anyhow::Result<String> {
    let mut out = String::new();
    for verdict in &report.verdicts {
        explain(&mut out, verdict, palette);
        if verdict.changed {
            changed(&mut out, verdict, palette)?;
        }
        out.push('\n');
    }
    passed_over(&mut out, &report.skipped);
    let changes = report.verdicts.iter().filter(|it| it.changed).count();
    line(
        &mut out,
        palette.heading,
        &format!(
            "{}, {changes} would be changed; {} passed over",
            counted(report.verdicts.len(), "Pod"),
            counted(report.skipped.len(), "other object"),
        ),
    );
    Ok(out)
}

/// Adds the reasons for and against changes. Features with the same reason share a line.
fn explain(out: &mut String, verdict: &Verdict, palette: Palette) {
    let state = if verdict.changed {
        "changed"
    } else {
        "unchanged"
    };
    line(
        out,
        palette.heading,
        &format!("# {}: {state}", verdict.source),
    );
    let mut groups: Vec<(&Explanation, Vec<&str>)> = Vec::new();
    for reason in &verdict.reasons {
        let same = |it: &Explanation| it.code == reason.code && it.message == reason.message;
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, features)) => features.push(reason.feature.name()),
            None => groups.push((reason, vec![reason.feature.name()])),
        }
    }
    for (reason, features) in groups {
        let (verb, style) = match reason {
            Explanation { warns: true, .. } => ("warning", palette.warning),
            Explanation { applied: true, .. } => ("applied", palette.added),
            _ => ("skipped", Style::new()),
        };
        let features = if features.len() == Feature::ALL.len() {
            "all features".to_owned()
        } else {
            features.join(", ")
        };
        let text = format!(
            "#   {verb}  {features}: {}: {}",
            reason.code.name(),
            reason.message
        );
        line(out, style, &text);
    }
    for miss in &verdict.near_misses {
        let NearMiss {
            object,
            field,
            value,
            place,
            reason,
            message,
        } = miss;
        let text =
            format!("#   no effect  {place}: {object}: {field}={value:?}: {reason:?}: {message}");
        line(out, palette.warning, &text);
    }
}

fn changed(out: &mut String, verdict: &Verdict, palette: Palette) -> anyhow::Result<()> {
    let source = verdict.source.to_string();
    let before = document(&verdict.before)?;
    let after = document(&verdict.after)?;
    let unified = unified(&source, &before, &after);
    for text in unified.lines() {
        line(out, palette.of_line(text), text);
    }
    Ok(())
}

fn unified(source: &str, before: &str, after: &str) -> String {
    // The heuristics of the algorithm do not always return the shortest diff, but take time proportional to the texts.
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIMEOUT)
        .diff_lines(before, after);
    let header = |state| printable(&format!("{source} ({state})")).into_owned();
    diff.unified_diff()
        .context_radius(3)
        .header(&header("before"), &header("after"))
        .to_string()
}

/// Adds the objects that are neither workloads nor Namespaces, by kind.
fn passed_over(out: &mut String, skipped: &[Skipped]) {
    let mut kinds: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for object in skipped {
        let names = kinds
            .entry((&object.kind, &object.api_version))
            .or_default();
        names.push(object.to_string());
    }
    for ((kind, version), names) in kinds {
        let shown = names.get(..NAMES_OF_A_KIND).unwrap_or(&names).join(", ");
        let more = match names.len().saturating_sub(NAMES_OF_A_KIND) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("# passed over  {kind} ({version}): {shown}{more}");
        line(out, Style::new(), &text);
    }
}

fn line(out: &mut String, style: Style, text: &str) {
    let _infallible = writeln!(out, "{style}{}{style:#}", printable(text));
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
