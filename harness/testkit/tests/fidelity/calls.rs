//! The requests of `calls.yaml`, including those for the product's own manifests.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use clusters::workspace;
use http::Request;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::client::Body;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

pub(super) struct Call {
    pub(super) what: String,
    method: &'static str,
    pub(super) path: String,
    query: String,
    content_type: String,
    /// Body with placeholders for the UID and the version of the object in the last response.
    body: String,
    /// Whether a controller of a real cluster also writes the object.
    pub(super) has_controller: bool,
}

/// Keys of a request in the file: method, parameters after `fieldManager`, content type, and whether the body is merged into
/// the object.
const KINDS: [(&str, &str, &str, &str, bool); 7] = [
    ("get", "GET", "", "json", false),
    ("delete", "DELETE", "", "json", false),
    (
        "apply",
        "PATCH",
        "=ours&force=true",
        "apply-patch+yaml",
        true,
    ),
    ("patch", "PATCH", "=patcher", "json-patch+json", false),
    ("merge", "PATCH", "=merger", "merge-patch+json", false),
    ("put", "PUT", "=putter", "json", true),
    ("post", "POST", "=poster", "json", true),
];

impl Call {
    fn new(group: &Value, call: &Value) -> Self {
        let kind = KINDS.iter().find(|kind| call.get(kind.0).is_some());
        let &(key, method, manager, content_type, is_merged) = kind.unwrap();
        let text = |field: &str, default: &str| call[field].as_str().unwrap_or(default).to_owned();
        let mut body = call[key].clone();
        if is_merged {
            let change = std::mem::replace(&mut body, group["object"].clone());
            json_patch::merge(&mut body, &change);
        }
        let body = match &body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let query = match manager {
            "" => String::new(),
            manager => format!("fieldManager{manager}"),
        };
        let query = text("query", &query);
        let path = text("at", group["path"].as_str().unwrap_or_default());
        let is_search = key == "get" && !query.is_empty();
        Self {
            what: text("what", if is_search { &query } else { &path }),
            method,
            content_type: text("content_type", &format!("application/{content_type}")),
            body: text("text", &with_authorities(&body)),
            has_controller: call["has_controller"] == true,
            query,
            path,
        }
    }

    pub(super) fn request(&self, seen: &BTreeMap<String, Value>) -> Request<Body> {
        let metadata = seen.get(&self.path).cloned().unwrap_or_default();
        let of = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let body = self.body.replace("$UID", &of("uid"));
        let body = body.replace("$VERSION", &of("resourceVersion"));
        Request::builder()
            .method(self.method)
            .uri(format!("{}?{}", self.path, self.query))
            .header("content-type", &self.content_type)
            .body(body.into_bytes().into())
            .unwrap()
    }
}

pub(super) fn calls() -> Vec<Call> {
    let groups: Vec<Value> = serde_saphyr::from_str(include_str!("calls.yaml")).unwrap();
    let calls = |group: &Value| {
        if let Some(folder) = group["manifests"].as_str() {
            return manifests(folder);
        }
        let calls = group["calls"].as_array().unwrap().iter();
        calls.map(|call| Call::new(group, call)).collect()
    };
    groups.iter().flat_map(calls).collect()
}

/// Replaces `$ONE` and `$TWO` with certificates that are the same for both servers.
fn with_authorities(body: &str) -> String {
    static AUTHORITIES: OnceLock<[String; 2]> = OnceLock::new();
    let [one, two] = AUTHORITIES.get_or_init(|| {
        ["one", "two"].map(|name| {
            let pem = json!(testkit::pki::Authority::new(name).unwrap().pem()).to_string();
            pem.trim_matches('"').to_owned()
        })
    });
    body.replace("$ONE", one).replace("$TWO", two)
}

/// Returns two applies for each object of a folder.
fn manifests(folder: &str) -> Vec<Call> {
    let files = std::fs::read_dir(workspace::root().join(folder)).unwrap();
    let mut files: Vec<_> = files.map(|it| it.unwrap().path()).collect();
    files.sort();
    let mut calls = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in objects.into_iter().filter(|it| !it.is_null()) {
            let path = path(&object);
            let kind = object["kind"].as_str().unwrap();
            let has_controller = matches!(kind, "Deployment" | "PodDisruptionBudget");
            let group = json!({"path": path, "object": object});
            calls.extend(["first", "again"].map(|what| {
                let what = format!("{path} {what}");
                Call::new(
                    &group,
                    &json!({"what": what, "apply": {}, "has_controller": has_controller}),
                )
            }));
        }
    }
    assert!(calls.len() >= 20, "the manifests were not found");
    calls
}

fn path(object: &Value) -> String {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let collection = DynamicObject::url_path(&resource, object.metadata.namespace.as_deref());
    format!("{collection}/{}", object.name_any())
}
