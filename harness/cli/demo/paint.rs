//! Colours and widths of the demo's screen.
//!
//! Invariant: colour only on a terminal that did not refuse it (`NO_COLOR`, see no-color.org); the text says
//! everything without it. No line is longer than [`WIDTH`] characters, unless it is a command to be copied.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use comfy_table::Color;

/// A screen of 100 columns, with a margin.
pub(super) const WIDTH: usize = 98;

/// Before the second line of a proof.
const MARGIN: &str = "\n       ";

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Heading,
    Good,
    Bad,
    Aside,
    Command,
}

/// Whether there is colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    pub(super) fn of_this_terminal() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self(std::io::stdout().is_terminal() && !refused && !dumb)
    }

    /// The text as this terminal shows the meaning.
    pub(super) fn text(self, meaning: Meaning, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let code = match meaning {
            Meaning::Heading => "1",
            Meaning::Good => "32",
            Meaning::Bad => "31",
            Meaning::Aside => "2",
            Meaning::Command => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// What an act has shown, below that of the act before it: a heading with who played, and a line for each proof.
pub(super) fn act(heading: &str, players: &str, proofs: &[String], paint: Paint) -> String {
    let heading = paint.text(Meaning::Heading, heading);
    let players = paint.text(Meaning::Aside, players);
    let mark = paint.text(Meaning::Good, "✓");
    let mut out = format!("\n  {heading}  {players}\n\n");
    for proof in proofs {
        let lines = wrapped(proof, WIDTH - MARGIN.len());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "     {mark} {}", lines.join(MARGIN));
    }
    out
}

/// The same for the cell of a table.
pub(super) fn colour(meaning: Meaning) -> Option<Color> {
    match meaning {
        Meaning::Good => Some(Color::DarkGreen),
        Meaning::Bad => Some(Color::DarkRed),
        Meaning::Command => Some(Color::DarkCyan),
        Meaning::Heading | Meaning::Aside => None,
    }
}

/// Breaks a text into lines of at most `width` characters: between words, else after a slash, else anywhere.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > width {
            let slash = word[..width].iter().rposition(|letter| *letter == '/');
            let rest = word.split_off(slash.map_or(width, |slash| slash + 1));
            lines.push(word.into_iter().collect());
            word = rest;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", &[])]
    #[case("a bc def", &["a bc", "def"])]
    #[case("abcdefgh ij", &["abcde", "fgh", "ij"])]
    #[case("ab abcdefg", &["ab", "abcde", "fg"])]
    #[case("äöüä öü", &["äöüä", "öü"])]
    #[case("a/b/cd/e", &["a/b/", "cd/e"])]
    fn text_is_broken_between_words(#[case] text: &str, #[case] lines: &[&str]) {
        assert_eq!(wrapped(text, 5), lines);
    }

    #[test]
    fn there_is_no_colour_unless_it_is_wanted() {
        assert_eq!(Paint(false).text(Meaning::Good, "x"), "x");
        assert!(Paint(true).text(Meaning::Good, "x").contains("x\u{1b}[0m"));
    }
}
