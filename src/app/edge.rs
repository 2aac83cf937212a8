//! Output of the process. The chain of an error is printed here, once. A closed output pipe is not an error.
//!
//! Invariant: external texts (names, messages, file contents) are printed without control characters.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// Exit status of a usage error, as in clap.
const USAGE: u8 = 2;

/// Prints an error with all its causes.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        // If standard error is closed, there is no other output for the error.
        let _unheard = usage.print();
        return ExitCode::from(USAGE);
    }
    say(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

/// Prints a warning.
pub(crate) fn warn(remark: &str) {
    say(&format!("warning: {remark}"));
}

/// Writes the whole result. A caller that fails before writes nothing.
///
/// # Errors
/// Standard output cannot be written. A closed pipe (`| head`) is not an error.
pub(crate) fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns a text with escaped control characters, so that it cannot control a terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|character| match character {
        control if control.is_control() => Cow::Owned(control.escape_default().to_string()),
        plain => Cow::Owned(plain.to_string()),
    });
    Cow::Owned(escaped.collect())
}

/// Returns a value as YAML, in the style of `kubectl get -o yaml`, without separators of documents.
///
/// # Errors
/// The value cannot be written as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! {
        // Folded lines are hard to compare, and kubectl does not fold either.
        folded_wrap_chars: usize::MAX,
    };
    let text = serde_saphyr::to_string_with_options(value, options);
    text.context("the result cannot be written as YAML")
}

fn say(line: &str) {
    // If standard error is closed, the error cannot be reported.
    let _unheard = writeln!(io::stderr(), "{}", printable(line));
}
