//! Log events as JSON objects.

use std::error::Error;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::error_chain;

/// Formats events. Requires spans that are formatted by [`JsonFields`].
pub(super) struct JsonLines;

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    level: &'static str,
    target: &'a str,
    message: Value,
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spans: Vec<Value>,
}

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = Line {
            ts: format!("{:.6}", jiff::Timestamp::now()),
            level: metadata.level().as_str(),
            target: metadata.target(),
            message: fields.message.unwrap_or_else(|| "".into()),
            fields: fields.others,
            spans: context
                .event_scope()
                .map(|scope| scope.from_root().map(|span| describe(&span)).collect())
                .unwrap_or_default(),
        };
        let text = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

fn describe<S>(span: &SpanRef<'_, S>) -> Value
where
    S: for<'l> LookupSpan<'l>,
{
    let mut fields = span
        .extensions()
        .get::<FormattedFields<JsonFields>>()
        .and_then(|formatted| serde_json::from_str::<Map<String, Value>>(&formatted.fields).ok())
        .unwrap_or_default();
    fields.insert("name".to_owned(), span.name().into());
    Value::Object(fields)
}

/// The message of an event, and its fields. The message is recorded first, so that a field of that name does not replace it.
#[derive(Default)]
struct Fields {
    message: Option<Value>,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        if field.name() == "message" && self.message.is_none() {
            self.message = Some(value.into());
        } else {
            self.others.insert(field.name().to_owned(), value.into());
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, error_chain(value));
    }
}
