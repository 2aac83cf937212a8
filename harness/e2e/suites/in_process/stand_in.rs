//! A stand-in for an API server: what the creation and the update of a Pod need of one, around the webhook's router.
//!
//! It keeps objects by path and shows the webhook the four kinds that it watches. It leaves out what is not needed for a
//! decision: defaults, validation, watches, authorization, field ownership; Namespace kube-system is excluded from
//! review, as in the product's webhook configuration. Scenarios that need more carry a tag that keeps them out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use ::webhook::admission::{AdmissionMetrics, Edge, NAMESPACE_PATIENCE, router};
use ::webhook::knowledge::{Knowledge, KnownNamespace, PullSecretSource};
use api::config::Document;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chassis::metrics::{BuildInfo, Metrics};
use e2e::admission::webhook::{self, LANDSCAPE, NAMESPACE};
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use policy::admission::{Annotations, Configuration, Namespace, Settings, TrustBundlePresence};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The stand-in; clones share its objects.
#[derive(Clone)]
pub(crate) struct StandIn {
    shared: Arc<Mutex<Objects>>,
    knowledge: Knowledge,
    webhook: Router,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Objects {
    by_path: BTreeMap<String, Value>,
    revision: u64,
}

impl StandIn {
    /// A stand-in with the usual configuration, pull Secret and trust bundle.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let build = BuildInfo {
            version: "0".into(),
            revision: "0".into(),
        };
        let mut metrics = Metrics::new("rt_bootstrapper", build);
        let knowledge = Knowledge::default();
        let edge = Edge {
            knowledge: knowledge.clone(),
            metrics: AdmissionMetrics::register(metrics.registry()),
            patience: NAMESPACE_PATIENCE,
        };
        let stand_in = Self {
            shared: Arc::default(),
            knowledge,
            webhook: router(edge),
            metrics: Arc::new(metrics),
        };
        let configuration = webhook::usual_configuration()?;
        let bundle = configuration["clusterTrustBundle"]["name"].clone();
        let auths = json!({ "registry.landscape.test:5000": {}, "ghcr.io": {}, "private.me": {} });
        let secret = BASE64.encode(json!({ "auths": auths }).to_string());
        for object in [
            json!({ "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            json!({ "kind": "Namespace", "metadata": { "name": "default" } }),
            json!({ "kind": "ConfigMap", "metadata": { "name": api::names::CONFIG_MAP, "namespace": NAMESPACE },
                    "data": { (api::names::CONFIG_KEY): configuration.to_string() } }),
            json!({ "kind": "Secret", "metadata": { "name": api::names::PULL_SECRET, "namespace": NAMESPACE },
                    "type": api::names::DOCKER_CONFIG_TYPE, "data": { (api::names::DOCKER_CONFIG_KEY): secret } }),
            json!({ "kind": "ClusterTrustBundle", "metadata": { "name": bundle } }),
            json!({ "kind": "Pod", "metadata": { "name": "webhook", "namespace": NAMESPACE } }),
        ] {
            let path = path_of(&object);
            stand_in.store(&path, Some(object));
        }
        Ok(stand_in)
    }

    /// A client of the stand-in.
    pub(crate) fn client(self) -> kube::Client {
        let answer = move |request: Request<kube::client::Body>| {
            let stand_in = self.clone();
            async move {
                let response = stand_in.answer(request).await.unwrap_or_else(|error| {
                    reply(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        &json!({ "message": format!("{error:#}") }),
                    )
                });
                Ok::<_, Infallible>(response)
            }
        };
        kube::Client::new(tower::service_fn(answer), "default")
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> anyhow::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let path = parts.uri.path();
        let query = parts.uri.query().unwrap_or_default();
        if let Some((_, inner)) = path.split_once("/proxy/") {
            return self.proxy(path, inner, body).await;
        }
        match (parts.method.clone(), path) {
            (_, "/api" | "/apis") => Ok(reply(StatusCode::OK, &discovery(path))),
            // The router always answers, so nothing is ever admitted without it.
            (_, "/metrics") => Ok(Response::new(Body::empty())),
            (Method::GET, _) => Ok(self.read(path)),
            (Method::POST, _) => {
                let object = serde_json::from_slice(&body)?;
                self.create(object, query.contains("dryRun=All")).await
            }
            (Method::DELETE, _) => {
                let object = self.get(path);
                self.store(path, None);
                Ok(found(object))
            }
            (method, _) => {
                let sent: Value = serde_json::from_slice(&body)?;
                self.change(&method, path, sent).await
            }
        }
    }

    fn read(&self, path: &str) -> Response<Body> {
        if path == format!("/api/v1/namespaces/{NAMESPACE}/pods") {
            let replica = self.get(&format!("{path}/webhook"));
            return reply(StatusCode::OK, &json!({ "items": [replica] }));
        }
        if path.ends_with("/serviceaccounts/default") {
            return reply(StatusCode::OK, &json!({}));
        }
        found(self.get(path))
    }

    async fn create(&self, mut object: Value, dry_run: bool) -> anyhow::Result<Response<Body>> {
        let mut warnings = Vec::new();
        if object["kind"] == "Pod" {
            (object, warnings) = self.admit(object, None).await?;
        }
        let path = path_of(&object);
        if dry_run {
            return Ok(with_warnings(StatusCode::CREATED, &object, &warnings));
        }
        self.store(&path, Some(object));
        let stored = self.get(&path).unwrap_or_default();
        Ok(with_warnings(StatusCode::CREATED, &stored, &warnings))
    }

    async fn change(
        &self,
        method: &Method,
        path: &str,
        sent: Value,
    ) -> anyhow::Result<Response<Body>> {
        let (path, is_subresource) = match path.strip_suffix("/ephemeralcontainers") {
            Some(pod) => (pod, true),
            None => (path, false),
        };
        let before = self.get(path);
        let mut after = sent.clone();
        if *method == Method::PATCH
            && let Some(before) = &before
        {
            after = before.clone();
            json_patch::merge(&mut after, &sent);
        }
        let mut warnings = Vec::new();
        if after["kind"] == "Pod"
            && let Some(before) = &before
            && (is_subresource || before["spec"] != after["spec"])
        {
            (after, warnings) = self.admit(after, Some(before)).await?;
        }
        self.store(path, Some(after));
        let stored = self.get(path).unwrap_or_default();
        Ok(with_warnings(StatusCode::OK, &stored, &warnings))
    }

    /// Sends a Pod to the webhook and applies its patch.
    async fn admit(
        &self,
        mut pod: Value,
        before: Option<&Value>,
    ) -> anyhow::Result<(Value, Vec<String>)> {
        let namespace = pod["metadata"]["namespace"].as_str();
        let namespace = namespace.unwrap_or("kube-system").to_owned();
        if namespace == "kube-system" {
            return Ok((pod, Vec::new()));
        }
        let mut review = webhook::review("stand-in", &namespace, &pod);
        if let Some(before) = before {
            review["request"]["operation"] = json!("UPDATE");
            review["request"]["oldObject"] = before.clone();
            if before["spec"]["ephemeralContainers"] != pod["spec"]["ephemeralContainers"] {
                review["request"]["subResource"] = json!("ephemeralcontainers");
            }
        }
        let request =
            Request::post(api::names::WEBHOOK_PATH).body(Body::from(review.to_string()))?;
        let response = self.webhook.clone().oneshot(request).await?;
        let bytes = to_bytes(response.into_body(), usize::MAX).await?;
        let answer: Value = serde_json::from_slice(&bytes)?;
        let response = &answer["response"];
        anyhow::ensure!(response["allowed"] == true, "denied: {answer}");
        if let Some(patch) = response["patch"].as_str() {
            let patch: json_patch::Patch = serde_json::from_slice(&BASE64.decode(patch)?)?;
            json_patch::patch(&mut pod, &patch)?;
        }
        let warnings = response["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.filter_map(|it| it.as_str().map(str::to_owned));
        Ok((pod, warnings.collect()))
    }

    /// The ports of the webhook's Pod.
    async fn proxy(&self, path: &str, inner: &str, body: Bytes) -> anyhow::Result<Response<Body>> {
        if path.contains(":8080/") {
            return Ok(Response::new(Body::from(self.metrics.encode()?)));
        }
        if path.contains(":8081/") {
            return Ok(Response::new(Body::from("ok")));
        }
        let request = Request::post(format!("/{inner}")).body(Body::from(body))?;
        Ok(self.webhook.clone().oneshot(request).await?)
    }

    fn get(&self, path: &str) -> Option<Value> {
        let objects = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        objects.by_path.get(path).cloned()
    }

    /// Stores or deletes an object and shows it to the webhook.
    fn store(&self, path: &str, object: Option<Value>) {
        let mut objects = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        objects.revision += 1;
        let revision = objects.revision.to_string();
        let stored = object.map(|mut object| {
            object["metadata"]["resourceVersion"] = json!(revision);
            object
        });
        let last = match &stored {
            Some(object) => objects.by_path.insert(path.to_owned(), object.clone()),
            None => objects.by_path.remove(path),
        };
        drop(objects);
        let Some(known) = stored.as_ref().or(last.as_ref()) else {
            return;
        };
        self.show(&known["kind"], &known["metadata"]["name"], stored.as_ref());
    }

    fn show(&self, kind: &Value, name: &Value, object: Option<&Value>) {
        let name = name.as_str().unwrap_or_default();
        match kind.as_str() {
            Some("Namespace") => self.knowledge.set_namespace(name, object.map(namespace)),
            Some("ConfigMap") => {
                let document = object.and_then(|it| it["data"][api::names::CONFIG_KEY].as_str());
                if let Some(configuration) = document.and_then(configuration) {
                    self.knowledge.set_configuration(Arc::new(configuration));
                }
            }
            Some("Secret") => self.knowledge.set_pull_secret(pull_secret(object)),
            Some("ClusterTrustBundle") => self.knowledge.set_trust_bundle(match object {
                Some(_) => TrustBundlePresence::Present,
                None => TrustBundlePresence::Absent,
            }),
            _ => {}
        }
    }
}

fn namespace(object: &Value) -> KnownNamespace {
    let entries = |field: &str| -> BTreeMap<String, String> {
        let map = object["metadata"][field].as_object().into_iter().flatten();
        map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    let annotations = entries("annotations");
    let annotations = annotations.iter().map(|(key, value)| (&**key, &**value));
    KnownNamespace {
        view: Namespace {
            annotations: Annotations::collect(annotations),
            labels: entries("labels"),
        },
        terminating: false,
    }
}

fn configuration(document: &str) -> Option<Configuration> {
    let settings = Settings {
        landscape: Some(LANDSCAPE.to_owned()),
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(document).ok()?;
    Configuration::new(&document, &settings).ok()
}

fn pull_secret(object: Option<&Value>) -> PullSecretSource {
    let secret: Option<Secret> = object.and_then(|it| serde_json::from_value(it.clone()).ok());
    let Some(secret) = secret else {
        return PullSecretSource::default();
    };
    match PullSecretSource::read(&secret) {
        Ok(source) => source,
        Err(error) => PullSecretSource::unusable(&secret.metadata, &error),
    }
}

/// Kind, plural, whether it has a namespace.
const KINDS: [(&str, &str, bool); 5] = [
    ("ConfigMap", "configmaps", true),
    ("Namespace", "namespaces", false),
    ("Pod", "pods", true),
    ("Secret", "secrets", true),
    ("ClusterTrustBundle", "clustertrustbundles", false),
];
const BUNDLES: &str = "certificates.k8s.io";

fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let plural = KINDS.iter().find(|it| it.0 == kind).map_or("", |it| it.1);
    let namespace = text(&object["metadata"]["namespace"]);
    match kind.as_str() {
        "ClusterTrustBundle" => format!("/apis/{BUNDLES}/v1beta1/{plural}/{name}"),
        "Namespace" => format!("/api/v1/{plural}/{name}"),
        _ => format!("/api/v1/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// The aggregated discovery document of the core group (`/api`) or the others (`/apis`).
fn discovery(path: &str) -> Value {
    let (group, version) = if path == "/api" {
        ("", "v1")
    } else {
        (BUNDLES, "v1beta1")
    };
    let resources = KINDS
        .iter()
        .filter(|(kind, ..)| (*kind == "ClusterTrustBundle") == (path == "/apis"));
    let resources: Vec<Value> = resources
        .map(|(kind, plural, namespaced)| {
            json!({
                "resource": plural, "singularResource": "", "verbs": ["get"],
                "responseKind": { "group": group, "version": version, "kind": kind },
                "scope": if *namespaced { "Namespaced" } else { "Cluster" },
            })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{ "metadata": { "name": group }, "versions": [{ "version": version, "resources": resources }] }],
    })
}

fn found(object: Option<Value>) -> Response<Body> {
    match object {
        Some(object) => reply(StatusCode::OK, &object),
        None => reply(StatusCode::NOT_FOUND, &json!({ "message": "not found" })),
    }
}

fn reply(status: StatusCode, object: &Value) -> Response<Body> {
    with_warnings(status, object, &[])
}

fn with_warnings(status: StatusCode, object: &Value, warnings: &[String]) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        response = response.header(http::header::WARNING, format!("299 - \"{quoted}\""));
    }
    let body = Body::from(object.to_string());
    response.body(body).unwrap_or_default()
}
