//! The format of a golden file, and its execution.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use watcher_types::{PathSegment, WatchEvent};

use crate::change::*;

/// A golden file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Case {
    /// Sentence that describes the behavior.
    pub(super) shows: String,
    #[serde(default)]
    pub(super) watcher: Rules,
    /// Fields of the request, without the UID and the objects.
    pub(super) request: Map<String, Value>,
    /// An object. A string is inserted into the review unchanged, so that each of its bytes is tested.
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
    /// The body of the event, if an event is sent.
    #[serde(default)]
    pub(super) sends: Option<Value>,
    /// `Code: message`, if no event is sent.
    #[serde(default)]
    pub(super) silent: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rules {
    field: String,
    resources: Vec<[String; 3]>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            field: "spec".into(),
            resources: Vec::new(),
        }
    }
}

impl Rules {
    fn watcher(&self) -> Watcher {
        Watcher {
            manager: PathSegment::parse("lifecycle-manager").unwrap(),
            field: match self.field.as_str() {
                "spec" => Field::Spec,
                "status" => Field::Status,
                other => panic!("field: {other}"),
            },
            resources: self
                .resources
                .iter()
                .map(|[group, version, resource]| ResourceRule::new(group, version, resource))
                .collect(),
        }
    }
}

impl Case {
    pub(super) fn run(&self) -> Outcome {
        let body = review(&self.request, &raw(&self.object), &raw(&self.old_object));
        let verdict = decide(&self.watcher.watcher(), body.as_bytes()).unwrap();
        assert_eq!(verdict.uid, "u-1", "the answer repeats the uid");
        verdict.outcome
    }
}

/// Returns a Watcher of all resources by `spec`, as in the public watcher.
pub(super) fn public() -> Watcher {
    Rules::default().watcher()
}

fn raw(object: &Value) -> String {
    match object {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns a review with these raw objects.
pub(super) fn review(request: &Map<String, Value>, object: &str, old_object: &str) -> String {
    let mut request = request.clone();
    request.insert("uid".into(), json!("u-1"));
    let request = Value::from(request).to_string();
    let request = request.strip_suffix('}').unwrap();
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{request},"object":{object},"oldObject":{old_object}}}}}"#
    )
}

/// Returns the result of an UPDATE of `old` to `object`.
pub(super) fn update(object: &str, old: &str) -> Outcome {
    let request = Map::from_iter([("operation".to_owned(), json!("UPDATE"))]);
    let body = review(&request, object, old);
    decide(&public(), body.as_bytes()).unwrap().outcome
}

/// Returns the event, or `Code: message`.
pub(super) fn said(outcome: &Outcome) -> Result<WatchEvent, String> {
    match outcome {
        Outcome::Send(event) => Ok(event.clone()),
        Outcome::Skip(silence) => Err(format!("{}: {silence}", silence.code())),
    }
}
