//! The calls, in their order.

mod configuration;
mod content;
mod discovery;
mod installation;
mod lifecycle;

use std::collections::BTreeMap;

use http::Request;
use kube::client::Body;
use serde_json::Value;

/// One request.
pub(super) struct Call {
    pub(super) what: String,
    method: &'static str,
    pub(super) path: String,
    query: &'static str,
    content_type: &'static str,
    body: Content,
    /// Whether a controller of a real cluster writes the object too.
    pub(super) has_controller: bool,
}

enum Content {
    Text(String),
    /// With the object's uid and version of the last answer in the places of `UID` and `VERSION`.
    Seen(String),
}

impl Call {
    fn new(what: &str, method: &'static str, path: &str) -> Self {
        Self {
            what: what.to_owned(),
            method,
            path: path.to_owned(),
            query: "",
            content_type: "application/json",
            body: Content::Text(String::new()),
            has_controller: false,
        }
    }

    fn apply(what: &str, path: &str, query: &'static str, body: &Value) -> Self {
        Self {
            query,
            content_type: "application/apply-patch+yaml",
            body: Content::Text(body.to_string()),
            ..Self::new(what, "PATCH", path)
        }
    }

    fn patch(what: &str, path: &str, operations: &Value) -> Self {
        Self {
            query: "fieldManager=patcher",
            content_type: "application/json-patch+json",
            body: Content::Seen(operations.to_string()),
            ..Self::new(what, "PATCH", path)
        }
    }

    fn merge(what: &str, path: &str, change: &Value) -> Self {
        Self {
            query: "fieldManager=merger",
            content_type: "application/merge-patch+json",
            body: Content::Seen(change.to_string()),
            ..Self::new(what, "PATCH", path)
        }
    }

    fn put(what: &str, path: &str, object: &Value) -> Self {
        Self {
            query: "fieldManager=putter",
            body: Content::Seen(object.to_string()),
            ..Self::new(what, "PUT", path)
        }
    }

    fn post(what: &str, path: &str, body: &Value) -> Self {
        Self {
            query: "fieldManager=poster",
            body: Content::Text(body.to_string()),
            ..Self::new(what, "POST", path)
        }
    }

    /// Controllers of a real cluster write the object too.
    fn of_controllers(self) -> Self {
        Self {
            has_controller: true,
            ..self
        }
    }

    fn with(self, body: &str) -> Self {
        Self {
            body: Content::Seen(body.to_owned()),
            ..self
        }
    }

    pub(super) fn request(&self, seen: &BTreeMap<String, Value>) -> Request<Body> {
        let body = match &self.body {
            Content::Text(text) => text.clone(),
            Content::Seen(text) => {
                let metadata = seen.get(&self.path).cloned().unwrap_or_default();
                let of = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
                text.replace("UID", &of("uid"))
                    .replace("VERSION", &of("resourceVersion"))
            }
        };
        Request::builder()
            .method(self.method)
            .uri(format!("{}?{}", self.path, self.query))
            .header("content-type", self.content_type)
            .body(body.into_bytes().into())
            .unwrap()
    }
}

const OURS: &str = "fieldManager=ours&force=true";
const GENTLE: &str = "fieldManager=ours";
const THEIRS: &str = "fieldManager=theirs";

pub(super) fn calls() -> Vec<Call> {
    let mut all = discovery::namespaces();
    all.extend(discovery::discovery());
    all.extend(configuration::configuration());
    all.extend(configuration::bad_bodies());
    all.extend(configuration::edits());
    all.extend(configuration::owners_rewritten());
    all.extend(configuration::posts());
    all.extend(content::secrets());
    all.extend(content::bundles());
    all.extend(installation::manifests());
    all.extend(installation::deployment());
    all.extend(configuration::removal());
    all.extend(lifecycle::replacements());
    all.extend(lifecycle::merge_patches());
    all.extend(lifecycle::status());
    all.extend(lifecycle::finalizers());
    all.extend(lifecycle::pages_and_selectors());
    all.extend(lifecycle::terminating_namespace());
    all
}
