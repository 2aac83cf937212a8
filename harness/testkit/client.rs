//! Client of one API server for objects of any kind. A response keeps its status and its `Warning` headers, which typed clients
//! drop.
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
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Discovery, Scope, pinned_kind, verbs};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::json::text;
use crate::metrics::Samples;

/// Response of an API server.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status of the response.
    pub status: StatusCode,
    /// Object in the body, or the body as a JSON string.
    pub object: Value,
    /// Texts of the `Warning` headers.
    pub warnings: Vec<String>,
}

impl Answer {
    /// Returns the response if its status is a success, and a [`Rejected`] otherwise.
    pub fn good(self) -> Result<Self> {
        let status = self.status;
        ensure!(status.is_success(), Rejected(status, self.message()));
        Ok(self)
    }

    /// Returns the response if its status is a success, and an error that names the request otherwise. The error is one text,
    /// because cucumber does not print causes of an error.
    pub fn good_for(self, what: impl Display) -> Result<Self> {
        self.good().map_err(|error| anyhow!("{what}: {error}"))
    }

    /// Returns the value at a JSON pointer; null if it is absent.
    pub fn at(&self, pointer: &str) -> &Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Returns the message of the API server, or the whole body.
    pub fn message(&self) -> String {
        let message = self.at("/message").as_str().map(str::to_owned);
        message.unwrap_or_else(|| self.object.to_string())
    }
}

/// Error status of an API server, and its message.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct Rejected(pub StatusCode, pub String);

type Kind = (ApiResource, ApiCapabilities);

/// Field manager of the objects that the harness applies.
pub const MANAGER: &str = "harness";

/// Client of one API server; clones share the discovered kinds.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    /// The most stable version of each kind.
    kinds: Arc<Mutex<Vec<Kind>>>,
    /// Kinds in the version of an object.
    pinned: Arc<Mutex<Vec<Kind>>>,
}

/// Method of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// POST; fails if the object exists.
    Create,
    /// POST with dry run, which persists nothing.
    DryRun,
    /// Server-side apply with force, by the field manager [`MANAGER`].
    Apply,
    /// JSON merge patch.
    Merge,
}

impl Client {
    /// Creates a client for the cluster of a kubeconfig.
    pub async fn with(kubeconfig: &str) -> Result<Self> {
        // A replica that is not ready responds with 503, which is a valid response here.
        let config = crate::client_config(kubeconfig).await?;
        Ok(Self::new(kube::Client::try_from(config)?))
    }

    /// Creates a client from an existing client.
    pub fn new(inner: kube::Client) -> Self {
        Self {
            inner,
            kinds: Arc::default(),
            pinned: Arc::default(),
        }
    }

    /// Returns the client that sends the requests.
    pub fn inner(&self) -> kube::Client {
        self.inner.clone()
    }

    /// Sends a JSON body; for PATCH it is a merge patch. Returns also responses that are errors.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let kind = if method == Method::PATCH { MERGE } else { JSON };
        let bytes = body.map(|body| body.to_string().into_bytes());
        let sent = self.send(method, path, kind, bytes.unwrap_or_default());
        sent.await
    }

    /// Sends a body of a media type. Returns also responses that are errors.
    pub async fn send(
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
    pub async fn get(&self, path: &str) -> Result<Answer> {
        let answer = self.ask(Method::GET, path, None).await?;
        answer.good_for(path)
    }

    /// Returns the object at a path; null if it does not exist.
    pub async fn find(&self, path: &str) -> Result<Value> {
        let answer = self.ask(Method::GET, path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Value::Null);
        }
        Ok(answer.good_for(path)?.object)
    }

    /// Returns the current resource version of the API server.
    pub async fn version(&self) -> Result<String> {
        let list = self.get("/api/v1/namespaces?limit=1").await?;
        let version = list.at("/metadata/resourceVersion").as_str();
        Ok(version.context("the list has no version")?.to_owned())
    }

    /// Returns the resource version at which an object was deleted, or its deletion started, after another version.
    pub async fn deletion(&self, collection: &str, name: &str, after: &str) -> Result<u64> {
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

    /// Returns the items of a list.
    pub async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?;
        Ok(list.at("/items").as_array().cloned().unwrap_or_default())
    }

    /// Returns a page that may not be JSON.
    pub async fn text(&self, path: &str) -> Result<String> {
        Ok(match self.get(path).await?.object {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// Returns the metrics of the API server.
    pub async fn metrics(&self) -> Result<Samples> {
        Ok(Samples::parse(&self.text("/metrics").await?))
    }

    /// Sends a JSON merge patch.
    pub async fn patch(&self, path: &str, changes: &Value) -> Result<Answer> {
        let answer = self.ask(Method::PATCH, path, Some(changes)).await?;
        answer.good_for(path)
    }

    /// Deletes an object. An object that does not exist is not an error.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let answer = self.ask(Method::DELETE, path, None).await?;
        if answer.status != StatusCode::NOT_FOUND {
            answer.good_for(path)?;
        }
        Ok(())
    }

    /// Creates a token for a ServiceAccount.
    pub async fn token(&self, namespace: &str, account: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
        });
        let asked = self.ask(Method::POST, &path, Some(&request)).await?;
        Ok(asked.good()?.at("/status/token").clone())
    }

    /// Whether a user has a permission, given as the `resourceAttributes` of a SubjectAccessReview.
    pub async fn may(&self, user: &str, what: Value) -> Result<bool> {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": what },
        });
        let asked = self.ask(Method::POST, path, Some(&review)).await?;
        Ok(*asked.good()?.at("/status/allowed") == true)
    }

    /// Writes an object with a forced server-side apply by a field manager. Returns the object as it is stored.
    pub async fn apply(&self, manager: &str, object: &Value) -> Result<Value> {
        let path = self.path(object).await?;
        self.apply_at(manager, &path, object).await
    }

    /// Applies as [`Self::apply`] does, to a path, which may be that of a subresource.
    pub async fn apply_at(&self, manager: &str, path: &str, object: &Value) -> Result<Value> {
        let applied = self.applied(manager, path, object).await?;
        Ok(applied.good_for(format!("apply {path}"))?.object)
    }

    async fn applied(&self, manager: &str, path: &str, object: &Value) -> Result<Answer> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        let body = object.to_string().into_bytes();
        self.send(Method::PATCH, &path, APPLY, body).await
    }

    /// Writes `object`, which contains kind, name and namespace. Returns the response with any status.
    pub async fn write(&self, how: Write, object: &Value) -> Result<Answer> {
        let path = self.path(object).await?;
        let mut object = object.clone();
        if object["apiVersion"].is_null() {
            let kind = text(&object["kind"]);
            object["apiVersion"] = Value::String(self.api_version(kind).await?);
        }
        let (collection, _) = path.rsplit_once('/').context("a path without a name")?;
        let (method, path) = match how {
            Write::Create => (Method::POST, collection.to_owned()),
            Write::DryRun => (Method::POST, format!("{collection}?dryRun=All")),
            Write::Apply => return self.applied(MANAGER, &path, &object).await,
            Write::Merge => (Method::PATCH, path),
        };
        self.ask(method, &path, Some(&object)).await
    }

    /// Returns the path of an object, which contains its kind and name. Without an `apiVersion` it has the most stable one. An
    /// object of a namespaced kind without a namespace is in `default`.
    pub async fn path(&self, object: &Value) -> Result<String> {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let kind = kind.context("the object has no kind")?;
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str();
        let name = name.context("the object has no name")?;
        let kind = self.kind(version, kind).await?;
        let collection = collection(&kind, metadata["namespace"].as_str());
        Ok(format!("{collection}/{name}"))
    }

    /// Returns the path of a kind's collection, in a namespace unless the kind is cluster-scoped.
    pub async fn collection(&self, kind: &str, namespace: Option<&str>) -> Result<String> {
        Ok(collection(&self.kind(None, kind).await?, namespace))
    }

    /// Returns the most stable version of a kind, with its group.
    pub async fn api_version(&self, kind: &str) -> Result<String> {
        Ok(self.kind(None, kind).await?.0.api_version)
    }

    /// Returns the kinds whose objects can be listed.
    pub async fn listed(&self) -> Result<impl Iterator<Item = ApiResource>> {
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
    async fn kind(&self, version: Option<&str>, name: &str) -> Result<Kind> {
        let known = |kinds: &[Kind]| {
            let mut kinds = kinds.iter().filter(|it| it.0.kind == name);
            let is_version = |it: &&Kind| version.is_none_or(|other| it.0.api_version == other);
            kinds.find(is_version).cloned()
        };
        if let Some(version) = version {
            let mut pinned = self.pinned.lock().await;
            if let Some(kind) = known(&pinned) {
                return Ok(kind);
            }
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let kind = GroupVersionKind::gvk(group, version, name);
            let found = timeout(TIME_LIMIT, pinned_kind(&self.inner, &kind)).await?;
            let found = found.map_err(|error| anyhow!("cannot discover {kind:?}: {error}"))?;
            pinned.push(found.clone());
            return Ok(found);
        }
        let mut kinds = self.kinds.lock().await;
        if let Some(kind) = known(&kinds) {
            return Ok(kind);
        }
        *kinds = self.discover().await?;
        known(&kinds).with_context(|| format!("the API server does not serve kind {name}"))
    }
}

fn collection((resource, capabilities): &Kind, namespace: Option<&str>) -> String {
    let is_namespaced = capabilities.scope == Scope::Namespaced;
    let namespace = is_namespaced.then_some(namespace.unwrap_or("default"));
    DynamicObject::url_path(resource, namespace)
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
