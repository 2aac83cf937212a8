//! The calls, in their order.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use harness::workspace;
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};

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

    fn post(what: &str, path: &str, body: &Value) -> Self {
        Self {
            query: "fieldManager=poster",
            body: Content::Text(body.to_string()),
            ..Self::new(what, "POST", path)
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
const CONFIG: &str = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";
const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";

pub(super) fn calls() -> Vec<Call> {
    let mut all = namespaces();
    all.extend(discovery());
    all.extend(configuration());
    all.extend(bad_bodies());
    all.extend(edits());
    all.extend(owners_rewritten());
    all.extend(posts());
    all.extend(secrets());
    all.extend(bundles());
    all.extend(manifests());
    all.extend(deployment());
    all.extend(removal());
    all
}

fn namespaces() -> Vec<Call> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": {"a": "b"}}});
    vec![
        Call::apply("a Namespace", "/api/v1/namespaces/new", OURS, &body),
        Call::apply("a Namespace again", "/api/v1/namespaces/new", OURS, &body),
        Call::new("kube-system", "GET", "/api/v1/namespaces/kube-system"),
        Call::new("an absent Namespace", "GET", "/api/v1/namespaces/absent"),
    ]
}

fn discovery() -> Vec<Call> {
    let paths = [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/certificates.k8s.io",
        "/apis/certificates.k8s.io/v1beta1",
        "/apis/policy/v1",
        "/apis/absent.example",
        "/apis/absent.example/v1",
        "/apis/apps/v9",
        "/api/v1/absents",
        "/apis/apps/v1/namespaces/kyma-system/absents/x",
    ];
    let mut calls: Vec<Call> = paths.map(|path| Call::new(path, "GET", path)).into();
    let reviews = "/apis/authorization.k8s.io/v1";
    calls.push(Call::post(
        "a review of rules",
        &format!("{reviews}/selfsubjectrulesreviews"),
        &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "kyma-system"}}),
    ));
    calls.push(Call::post(
        "a review of one right",
        &format!("{reviews}/selfsubjectaccessreviews"),
        &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "patch", "resource": "secrets"}}}),
    ));
    calls
}

fn config_map(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "rt-bootstrapper-config",
            "annotations": {"rt-bootstrapper.kyma-project.io/content-hash": "abc"},
            "labels": {"fidelity": "yes"},
        },
        "data": data,
    })
}

fn configuration() -> Vec<Call> {
    let both = config_map(&json!({"a": "1", "b": "2"}));
    let mut unmarked = config_map(&json!({"a": "1"}));
    unmarked["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    let apply =
        |what: &str, query: &'static str, body: &Value| Call::apply(what, CONFIG, query, body);
    let named = json!({"name": "rt-bootstrapper-config"});
    let theirs = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data});
    let list = |selector: &'static str| Call {
        query: selector,
        ..Call::new(selector, "GET", "/api/v1/namespaces/kyma-system/configmaps")
    };
    vec![
        Call::new("absent", "GET", CONFIG),
        Call::new("delete what is absent", "DELETE", CONFIG),
        Call::patch("patch what is absent", CONFIG, &json!([])),
        apply("made", OURS, &both),
        apply("applied again", OURS, &both),
        Call::new("read", "GET", CONFIG),
        apply(
            "one key changed",
            OURS,
            &config_map(&json!({"a": "9", "b": "2"})),
        ),
        apply("key and annotation no longer applied", OURS, &unmarked),
        apply(
            "another manager adds a key",
            THEIRS,
            &theirs(json!({"c": "3"})),
        ),
        apply(
            "another manager shares a key",
            THEIRS,
            &theirs(json!({"a": "1", "c": "3"})),
        ),
        apply(
            "conflict with the other",
            GENTLE,
            &config_map(&json!({"a": "1", "c": "4"})),
        ),
        apply(
            "two conflicts",
            THEIRS,
            &json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "rt-bootstrapper-config", "labels": {"fidelity": "no"}}, "data": {"a": "7", "c": "3"}}),
        ),
        apply("forced", OURS, &both),
        apply(
            "all taken over",
            OURS,
            &config_map(&json!({"a": "1", "b": "2", "c": "4"})),
        ),
        apply("the other lets go", THEIRS, &theirs(json!({}))),
        list("labelSelector=fidelity%3Dyes"),
        list("labelSelector=fidelity%3Dno"),
        list("fieldSelector=metadata.name%3Drt-bootstrapper-config"),
    ]
}

fn bad_bodies() -> Vec<Call> {
    let other_name =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}});
    let other_namespace = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config", "namespace": "other"}});
    let other_kind = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rt-bootstrapper-config"}});
    let numbers = config_map(&json!({"a": 1}));
    let good = config_map(&json!({}));
    let absent = CONFIG.replace("kyma-system", "absent");
    let text = |what: &str, text: &str| Call {
        body: Content::Text(text.to_owned()),
        ..Call::apply(what, CONFIG, OURS, &Value::Null)
    };
    let media_type = |content_type: &'static str| Call {
        content_type,
        ..Call::apply(content_type, CONFIG, OURS, &good)
    };
    vec![
        Call::apply("no manager", CONFIG, "force=true", &good),
        Call::apply("an absent namespace", &absent, OURS, &good),
        Call::apply(
            "no name",
            CONFIG,
            OURS,
            &json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        ),
        Call::apply("another name", CONFIG, OURS, &other_name),
        Call::apply("another namespace", CONFIG, OURS, &other_namespace),
        Call::apply("another kind", CONFIG, OURS, &other_kind),
        Call::apply("numbers for text", CONFIG, OURS, &numbers),
        text("no YAML", "{{{"),
        text("no object", "[1]"),
        text("nothing", ""),
        media_type("text/plain"),
        media_type("application/json"),
    ]
}

fn edits() -> Vec<Call> {
    let patch = |what: &str, operations: Value| Call::patch(what, CONFIG, &operations);
    let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    vec![
        patch(
            "edited",
            json!([
                test("/metadata/resourceVersion", "VERSION"),
                add("/data/a", json!("edited"))
            ]),
        ),
        patch(
            "edited to the same",
            json!([add("/data/a", json!("edited"))]),
        ),
        patch(
            "a test that fails",
            json!([test("/data/a", "other"), add("/data/a", json!("x"))]),
        ),
        patch(
            "a version that is old",
            json!([test("/metadata/resourceVersion", "1")]),
        ),
        patch(
            "a version that is claimed",
            json!([
                add("/metadata/resourceVersion", json!("1")),
                add("/data/a", json!("x"))
            ]),
        ),
        patch(
            "a place that is not there",
            json!([{"op": "remove", "path": "/data/absent"}]),
        ),
        patch("no operations", json!({"op": "add"})),
    ]
}

/// Edits of `managedFields`, as one who takes over from another manager makes them.
fn owners_rewritten() -> Vec<Call> {
    let patch = |what: &str, managers: Value| {
        let operation = json!({"op": "add", "path": "/metadata/managedFields", "value": managers});
        Call::patch(what, CONFIG, &json!([operation]))
    };
    let apply = |what: &str, data: Value| Call::apply(what, CONFIG, GENTLE, &config_map(&data));
    let ours = json!([{
        "manager": "ours", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}},
    }]);
    vec![
        patch("owners rewritten", ours),
        apply("applied over an edit", json!({"a": "1"})),
        patch("owners removed", json!([{}])),
        apply("applied where nobody owns", json!({"a": "2"})),
    ]
}

fn posts() -> Vec<Call> {
    let collection = "/api/v1/namespaces/kyma-system/configmaps";
    let posted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "posted"}, "data": {"a": "1"}});
    vec![
        Call::post("posted", collection, &posted),
        Call::post("posted again", collection, &posted),
        Call::post("posted to an object", CONFIG, &posted),
    ]
}

fn secrets() -> Vec<Call> {
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry-credentials"},
            "type": "kubernetes.io/dockerconfigjson", "data": data,
        })
    };
    let encoded = |text: &str| json!({".dockerconfigjson": BASE64.encode(text)});
    let good = secret(encoded(r#"{"auths":{"r.example":{"auth":"eDp5"}}}"#));
    let mut opaque = secret(json!({"a": "eA=="}));
    opaque.as_object_mut().unwrap().remove("type");
    let mut other_type = good.clone();
    other_type["type"] = json!("Opaque");
    let apply = |what: &str, body: &Value| Call::apply(what, SECRET, OURS, body);
    let delete = |what: &str, body: &str| Call::new(what, "DELETE", SECRET).with(body);
    vec![
        apply("without the key", &secret(json!({}))),
        apply("no JSON in it", &secret(encoded("x"))),
        apply("a list in it", &secret(encoded("[]"))),
        apply("no base64", &secret(json!({".dockerconfigjson": "%"}))),
        apply("a pull Secret", &good),
        apply("a pull Secret again", &good),
        apply("another password", &secret(encoded(r#"{"auths":{}}"#))),
        apply("another type", &other_type),
        delete(
            "deleted with another uid",
            r#"{"preconditions": {"uid": "x"}}"#,
        ),
        delete(
            "deleted with another version",
            r#"{"preconditions": {"resourceVersion": "1"}}"#,
        ),
        delete(
            "deleted with its uid",
            r#"{"preconditions": {"uid": "UID", "resourceVersion": "VERSION"}}"#,
        ),
        delete("deleted twice", ""),
        apply("type by default", &opaque),
    ]
}

fn bundles() -> Vec<Call> {
    let path = format!("{BUNDLES}/landscape");
    let bundle = |pem: &str| {
        json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "landscape"}, "spec": {"trustBundle": pem},
        })
    };
    let [one, two] = AUTHORITIES.get_or_init(|| [authority(), authority()]);
    let mut signed = bundle(one);
    signed["spec"]["signerName"] = json!("example.com/signer");
    let apply = |what: &str, body: &Value| Call::apply(what, &path, OURS, body);
    vec![
        apply("no PEM", &bundle("x")),
        apply("nothing in it", &bundle("")),
        apply("a bundle", &bundle(one)),
        apply("a bundle again", &bundle(one)),
        apply("another bundle", &bundle(&format!("{one}{two}"))),
        apply("another signer", &signed),
        Call::new("read a bundle", "GET", &path),
        Call::new("list bundles", "GET", BUNDLES),
        Call::new("delete a bundle", "DELETE", &path),
    ]
}

/// The same for both servers.
static AUTHORITIES: OnceLock<[String; 2]> = OnceLock::new();

fn authority() -> String {
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.self_signed(&rcgen::KeyPair::generate().unwrap())
        .unwrap()
        .pem()
}

/// What the product installs on a runtime, each applied twice.
fn manifests() -> Vec<Call> {
    let folder = workspace::root().join("deploy/webhook");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.sort();
    let mut calls = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in objects.into_iter().filter(|it| !it.is_null()) {
            let path = path(&object);
            let has_controller = matches!(
                object["kind"].as_str(),
                Some("Deployment" | "PodDisruptionBudget")
            );
            for what in ["first", "again"] {
                let mut call = Call::apply(&format!("{path} {what}"), &path, OURS, &object);
                call.has_controller = has_controller;
                calls.push(call);
            }
        }
    }
    assert!(calls.len() >= 20, "the manifests were not found");
    calls
}

fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let plural = match text("/kind").unwrap().to_lowercase() {
        kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        kind if kind.ends_with("ss") => format!("{kind}es"),
        kind => format!("{kind}s"),
    };
    let version = text("/apiVersion").unwrap();
    let root = if version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let namespace =
        text("/metadata/namespace").map_or_else(String::new, |it| format!("/namespaces/{it}"));
    format!(
        "{root}/{version}{namespace}/{plural}/{}",
        text("/metadata/name").unwrap()
    )
}

fn deployment() -> Vec<Call> {
    let path = "/apis/apps/v1/namespaces/kyma-system/deployments/web";
    let deployment = |image: &str, label: &str, app: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"l": label}},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": app}},
                "template": {
                    "metadata": {"labels": {"app": app}},
                    "spec": {"containers": [{
                        "name": "web", "image": image,
                        "env": [{"name": "A", "value": "1"}],
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "resources": {"limits": {"cpu": "1"}},
                    }]},
                },
            },
        })
    };
    let apply = |what: &str, body: Value| Call {
        has_controller: true,
        ..Call::apply(what, path, OURS, &body)
    };
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "template": {"spec": {"containers": [{"name": "web", "image": "x:9"}]}}}});
    vec![
        apply("a Deployment", deployment("x:1", "1", "web")),
        apply("a Deployment's label", deployment("x:1", "2", "web")),
        apply("a Deployment's image", deployment("x:2", "2", "web")),
        Call::apply("a Deployment's image by another", path, THEIRS, &theirs),
        apply("a Deployment's selector", deployment("x:2", "2", "other")),
    ]
}

fn removal() -> Vec<Call> {
    vec![
        Call::new("delete a ConfigMap", "DELETE", CONFIG),
        Call::new("it is gone", "GET", CONFIG),
        Call::apply("made anew", CONFIG, OURS, &config_map(&json!({"a": "1"}))),
    ]
}
