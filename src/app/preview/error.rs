//! Errors of the inputs of a preview, with their positions. A run reports all errors, up to a limit.

use std::fmt;
use std::process::ExitCode;

use crate::edge;

/// Maximum number of printed errors of a run.
const MOST_PRINTED: usize = 20;

/// A file, and the line in it if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) file: String,
    pub(super) line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// All errors of the inputs.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<anyhow::Error>);

impl Errors {
    /// Returns the value of a result, or adds its errors to this list.
    pub(super) fn keep<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(errors) => {
                self.0.extend(errors.into().0);
                None
            }
        }
    }

    /// Returns the value, if there are no errors.
    pub(super) fn none_or<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// Prints the errors, each in one line.
    pub(super) fn report(self) -> ExitCode {
        let count = self.0.len();
        for error in self.0.into_iter().take(MOST_PRINTED) {
            edge::report(&error);
        }
        if let Some(more @ 1..) = count.checked_sub(MOST_PRINTED) {
            edge::report(&anyhow::anyhow!("{more} more errors"));
        }
        ExitCode::FAILURE
    }
}

impl From<anyhow::Error> for Errors {
    fn from(error: anyhow::Error) -> Self {
        Self(vec![error])
    }
}

impl From<Vec<anyhow::Error>> for Errors {
    fn from(errors: Vec<anyhow::Error>) -> Self {
        Self(errors)
    }
}

/// A text that is not valid YAML or JSON.
#[derive(Debug, thiserror::Error)]
#[error("{place}: not valid {format}: {problem}")]
pub(super) struct SyntaxError {
    pub(super) place: Place,
    /// `YAML` or `JSON`.
    pub(super) format: &'static str,
    pub(super) problem: String,
}
