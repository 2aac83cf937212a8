//! The three forms of the result. The diff is for people, the others for programs.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::PreviewError;
use super::judgement::{Explanation, Verdict};
use super::manifest::Source;
use super::yaml;
use crate::edge::printable;

#[cfg(test)]
mod tests;

/// The colours of a diff; none where nobody could see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Palette {
    heading: Style,
    added: Style,
    removed: Style,
    hunk: Style,
    warning: Style,
}

impl Palette {
    /// Colours for people at a terminal who did not say no (`NO_COLOR`, see no-color.org).
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

    /// The style of a line of a unified diff, by what it starts with.
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

/// For programs: the shape is a promise (`{"pods":[…]}`).
pub(super) fn json(verdicts: &[Verdict]) -> Result<String, PreviewError> {
    #[derive(Serialize)]
    struct Report<'a> {
        pods: Vec<Entry<'a>>,
    }
    #[derive(Serialize)]
    struct Entry<'a> {
        source: &'a Source,
        changed: bool,
        pod: &'a Value,
        patch: &'a json_patch::Patch,
        reasons: &'a [Explanation],
    }
    let pods = verdicts.iter().map(|verdict| Entry {
        source: &verdict.source,
        changed: verdict.changed(),
        pod: &verdict.after,
        patch: &verdict.patch,
        reasons: &verdict.reasons,
    });
    let report = Report {
        pods: pods.collect(),
    };
    let mut text = serde_json::to_string_pretty(&report).map_err(PreviewError::WriteJson)?;
    text.push('\n');
    Ok(text)
}

/// The Pods as they would be admitted, changed or not.
pub(super) fn yaml(verdicts: &[Verdict]) -> Result<String, PreviewError> {
    let documents: Result<Vec<_>, _> = verdicts
        .iter()
        .map(|verdict| yaml::document(&verdict.after))
        .collect();
    Ok(documents?.join("---\n"))
}

/// For people.
pub(super) fn diff(
    verdicts: &[Verdict],
    skipped: usize,
    palette: Palette,
) -> Result<String, PreviewError> {
    let mut out = String::new();
    for verdict in verdicts {
        if verdict.changed() {
            changed(&mut out, verdict, palette)?;
        } else {
            unchanged(&mut out, verdict, palette);
        }
    }
    let changes = verdicts.iter().filter(|it| it.changed()).count();
    line(
        &mut out,
        palette.heading,
        &format!(
            "{}, {changes} would be changed; {} passed over",
            counted(verdicts.len(), "Pod"),
            counted(skipped, "other object"),
        ),
    );
    Ok(out)
}

fn changed(out: &mut String, verdict: &Verdict, palette: Palette) -> Result<(), PreviewError> {
    let source = verdict.source.to_string();
    let (before, after) = (
        yaml::document(&verdict.before)?,
        yaml::document(&verdict.after)?,
    );
    let diff = TextDiff::from_lines(&before, &after);
    let unified = diff
        .unified_diff()
        .context_radius(3)
        .header(
            &printable(&format!("{source} (as written)")),
            &printable(&format!("{source} (as admitted)")),
        )
        .to_string();
    for text in unified.lines() {
        line(out, palette.of_line(text), text);
    }
    for reason in &verdict.reasons {
        let (verb, style) = match reason {
            Explanation { warns: true, .. } => ("warning", palette.warning),
            Explanation { applied: true, .. } => ("applied", palette.added),
            _ => ("skipped", Style::new()),
        };
        let text = format!(
            "  {verb:<9}{:<26}{}: {}",
            reason.feature.name(),
            reason.code,
            reason.message
        );
        line(out, style, &text);
    }
    out.push('\n');
    Ok(())
}

/// One line: reasons that several features share are told once.
fn unchanged(out: &mut String, verdict: &Verdict, palette: Palette) {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for reason in &verdict.reasons {
        let feature = reason.feature.to_string();
        match groups.iter_mut().find(|(text, _)| *text == reason.message) {
            Some((_, features)) => features.push(feature),
            None => groups.push((&reason.message, vec![feature])),
        }
    }
    let why = groups
        .iter()
        .map(|(text, features)| format!("{text} ({})", features.join(", ")));
    let why: Vec<_> = why.collect();
    let style = if verdict.reasons.iter().any(|it| it.warns) {
        palette.warning
    } else {
        Style::new()
    };
    let text = format!("{}: unchanged: {}", verdict.source, why.join("; "));
    line(out, style, &text);
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
