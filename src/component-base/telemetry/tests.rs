use std::sync::{Arc, Mutex};

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the messages that a function logs, with the time removed after it was parsed.
fn lines_of(filter: &str, code: impl FnOnce()) -> Vec<Value> {
    let captured = Captured::default();
    let writer = captured.clone();
    let Filter(filter) = filter.parse().unwrap();
    let subscriber = json_lines(filter, move || writer.clone());
    {
        let _guard = subscriber.set_default();
        code();
    }
    let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    text.lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let ts = line.as_object_mut().unwrap().remove("ts").unwrap();
            let ts: jiff::Timestamp = ts.as_str().unwrap().parse().unwrap();
            assert!(ts.duration_since(jiff::Timestamp::now()).as_secs().abs() < 60);
            line
        })
        .collect()
}

#[derive(Debug, thiserror::Error)]
#[error("the outer\nfailed")]
struct Outer(#[source] io::Error);

#[test]
fn a_line_has_message_and_typed_fields() {
    let lines = lines_of("info", || {
        let error = Outer(io::Error::other("disk full"));
        tracing::warn!(
            target: "component_base::test",
            count = 3,
            ratio = 0.5,
            dry_run = true,
            level = "shadow",
            name = ?"quoted",
            error = &error as &dyn Error,
            "it {}\nwent", "all"
        );
    });
    assert_eq!(
        lines,
        [json!({
            "level": "WARN",
            "target": "component_base::test",
            "message": "it all\nwent",
            "fields": {
                "count": 3, "ratio": 0.5, "dry_run": true, "level": "shadow",
                "name": "\"quoted\"", "error": "the outer\nfailed: disk full",
            },
        })]
    );
}

#[test]
fn a_field_that_is_named_message_does_not_replace_the_message() {
    let lines = lines_of("info", || {
        tracing::info!(target: "t", runtime = "a", message = "of a condition", "condition changed");
    });
    assert_eq!(
        lines,
        [json!({
            "level": "INFO", "target": "t", "message": "condition changed",
            "fields": {"runtime": "a", "message": "of a condition"},
        })]
    );
}

/// The client of kube logs a response that it cannot parse.
#[rstest]
#[case::all("trace")]
#[case::the_example_of_the_reference("info,kube=warn")]
#[case::the_crate("kube_client=trace")]
#[case::the_module("info,kube_client::client=trace")]
fn no_filter_lets_a_response_of_the_api_server_into_the_log(#[case] filter: &str) {
    let lines = lines_of(filter, || {
        tracing::warn!(target: "kube_client::client", "{}, {:?}", "a Secret", "not JSON");
        tracing::error!(target: "kube_client::client", "failed");
    });
    let messages: Vec<_> = lines.iter().map(|it| &it["message"]).collect();
    assert_eq!(messages, ["failed"]);
}

#[test]
fn spans_are_logged_from_the_outermost_to_the_innermost() {
    let lines = lines_of("info", || {
        let _outer = tracing::info_span!("review", uid = "u1").entered();
        let _inner = tracing::info_span!("decide").entered();
        tracing::info!(target: "t", "done");
    });
    assert_eq!(
        lines,
        [json!({
            "level": "INFO", "target": "t", "message": "done",
            "spans": [{"name": "review", "uid": "u1"}, {"name": "decide"}],
        })]
    );
}

#[test]
fn the_filter_decides() {
    let lines = lines_of("warn,loud=debug", || {
        tracing::info!(target: "quiet", "no");
        tracing::debug!(target: "loud", "yes");
    });
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["message"], "yes");
}

#[test]
fn a_second_set_up_is_an_error_and_no_panic() {
    let filter: Filter = "error".parse().unwrap();
    // The first call may find the subscriber of a test harness. In any case the second call is rejected.
    let _ = init(Format::Json, filter.clone());
    let second = init(Format::Json, filter);
    assert!(matches!(second, Err(TelemetryError::AlreadySetUp(_))));
}

#[test]
fn a_filter_that_does_not_parse_is_named() {
    let refused = "component_base=loudest".parse::<Filter>();
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "log filter \"component_base=loudest\": not valid");
}

#[rstest]
#[case("json", Some(Format::Json))]
#[case("text", Some(Format::Text))]
#[case("JSON", None)]
#[case("", None)]
fn formats_have_names(#[case] text: &str, #[case] expected: Option<Format>) {
    assert_eq!(text.parse().ok(), expected);
}

#[derive(Debug, thiserror::Error)]
#[error("cannot list: {0}")]
struct Repeating(#[source] io::Error);

#[test]
fn a_source_that_the_outer_text_repeats_is_logged_once() {
    let error = Repeating(io::Error::other("refused"));
    assert_eq!(error_chain(&error), "cannot list: refused");
}
