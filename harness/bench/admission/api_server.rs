//! An API server in memory for one client: lists, watches, writes, and a count of every request.
//!
//! Without TLS, authorization, validation, conflicts and history (a watch starts at the present state).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

/// A running server; it ends with this handle.
pub(super) struct ApiServer {
    shared: Arc<Shared>,
    url: String,
    _serving: AbortOnDropHandle<()>,
}

struct Shared {
    store: Mutex<Store>,
    changes: broadcast::Sender<(Key, Value)>,
}

#[derive(Default)]
struct Store {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// By verb and resource.
    requests: BTreeMap<(&'static str, String), u64>,
}

/// Resource, namespace, name.
type Key = (String, String, String);

impl ApiServer {
    pub(super) async fn start(objects: Vec<Value>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            store: Mutex::default(),
            changes: broadcast::channel(1024).0,
        });
        for object in objects {
            let text = |pointer| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let resource = format!("{}s", text("/kind").to_lowercase());
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            let key = (resource, namespace.to_owned(), name.to_owned());
            shared.write(key, |_| object);
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

    pub(super) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {"server": self.url}}],
            "users": [{"name": "bench", "user": {}}],
        })
        .to_string()
    }

    /// Requests so far whose verb and resource are chosen.
    pub(super) fn requests(&self, chosen: impl Fn(&str, &str) -> bool) -> u64 {
        let store = self.shared.store();
        let counts = store.requests.iter();
        let counts = counts.filter(|((verb, resource), _)| chosen(verb, resource));
        counts.map(|(_, count)| count).sum()
    }
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces an object, gives it a version and shows it to all watches.
    fn write(&self, key: Key, change: impl FnOnce(Option<&Value>) -> Value) -> Value {
        let mut store = self.store();
        store.version += 1;
        let before = store.objects.get(&key);
        let kind = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let mut object = change(before);
        object["metadata"]["resourceVersion"] = json!(store.version.to_string());
        object["metadata"]["name"] = json!(key.2);
        if !key.1.is_empty() {
            object["metadata"]["namespace"] = json!(key.1);
        }
        store.objects.insert(key.clone(), object.clone());
        // An error means that there is no watch.
        let _ = self
            .changes
            .send((key, json!({"type": kind, "object": object})));
        object
    }
}

/// What a request refers to, by its path and query.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Target {
    api_version: String,
    key: Key,
    watch: bool,
    /// The name comes from a field selector.
    selected: bool,
}

impl Target {
    /// `None` for a path that names no resource.
    fn parse(uri: &Uri) -> Option<Self> {
        let mut segments = uri.path().split('/').skip(1);
        let api_version = match segments.next()? {
            "api" => segments.next()?.to_owned(),
            "apis" => format!("{}/{}", segments.next()?, segments.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            // `namespaces/a` is the object a; a longer path is in it.
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            all => ("", all),
        };
        let (resource, name) = (*rest.first()?, rest.get(1).copied().unwrap_or_default());
        let query = uri
            .query()
            .unwrap_or_default()
            .replace("%3D", "=")
            .replace("%3A", ":");
        let mut parameters = query.split('&');
        let selector = parameters
            .clone()
            .find_map(|it| it.strip_prefix("fieldSelector=metadata.name="));
        let name = selector.unwrap_or(name);
        Some(Self {
            api_version,
            key: (resource.to_owned(), namespace.to_owned(), name.to_owned()),
            watch: parameters.any(|it| matches!(it, "watch=true" | "watch=1")),
            selected: selector.is_some(),
        })
    }

    fn selects(&self, (resource, namespace, name): &Key) -> bool {
        let wanted = &self.key;
        *resource == wanted.0
            && (wanted.1.is_empty() || *namespace == wanted.1)
            && (wanted.2.is_empty() || *name == wanted.2)
    }

    fn verb(&self, method: &Method) -> &'static str {
        match *method {
            Method::GET if self.watch => "watch",
            Method::GET if self.key.2.is_empty() || self.selected => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "",
        }
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let target = Target::parse(&uri);
    let verb = target.as_ref().map_or("discover", |it| it.verb(&method));
    let mut target = target.unwrap_or_default();
    let request = (verb, target.key.0.clone());
    *shared.store().requests.entry(request).or_default() += 1;
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    if verb == "create"
        && let Some(name) = sent.pointer("/metadata/name").and_then(Value::as_str)
    {
        name.clone_into(&mut target.key.2);
    }
    match verb {
        "discover" => discovery(uri.path()),
        "watch" => watch(&shared, target),
        "list" => list(&shared.store(), &target),
        "get" => match shared.store().objects.get(&target.key) {
            Some(object) => json_response(object),
            None => not_found(),
        },
        "create" | "update" => json_response(&shared.write(target.key, |_| sent)),
        "patch" => {
            let merged = |before: Option<&Value>| {
                let mut object = before.cloned().unwrap_or_default();
                json_patch::merge(&mut object, &sent);
                object
            };
            json_response(&shared.write(target.key, merged))
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn list(store: &Store, target: &Target) -> Response {
    let objects = store.objects.iter().filter(|(key, _)| target.selects(key));
    let items: Vec<&Value> = objects.map(|(_, object)| object).collect();
    json_response(&json!({
        "apiVersion": target.api_version,
        "kind": "List",
        "metadata": {"resourceVersion": store.version.to_string()},
        "items": items,
    }))
}

/// Changes from now on; the response has no end.
fn watch(shared: &Shared, target: Target) -> Response {
    let changes = shared.changes.subscribe();
    let lines = stream::unfold((changes, target), async |(mut changes, target)| {
        loop {
            let (key, event) = changes.recv().await.ok()?;
            if target.selects(&key) {
                return Some((Ok::<_, Infallible>(format!("{event}\n")), (changes, target)));
            }
        }
    });
    ([(CONTENT_TYPE, JSON)], Body::from_stream(lines)).into_response()
}

fn discovery(path: &str) -> Response {
    if path != "/apis/certificates.k8s.io/v1" {
        return not_found();
    }
    json_response(&json!({
        "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "certificates.k8s.io/v1",
        "resources": [{
            "name": "clustertrustbundles", "singularName": "clustertrustbundle", "namespaced": false,
            "kind": "ClusterTrustBundle", "verbs": ["get", "list", "watch"],
        }],
    }))
}

fn not_found() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "not found", "reason": "NotFound", "code": 404,
    });
    (StatusCode::NOT_FOUND, json_response(&status)).into_response()
}

fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, JSON)], value.to_string()).into_response()
}

const JSON: &str = "application/json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_query_name_the_objects() {
        let parsed = |path: &str| Target::parse(&path.parse().unwrap());
        let one = parsed("/api/v1/namespaces/kyma-system/secrets/a").unwrap();
        let key = (
            "secrets".to_owned(),
            "kyma-system".to_owned(),
            "a".to_owned(),
        );
        assert_eq!((&one.key, one.verb(&Method::GET)), (&key, "get"));
        let selected =
            parsed("/api/v1/secrets?&fieldSelector=metadata.name%3Da&watch=true").unwrap();
        assert_eq!(
            (selected.selects(&key), selected.verb(&Method::GET)),
            (true, "watch")
        );
        let namespace = parsed("/api/v1/namespaces/kyma-system").unwrap();
        assert_eq!(
            (namespace.key.0.as_str(), namespace.key.2.as_str()),
            ("namespaces", "kyma-system")
        );
        let bundle = parsed(
            "/apis/certificates.k8s.io/v1/clustertrustbundles?fieldSelector=metadata.name%3Da%3Ab",
        );
        assert_eq!(bundle.map(|it| it.key.2).as_deref(), Some("a:b"));
        assert_eq!(parsed("/apis/certificates.k8s.io/v1"), None);
    }
}
