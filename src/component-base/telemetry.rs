//! Log messages on stderr.
//!
//! In JSON, each line is an object with `ts` (RFC 3339, UTC), `level`, `target`, `message`, `fields`, and `spans` from
//! the outermost to the innermost, if any. Fields of a message are nested, so that a field `level` does not hide the
//! level of the line. Invariant: an event is one line. Not in here: log files, rotation, sampling and trace export.

use std::error::Error;
use std::io;
use std::str::FromStr;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt;

use self::json::JsonLines;
pub use self::limit::LogLimit;

mod json;
mod limit;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// JSON objects.
    #[default]
    Json,
    /// Text for terminals.
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

/// The module of the client of kube that logs a whole response, including Secrets, at level `warn` if it cannot parse it.
const KUBE_CLIENT: &str = "kube_client::client";

/// Filter of logged events: a level, and levels of modules, as in `info,kube=warn`. Spans and patterns are not supported,
/// because they would need a regular expression engine. For the module that logs responses of the API server, only errors
/// are logged, independent of the filter.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl FromStr for Filter {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        let invalid = |source| TelemetryError::Filter {
            filter: text.to_owned(),
            source,
        };
        let targets: Targets = text.parse().map_err(invalid)?;
        Ok(Self(targets.with_target(KUBE_CLIENT, LevelFilter::ERROR)))
    }
}

/// Reason why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The format is unknown.
    #[error("log format {0:?}: expected json or text")]
    UnknownFormat(String),
    /// The filter is invalid.
    #[error("log filter {filter:?}: not valid")]
    Filter {
        /// The filter.
        filter: String,
        /// The cause.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The process already has a subscriber, which is kept.
    #[error("logging is already set up")]
    AlreadySetUp(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets the subscriber of the process.
///
/// # Errors
/// A subscriber is already set; it is kept.
pub fn init(format: Format, Filter(filter): Filter) -> Result<(), TelemetryError> {
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

/// Returns an error and all its sources in one line, outermost first.
///
/// Errors of some libraries contain the text of their source. Such a source is not repeated.
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
