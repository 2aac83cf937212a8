//! A stand-in for a cluster with the webhook: testkit's API server, and the webhook's router between it and the clients that
//! write Pods.
//!
//! The webhook's four kinds of objects are updated after each write, without a watch. Admission is limited to the parts that a
//! decision needs: the review, its patch and its warnings. Namespace kube-system is excluded, as in the product's webhook
//! configuration, but match conditions are not evaluated. Responses to dry runs lack the API server's defaults. Scenarios that
//! need more have a tag that excludes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::webhook::admission::{AdmissionMetrics, router};
use ::webhook::snapshot::{KnownNamespace, PullSecretSource, SnapshotStore};
use anyhow::{Result, ensure};
use api::config::Document;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use component_base::metrics::{BuildInfo, Metrics};
use e2e::admission::webhook::{self, LANDSCAPE, NAMESPACE, TRUST_BUNDLE};
use http::request::Parts;
use http::{Method, Request, Response, header};
use k8s_openapi::api::core::v1::Secret;
use policy::admission::{Annotations, Configuration, Namespace, Settings, TrustBundlePresence};
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use testkit::pki::Authority;
use tower::ServiceExt as _;

/// The stand-in; clones share its objects.
#[derive(Clone)]
pub(crate) struct StandIn {
    server: ApiServer,
    snapshots: SnapshotStore,
    webhook: Router,
    metrics: Arc<Metrics>,
}

impl StandIn {
    /// Returns a stand-in with the usual configuration, pull Secret and trust bundle.
    pub(crate) fn start() -> Result<Self> {
        let build = BuildInfo {
            version: "0".into(),
            revision: "0".into(),
        };
        let mut metrics = Metrics::new("rt_bootstrapper", build);
        let snapshots = SnapshotStore::default();
        let admission = AdmissionMetrics::register(metrics.registry());
        let stand_in = Self {
            server: ApiServer::new(),
            webhook: router(snapshots.clone(), admission),
            snapshots,
            metrics: Arc::new(metrics),
        };
        let auths = json!({ "auths": { "registry.landscape.test:5000": {} } });
        let sources = webhook::sources(auths, Authority::new("trust bundle")?.pem())?;
        let labels = json!({ "app.kubernetes.io/name": "rt-bootstrapper", "control-plane": "controller-manager" });
        let pod = json!({ "name": "webhook", "namespace": NAMESPACE, "labels": labels });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": pod });
        for object in sources.iter().chain([&pod]) {
            stand_in.server.put(object);
        }
        stand_in.show();
        Ok(stand_in)
    }

    /// Returns a client of the stand-in.
    pub(crate) fn client(self) -> kube::Client {
        let answer = move |request| {
            let stand_in = self.clone();
            async move { stand_in.answer(request).await }
        };
        kube::Client::new(tower::service_fn(answer), "default")
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let mut body = body.collect_bytes().await?;
        let path = parts.uri.path().to_owned();
        if let Some((_, inner)) = path.split_once("/proxy/") {
            return self.proxy(&path, inner, body).await;
        }
        if path == "/metrics" || path.ends_with("/serviceaccounts/default") {
            // The router always responds, so no object is admitted without a review.
            return Ok(Response::new(Body::from("")));
        }
        let mut warnings = Vec::new();
        let writes = matches!(parts.method, Method::POST | Method::PATCH | Method::PUT);
        if writes && path.contains("/pods") {
            let sent = serde_json::from_slice(&body)?;
            let (pod, given) = self.admit(&parts, sent).await?;
            (warnings, body) = (given, pod.to_string().into());
            if parts.uri.query() == Some("dryRun=All") {
                return Ok(with_warnings(Response::new(Body::from(body)), &warnings));
            }
            if parts.method == Method::PATCH {
                parts.method = Method::PUT;
                parts.uri = path.trim_end_matches("/ephemeralcontainers").parse()?;
            }
        }
        let request = Request::from_parts(parts, Body::from(body));
        let answer = self.server.answer(request).await?;
        self.show();
        Ok(with_warnings(answer.map(Body::new), &warnings))
    }

    /// Returns the Pod that the API server stores for a request, and the warnings of the webhook.
    async fn admit(&self, parts: &Parts, mut pod: Value) -> Result<(Value, Vec<String>)> {
        // The path is /api/v1/namespaces/NAMESPACE/pods/NAME.
        let mut names = parts.uri.path().split('/').skip(4);
        let namespace = names.next().unwrap_or_default();
        let get = |name| self.server.get("pods", namespace, name);
        let before = names.nth(1).and_then(get);
        if let Some(before) = &before
            && parts.method == Method::PATCH
        {
            let change = std::mem::replace(&mut pod, before.clone());
            json_patch::merge(&mut pod, &change);
        }
        pod["metadata"]["namespace"] = json!(namespace);
        if namespace == "kube-system" {
            return Ok((pod, Vec::new()));
        }
        let mut review = webhook::review("stand-in", namespace, &pod);
        if let Some(before) = before {
            review["request"]["operation"] = json!("UPDATE");
            if before["spec"]["ephemeralContainers"] != pod["spec"]["ephemeralContainers"] {
                review["request"]["subResource"] = json!("ephemeralcontainers");
            }
            review["request"]["oldObject"] = before;
        }
        let request = Request::post(api::names::WEBHOOK_PATH);
        let request = request.body(Body::from(review.to_string()))?;
        let response = self.webhook.clone().oneshot(request).await?;
        let bytes = to_bytes(response.into_body(), usize::MAX).await?;
        let answer: Value = serde_json::from_slice(&bytes)?;
        let response = &answer["response"];
        ensure!(response["allowed"] == true, "denied: {answer}");
        if let Some(encoded) = response["patch"].as_str() {
            let operations: json_patch::Patch = serde_json::from_slice(&BASE64.decode(encoded)?)?;
            json_patch::patch(&mut pod, &operations)?;
        }
        let warnings = response["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.filter_map(|it| it.as_str().map(str::to_owned));
        Ok((pod, warnings.collect()))
    }

    /// Responds for the ports of the webhook's Pod.
    async fn proxy(&self, path: &str, inner: &str, body: Bytes) -> Result<Response<Body>> {
        if path.contains(":8080/") {
            return Ok(Response::new(Body::from(self.metrics.encode()?)));
        }
        if path.contains(":8081/") {
            return Ok(Response::new(Body::from("ok")));
        }
        let request = Request::post(format!("/{inner}")).body(Body::from(body))?;
        Ok(self.webhook.clone().oneshot(request).await?)
    }

    /// Updates the webhook's view of the objects.
    fn show(&self) {
        for place in self.server.store().places() {
            if place.resource == "namespaces" {
                let found = self.server.get("namespaces", "", &place.name);
                let known = found.as_ref().map(namespace);
                self.snapshots.set_namespace(&place.name, known);
            }
        }
        let (map, key) = (api::names::CONFIG_MAP, api::names::CONFIG_KEY);
        let map = self.server.get("configmaps", NAMESPACE, map);
        let document = map.as_ref().and_then(|it| it["data"][key].as_str());
        if let Some(configuration) = document.and_then(configuration) {
            let name = configuration.pull_secret().name.clone();
            self.snapshots.set_configuration(Arc::new(configuration));
            let secret = self.server.get("secrets", NAMESPACE, &name);
            self.snapshots.set_pull_secret(pull_secret(&name, secret));
        }
        let bundle = self.server.get("clustertrustbundles", "", TRUST_BUNDLE);
        self.snapshots.set_trust_bundle(match bundle {
            Some(_) => TrustBundlePresence::Present,
            None => TrustBundlePresence::Absent,
        });
    }
}

fn namespace(object: &Value) -> KnownNamespace {
    let entries = |field: &str| -> BTreeMap<String, String> {
        serde_json::from_value(object["metadata"][field].clone()).unwrap_or_default()
    };
    let annotations = entries("annotations");
    let annotations = annotations.iter().map(|(key, value)| (&**key, &**value));
    KnownNamespace {
        view: Namespace {
            annotations: Annotations::collect(annotations),
            labels: entries("labels"),
        },
        ..KnownNamespace::default()
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

fn pull_secret(name: &str, object: Option<Value>) -> PullSecretSource {
    let secret: Option<Secret> = object.and_then(|it| serde_json::from_value(it).ok());
    let Some(secret) = secret else {
        return PullSecretSource::absent(name);
    };
    PullSecretSource::read(&secret)
        .unwrap_or_else(|error| PullSecretSource::unusable(&secret.metadata, &error))
}

fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let value = format!("299 - \"{quoted}\"").parse();
        let header = value.ok().map(|value| (header::WARNING, value));
        response.headers_mut().extend(header);
    }
    response
}
