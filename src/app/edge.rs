//! Where texts leave the process: an error's chain is printed here, once, and a reader that went away is no error.
//!
//! Invariant: what others wrote (names, messages, file contents) reaches a terminal without control characters.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

#[cfg(test)]
mod tests;

/// Exit status of a usage error, as clap has it.
const USAGE: u8 = 2;

/// Prints an error with everything that caused it.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        // With standard error gone there is no other place for it.
        let _unheard = usage.print();
        return ExitCode::from(USAGE);
    }
    say(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

/// Prints a remark that does not stop anything.
pub(crate) fn warn(remark: &str) {
    say(&format!("warning: {remark}"));
}

/// Writes the whole result, or nothing if the caller failed before.
///
/// # Errors
/// Standard output cannot be written; a pipe that was closed (`| head`) is a reader that has seen enough.
pub(crate) fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A text whose control characters are escaped, so that it cannot steer a terminal.
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

fn say(line: &str) {
    // With standard error gone the error cannot be reported.
    let _unheard = writeln!(io::stderr(), "{}", printable(line));
}
