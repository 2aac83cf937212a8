//! Log lines on stderr.
//!
//! JSON, one object a line: `ts` (RFC 3339, UTC), `level`, `target`, `message`, `fields`, and
//! `spans` from the outermost inwards where there are any. Product fields are nested, so a field
//! called `level` cannot shadow the line's own. Invariant: a line is one line. Deliberately
//! absent: log files, rotation, sampling, and trace export.

use std::error::Error;
use std::io;
use std::str::FromStr;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt;

use self::json::JsonLines;

mod json;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For machines.
    #[default]
    Json,
    /// For a terminal.
    Text,
}

impl FromStr for Format {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(TelemetryError::UnknownFormat(text.to_owned())),
        }
    }
}

/// Which lines are logged: a level, and levels of modules, as in `info,kube=warn`. Deliberately no more than that: spans
/// and patterns would bring a regular expression engine into the process.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl FromStr for Filter {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        let invalid = |source| TelemetryError::Filter {
            filter: text.to_owned(),
            source,
        };
        text.parse().map(Self).map_err(invalid)
    }
}

/// What to log, and how.
#[derive(Clone, Debug)]
pub struct TelemetryOptions {
    /// How a line looks.
    pub format: Format,
    /// Which lines there are.
    pub filter: Filter,
}

/// Logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The format is none of ours.
    #[error("log format {0:?}: expected json or text")]
    UnknownFormat(String),
    /// The filter does not parse.
    #[error("log filter {filter:?}: not valid")]
    Filter {
        /// What was given.
        filter: String,
        /// Where it goes wrong.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The process has a subscriber already, which stays.
    #[error("logging is already set up")]
    AlreadySetUp(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets the subscriber of the process.
///
/// # Errors
/// When a subscriber is set already, which is harmless.
pub fn init(options: TelemetryOptions) -> Result<(), TelemetryError> {
    let TelemetryOptions { format, filter } = options;
    let Filter(filter) = filter;
    let set = match format {
        Format::Json => json_lines(filter, io::stderr).try_init(),
        Format::Text => tracing_subscriber::registry()
            .with(fmt::layer().with_writer(io::stderr).with_filter(filter))
            .try_init(),
    };
    set.map_err(TelemetryError::AlreadySetUp)
}

fn json_lines<W>(filter: Targets, writer: W) -> impl SubscriberInitExt
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt::layer()
        .with_writer(writer)
        .fmt_fields(JsonFields::new())
        .event_format(JsonLines);
    tracing_subscriber::registry().with(lines.with_filter(filter))
}

/// An error and all its sources on one line, outermost first.
///
/// Foreign errors often repeat their source in their own text; such a source is not repeated.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let cause = source.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests;
