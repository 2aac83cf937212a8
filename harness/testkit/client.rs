//! Client of one API server. A response keeps its status and its `Warning` headers, which typed clients drop.
//!
//! The client does not retry, and every request has a time limit. Kinds are resolved through discovery.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use http::header::{CONTENT_TYPE, WARNING};
use http::{Method, Request, StatusCode};
use kube::Resource as _;
use kube::api::{ApiResource, DynamicObject};
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};
use serde_json::{Value, json};
use testkit::metrics::Samples;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Response of an API server.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// Object in the body, or the body as a JSON string.
    pub(crate) object: Value,
    /// Texts of the `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// Returns the response if its status is a success, and an error otherwise.
    pub(crate) fn good(self) -> Result<Self> {
        let status = self.status;
        ensure!(status.is_success(), "{status}: {}", self.message());
        Ok(self)
    }

    /// Returns the response if its status is a success, and an error that names the request otherwise. The error is one text,
    /// because cucumber does not print causes of an error.
    pub(crate) fn good_for(self, what: impl Display) -> Result<Self> {
        self.good().map_err(|error| anyhow!("{what}: {error}"))
    }

    /// Returns the value at a JSON pointer; null if it is absent.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Returns the message of the API server, or the whole body.
    pub(crate) fn message(&self) -> String {
        let message = self.at("/message").as_str().map(str::to_owned);
        message.unwrap_or_else(|| self.object.to_string())
    }
}

type Kind = (ApiResource, ApiCapabilities);

/// Client of one API server; clones share the discovered kinds.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    kinds: Arc<Mutex<Vec<Kind>>>,
}

/// Method of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// POST; fails if the object exists.
    Create,
    /// POST with dry run, which persists nothing.
    DryRun,
    /// Server-side apply with force, by the field manager `harness`.
    Apply,
    /// JSON merge patch.
    Merge,
}

impl Client {
    pub(crate) async fn with(kubeconfig: &str) -> Result<Self> {
        // A replica that is not ready responds with 503, which is a valid response here.
        let config = testkit::client_config(kubeconfig).await?;
        Ok(Self::new(kube::Client::try_from(config)?))
    }

    /// Creates a client from an existing client.
    pub fn new(inner: kube::Client) -> Self {
        Self {
            inner,
            kinds: Arc::default(),
        }
    }

    /// Sends a JSON body; for PATCH it is a merge patch. Returns also responses that are errors.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let kind = if method == Method::PATCH { MERGE } else { JSON };
        let bytes = body.map(|body| body.to_string().into_bytes());
        let sent = self.send(method, path, kind, bytes.unwrap_or_default());
        sent.await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<Answer> {
        let request = Request::builder().method(method.clone()).uri(path);
        let request = request.header(CONTENT_TYPE, kind).body(body.into())?;
        let exchange = async {
            let (parts, body) = self.inner.send(request).await?.into_parts();
            Ok((parts, body.collect_bytes().await?))
        };
        let exchanged = timeout(TIME_LIMIT, exchange).await;
        let exchanged: Result<_> = exchanged.map_err(anyhow::Error::from).flatten();
        let (parts, bytes) = exchanged.map_err(|error| anyhow!("{method} {path}: {error:#}"))?;
        let object = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        let headers = parts.headers.get_all(WARNING).iter();
        Ok(Answer {
            status: parts.status,
            object,
            warnings: headers.filter_map(|it| warning(it.as_bytes())).collect(),
        })
    }

    /// Reads an existing object or page.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        let answer = self.ask(Method::GET, path, None).await?;
        answer.good_for(path)
    }

    /// Returns the object at a path; null if it does not exist.
    pub(crate) async fn find(&self, path: &str) -> Result<Value> {
        let answer = self.ask(Method::GET, path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Value::Null);
        }
        Ok(answer.good_for(path)?.object)
    }

    /// Returns the current resource version of the API server.
    pub(crate) async fn version(&self) -> Result<String> {
        let list = self.get("/api/v1/namespaces?limit=1").await?;
        let version = list.at("/metadata/resourceVersion").as_str();
        Ok(version.context("the list has no version")?.to_owned())
    }

    /// Returns the resource version at which an object was deleted, or its deletion started, after another version.
    pub(crate) async fn deletion(&self, collection: &str, name: &str, after: &str) -> Result<u64> {
        let selector = format!("fieldSelector=metadata.name%3D{name}&resourceVersion={after}");
        let path = format!("{collection}?watch=true&timeoutSeconds=1&{selector}");
        // Each line is one event.
        for event in self.text(&path).await?.lines() {
            let event: Value = serde_json::from_str(event)?;
            let metadata = &event["object"]["metadata"];
            if event["type"] == "DELETED" || !metadata["deletionTimestamp"].is_null() {
                let version = metadata["resourceVersion"].as_str();
                return Ok(version.context("an event without a version")?.parse()?);
            }
        }
        bail!("{name} was not deleted since version {after}")
    }

    pub(crate) async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?;
        Ok(list.at("/items").as_array().cloned().unwrap_or_default())
    }

    /// Returns a page that may not be JSON.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        Ok(match self.get(path).await?.object {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// Returns the metrics of the API server.
    pub(crate) async fn metrics(&self) -> Result<Samples> {
        Ok(Samples::parse(&self.text("/metrics").await?))
    }

    pub(crate) async fn patch(&self, path: &str, changes: &Value) -> Result<Answer> {
        let answer = self.ask(Method::PATCH, path, Some(changes)).await?;
        answer.good_for(path)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let answer = self.ask(Method::DELETE, path, None).await?;
        if answer.status != StatusCode::NOT_FOUND {
            answer.good_for(path)?;
        }
        Ok(())
    }

    /// Creates a token for a ServiceAccount.
    pub(crate) async fn token(&self, namespace: &str, account: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
        });
        let asked = self.ask(Method::POST, &path, Some(&request)).await?;
        Ok(asked.good()?.at("/status/token").clone())
    }

    /// Whether a user has a permission, given as the `resourceAttributes` of a SubjectAccessReview.
    pub(crate) async fn may(&self, user: &str, what: Value) -> Result<bool> {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": what },
        });
        let asked = self.ask(Method::POST, path, Some(&review)).await?;
        Ok(*asked.good()?.at("/status/allowed") == true)
    }

    /// Writes an object with a forced server-side apply by a field manager.
    pub(crate) async fn apply(&self, manager: &str, path: &str, object: &Value) -> Result<()> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        let body = object.to_string().into_bytes();
        let applied = self.send(Method::PATCH, &path, APPLY, body);
        applied.await?.good_for(path).map(drop)
    }

    /// Writes `object`, which contains kind, name and namespace. Returns the response with any status.
    pub(crate) async fn write(&self, how: Write, object: &Value) -> Result<Answer> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let kind = text("/kind").context("the object has no kind")?;
        let name = text("/metadata/name").context("the object has no name")?;
        let collection = self.collection(kind, text("/metadata/namespace")).await?;
        let (method, path, content) = match how {
            Write::Create => (Method::POST, collection, JSON),
            Write::DryRun => (Method::POST, format!("{collection}?dryRun=All"), JSON),
            Write::Apply => {
                let path = format!("{collection}/{name}?fieldManager=harness&force=true");
                (Method::PATCH, path, APPLY)
            }
            Write::Merge => (Method::PATCH, format!("{collection}/{name}"), MERGE),
        };
        let mut object = object.clone();
        object["apiVersion"] = Value::String(self.api_version(kind).await?);
        let body = object.to_string().into_bytes();
        self.send(method, &path, content, body).await
    }

    /// Returns the path of a kind's collection, in a namespace unless the kind is cluster-scoped.
    pub(crate) async fn collection(&self, kind: &str, namespace: Option<&str>) -> Result<String> {
        let (resource, it) = self.kind(kind).await?;
        let is_namespaced = it.scope == Scope::Namespaced;
        let namespace = is_namespaced.then_some(namespace.unwrap_or("default"));
        Ok(DynamicObject::url_path(&resource, namespace))
    }

    pub(crate) async fn api_version(&self, kind: &str) -> Result<String> {
        Ok(self.kind(kind).await?.0.api_version)
    }

    /// Returns the kinds whose objects can be listed.
    pub(crate) async fn listed(&self) -> Result<impl Iterator<Item = ApiResource>> {
        let kinds = self.discover().await?.into_iter();
        let listed = kinds.filter(|(_, it)| it.supports_operation(verbs::LIST));
        Ok(listed.map(|(resource, _)| resource))
    }

    /// Returns all kinds, those of the core group first, each in its most stable version.
    async fn discover(&self) -> Result<Vec<Kind>> {
        let discovery = || Discovery::new(self.inner.clone());
        let mut found = timeout(TIME_LIMIT, discovery().run_aggregated()).await??;
        if found.groups().next().is_none() {
            // The API server in memory does not support aggregated discovery.
            found = timeout(TIME_LIMIT, discovery().run()).await??;
        }
        let mut groups: Vec<_> = found.groups().collect();
        groups.sort_by_key(|group| group.name().to_owned());
        let resources = groups.iter().map(|group| group.resources_by_stability());
        Ok(resources.flatten().collect())
    }

    /// Resolves a kind. For an unknown kind, discovery runs again.
    async fn kind(&self, name: &str) -> Result<Kind> {
        let mut kinds = self.kinds.lock().await;
        let known = |kinds: &[Kind]| kinds.iter().find(|it| it.0.kind == name).cloned();
        if let Some(kind) = known(&kinds) {
            return Ok(kind);
        }
        *kinds = self.discover().await?;
        known(&kinds).with_context(|| format!("the API server does not serve kind {name}"))
    }
}

/// Returns the text of a `Warning` header: `299 - "text"` (RFC 7234).
fn warning(header: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(header);
    let (_, quoted) = text.split_once('"')?;
    let (inner, _) = quoted.rsplit_once('"')?;
    Some(inner.replace("\\\"", "\"").replace("\\\\", "\\"))
}

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const TIME_LIMIT: Duration = Duration::from_secs(30);
