//! An API server for one client: holds objects, lists and watches them, takes writes, and counts every request.
//!
//! Invariant: what is written is seen by every watch, so nobody has a reason to write it again. Deliberately absent:
//! TLS, authorization, validation, bookmarks, history (a watch begins with now), conflicts.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

use self::path::Target;

mod path;

/// A running server; dropping it ends it.
pub(super) struct FakeApi {
    shared: Arc<Shared>,
    url: String,
    _serving: AbortOnDropHandle<()>,
}

struct Shared {
    store: Mutex<Store>,
    changes: broadcast::Sender<Change>,
}

#[derive(Default)]
struct Store {
    objects: BTreeMap<Key, Value>,
    version: u64,
    calls: BTreeMap<Call, u64>,
}

/// Resource, namespace, name.
type Key = (String, String, String);

/// A kind of request: verb and resource.
pub(super) type Call = (&'static str, String);

#[derive(Clone)]
struct Change {
    key: Key,
    kind: &'static str,
    object: Value,
}

impl FakeApi {
    /// Serves these objects, each of which says its kind and its name.
    pub(super) async fn start(objects: Vec<Value>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            store: Mutex::default(),
            changes: broadcast::channel(1024).0,
        });
        for object in objects {
            let target = Target::of_object(&object);
            shared.write(&target, |_| object);
        }
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // Ends with its handle only.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            shared,
            url,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    /// A kubeconfig that leads here.
    pub(super) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {"server": self.url}}],
            "users": [{"name": "bench", "user": {}}],
        })
        .to_string()
    }

    /// How many requests of each kind came since the start.
    pub(super) fn calls(&self) -> BTreeMap<Call, u64> {
        self.shared.store().calls.clone()
    }
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        // A panic of a handler leaves whole objects behind.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, verb: &'static str, target: &Target) {
        let call = (verb, target.resource.clone());
        *self.store().calls.entry(call).or_default() += 1;
    }

    /// Replaces what is there; the object gets a version, and all watches see it.
    fn write(&self, target: &Target, change: impl FnOnce(Option<&Value>) -> Value) -> Value {
        let mut store = self.store();
        store.version += 1;
        let version = store.version;
        let key = target.key();
        let before = store.objects.get(&key);
        let kind = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let mut object = change(before);
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(version.to_string());
        metadata["name"] = json!(target.name);
        if !target.namespace.is_empty() {
            metadata["namespace"] = json!(target.namespace);
        }
        store.objects.insert(key.clone(), object.clone());
        // Without watches nobody receives it, which is fine.
        let _ = self.changes.send(Change {
            key,
            kind,
            object: object.clone(),
        });
        object
    }

    fn delete(&self, target: &Target) -> Option<Value> {
        let key = target.key();
        let object = self.store().objects.remove(&key)?;
        let _ = self.changes.send(Change {
            key,
            kind: "DELETED",
            object: object.clone(),
        });
        Some(object)
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let Some(mut target) = Target::parse(&uri) else {
        shared.count("discover", &Target::default());
        return discovery(uri.path());
    };
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    if method == Method::POST
        && let Some(name) = sent.pointer("/metadata/name").and_then(Value::as_str)
    {
        name.clone_into(&mut target.name);
    }
    let verb = verb(&method, &target);
    shared.count(verb, &target);
    match verb {
        "watch" => watch(&shared, target),
        "list" => list(&shared, &target),
        "get" => found(shared.store().objects.get(&target.key()).cloned()),
        "create" | "update" => found(Some(shared.write(&target, |_| sent))),
        "patch" => {
            let merged = |before: Option<&Value>| {
                let mut object = before.cloned().unwrap_or_default();
                json_patch::merge(&mut object, &sent);
                object
            };
            found(Some(shared.write(&target, merged)))
        }
        "delete" => found(shared.delete(&target)),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn verb(method: &Method, target: &Target) -> &'static str {
    match *method {
        Method::GET if target.watch => "watch",
        Method::GET if target.name.is_empty() || target.selected => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn list(shared: &Shared, target: &Target) -> Response {
    let store = shared.store();
    let items: Vec<&Value> = store
        .objects
        .iter()
        .filter(|(key, _)| target.selects(key))
        .map(|(_, object)| object)
        .collect();
    let (api_version, kind) = target.kind();
    json_response(&json!({
        "apiVersion": api_version,
        "kind": format!("{kind}List"),
        "metadata": {"resourceVersion": store.version.to_string()},
        "items": items,
    }))
}

/// Changes from now on; the body has no end.
fn watch(shared: &Shared, target: Target) -> Response {
    let changes = shared.changes.subscribe();
    let lines = stream::unfold((changes, target), async |(mut changes, target)| {
        loop {
            // The sender lives as long as the server; who falls behind by 1024 changes ends.
            let Change { key, kind, object } = changes.recv().await.ok()?;
            if target.selects(&key) {
                let line = format!("{}\n", json!({"type": kind, "object": object}));
                return Some((Ok::<_, Infallible>(line), (changes, target)));
            }
        }
    });
    ([(CONTENT_TYPE, JSON)], Body::from_stream(lines)).into_response()
}

fn found(object: Option<Value>) -> Response {
    object.map_or_else(not_found, |object| json_response(&object))
}

fn discovery(path: &str) -> Response {
    if path != "/apis/certificates.k8s.io/v1" {
        return not_found();
    }
    json_response(&json!({
        "apiVersion": "v1",
        "kind": "APIResourceList",
        "groupVersion": "certificates.k8s.io/v1",
        "resources": [{
            "name": "clustertrustbundles",
            "singularName": "clustertrustbundle",
            "namespaced": false,
            "kind": "ClusterTrustBundle",
            "verbs": ["get", "list", "watch"],
        }],
    }))
}

fn not_found() -> Response {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "not found",
        "reason": "NotFound",
        "code": 404,
    });
    (StatusCode::NOT_FOUND, json_response(&status)).into_response()
}

fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, JSON)], value.to_string()).into_response()
}

const JSON: &str = "application/json";
