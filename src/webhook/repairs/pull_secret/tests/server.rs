//! An API server in process: Secrets and Pods with lists, streaming watches, server-side apply and preconditions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use chassis::client::{Deadline, RequestMetrics};
use futures::stream;
use http::Method;
use kube::Client;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::TYPE;

#[derive(Clone)]
pub(super) struct Server(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

/// Kind's plural, namespace and name.
type Key = (&'static str, String, String);

#[derive(Default)]
pub(super) struct Inner {
    version: u64,
    objects: BTreeMap<Key, Value>,
    history: Vec<(u64, Key, String)>,
    pub(super) namespaces: BTreeSet<String>,
    /// `PATCH a` and `DELETE a`, whether they succeeded or not.
    pub(super) writes: Vec<String>,
    /// Namespaces in which an Event was created.
    pub(super) events: Vec<String>,
    /// Namespace → answer to writes, how many times.
    pub(super) refusals: HashMap<String, (u16, usize)>,
    pub(super) pods_are_forbidden: bool,
    /// Namespaces whose Pods were listed, once for each page.
    pub(super) pod_lists: Vec<String>,
    /// Answer to a list of one namespace's Pods, how many times.
    pub(super) pod_list_refusal: Option<(u16, usize)>,
    writing: usize,
    pub(super) most_writing: usize,
}

impl Server {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            inner: Mutex::new(Inner {
                version: 100,
                ..Inner::default()
            }),
            changed: watch::Sender::new(0),
        }))
    }

    pub(super) fn client(&self) -> Client {
        let router = Router::new().fallback(answer).with_state(self.clone());
        let requests = RequestMetrics::register(&mut Registry::default());
        let deadline = Deadline::new(Duration::from_secs(10));
        chassis::client::over(router, "default", deadline, &requests)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap()
    }

    pub(super) fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        let key = ("secrets", namespace.to_owned(), name.to_owned());
        self.lock().objects.get(&key).cloned()
    }

    /// Somebody writes a Secret or a Pod.
    pub(super) fn put(&self, plural: &'static str, object: Value) -> Value {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .unwrap()
                .as_str()
                .unwrap()
                .to_owned()
        };
        let key = (plural, text("/metadata/namespace"), text("/metadata/name"));
        let stored = self.lock().store(key, object);
        self.0.changed.send_modify(|it| *it += 1);
        stored
    }

    pub(super) fn delete(&self, plural: &'static str, namespace: &str, name: &str) {
        let key = (plural, namespace.to_owned(), name.to_owned());
        self.lock().remove(&key);
        self.0.changed.send_modify(|it| *it += 1);
    }

    /// Objects of a kind change without events, and then every watch of it has expired.
    pub(super) fn behind_the_watch(&self, plural: &'static str, change: impl FnOnce(&Self)) {
        let kept = self.lock().history.len();
        change(self);
        let mut inner = self.lock();
        inner.history.truncate(kept);
        inner.version += 1;
        let gone = json!({"type": "ERROR", "object": {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired",
            "code": 410,
        }});
        let entry = (
            inner.version,
            (plural, String::new(), String::new()),
            format!("{gone}\n"),
        );
        inner.history.push(entry);
        drop(inner);
        self.0.changed.send_modify(|it| *it += 1);
    }

    fn watch(&self, plural: &'static str, name: Option<&str>, since: u64) -> Response {
        let start = (
            self.clone(),
            self.0.changed.subscribe(),
            since,
            name.map(str::to_owned),
        );
        let lines = stream::unfold(start, async move |(server, mut changed, since, name)| {
            loop {
                let (last, text) = server.lock().after(plural, name.as_deref(), since);
                if !text.is_empty() {
                    return Some((Ok::<_, Infallible>(text), (server, changed, last, name)));
                }
                changed.changed().await.ok()?;
            }
        });
        Response::new(Body::from_stream(lines))
    }

    async fn write(&self, request: Request, namespace: &str, name: &str) -> Response {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        self.lock().begin_write(&head.method, namespace);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut inner = self.lock();
        inner.writing -= 1;
        let key = ("secrets", namespace.to_owned(), name.to_owned());
        let answer = if let Some(code) = inner.refused(namespace) {
            refusal(code)
        } else if !inner.namespaces.contains(namespace) {
            refusal(404)
        } else if head.method == Method::PATCH {
            inner.apply(key, &body)
        } else {
            inner.delete(&key, &body)
        };
        drop(inner);
        self.0.changed.send_modify(|it| *it += 1);
        answer
    }
}

impl Inner {
    fn begin_write(&mut self, method: &Method, namespace: &str) {
        self.writes.push(format!("{method} {namespace}"));
        self.writing += 1;
        self.most_writing = self.most_writing.max(self.writing);
    }

    fn refused(&mut self, namespace: &str) -> Option<u16> {
        let (code, times) = self.refusals.get_mut(namespace)?;
        *times = times.checked_sub(1)?;
        Some(*code)
    }

    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        let known = self.objects.contains_key(&key);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(key.clone(), object.clone());
        self.tell(key, if known { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(mut object) = self.objects.remove(key) else {
            return false;
        };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.tell(key.clone(), "DELETED", &object);
        true
    }

    fn tell(&mut self, key: Key, event: &str, object: &Value) {
        let line = json!({"type": event, "object": object});
        self.history.push((self.version, key, format!("{line}\n")));
    }

    fn after(&self, plural: &str, name: Option<&str>, since: u64) -> (u64, String) {
        let lines = self.history.iter().filter(|(version, key, _)| {
            let named = key.2.is_empty() || name.is_none_or(|name| key.2 == name);
            *version > since && key.0 == plural && named
        });
        lines.fold((since, String::new()), |(_, text), (version, _, line)| {
            (*version, text + line)
        })
    }

    fn list(&self, plural: &str, name: Option<&str>) -> Response {
        let wanted = |key: &Key| key.0 == plural && name.is_none_or(|name| key.2 == name);
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter_map(|(key, object)| wanted(key).then_some(object))
            .collect();
        answer_with(
            200,
            &json!({
                "apiVersion": "v1", "kind": "List",
                "metadata": {"resourceVersion": self.version.to_string()}, "items": items,
            }),
        )
    }

    /// One page of a namespace's Pods that are not finished. The token of the next page is its first Pod's index.
    fn list_pods(&mut self, namespace: &str, limit: usize, from: usize) -> Response {
        self.pod_lists.push(namespace.to_owned());
        if let Some((code, times)) = &mut self.pod_list_refusal
            && let Some(left) = times.checked_sub(1)
        {
            *times = left;
            return refusal(*code);
        }
        let unfinished = |pod: &Value| {
            pod["status"]["phase"] != "Succeeded" && pod["status"]["phase"] != "Failed"
        };
        let pods = self
            .objects
            .iter()
            .filter(|(key, object)| key.0 == "pods" && key.1 == namespace && unfinished(object));
        let left: Vec<&Value> = pods.map(|(_, pod)| pod).skip(from).collect();
        let next = (left.len() > limit).then(|| (from + limit).to_string());
        let page: Vec<&Value> = left.into_iter().take(limit).collect();
        answer_with(
            200,
            &json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"continue": next}, "items": page}),
        )
    }

    /// Keys of others stay, as they belong to other field managers.
    fn apply(&mut self, key: Key, body: &Value) -> Response {
        let mut merged = self
            .objects
            .get(&key)
            .cloned()
            .unwrap_or_else(|| body.clone());
        if merged["type"] != body["type"] {
            return refusal(422);
        }
        assert_eq!(body["type"], TYPE);
        merged["data"][".dockerconfigjson"] = body["data"][".dockerconfigjson"].clone();
        let label = "rt-bootstrapper.kyma-project.io/pull-secret-copy";
        merged["metadata"]["labels"][label] = body["metadata"]["labels"][label].clone();
        merged["metadata"]["managedFields"] =
            json!([{"manager": "rt-bootstrapper", "operation": "Apply"}]);
        if self.objects.get(&key) == Some(&merged) {
            return answer_with(200, &merged);
        }
        let stored = self.store(key, merged);
        answer_with(200, &stored)
    }

    fn delete(&mut self, key: &Key, body: &Value) -> Response {
        let Some(object) = self.objects.get(key) else {
            return refusal(404);
        };
        for field in ["uid", "resourceVersion"] {
            if body["preconditions"][field] != object["metadata"][field] {
                return refusal(409);
            }
        }
        self.remove(key);
        answer_with(
            200,
            &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
        )
    }
}

async fn answer(State(server): State<Server>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["api", "v1", "secrets"]) => {
            let Some(name) = query(&request, "fieldSelector") else {
                return refusal(403);
            };
            let name = name.strip_prefix("metadata.name%3D").unwrap().to_owned();
            read(&server, &request, "secrets", Some(&name))
        }
        (&Method::GET, ["api", "v1", "pods"]) => {
            let accept = request.headers()["accept"].to_str().unwrap();
            assert!(accept.contains("as=PartialObjectMetadata"), "{accept}");
            if server.lock().pods_are_forbidden {
                return refusal(403);
            }
            read(&server, &request, "pods", None)
        }
        (&Method::GET, ["api", "v1", "namespaces", namespace, "pods"]) => {
            let unfinished = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
            assert_eq!(
                query(&request, "fieldSelector").as_deref(),
                Some(unfinished)
            );
            let limit: usize = query(&request, "limit").unwrap().parse().unwrap();
            assert!((100..=500).contains(&limit));
            let from = query(&request, "continue").map_or(0, |it| it.parse().unwrap());
            server.lock().list_pods(namespace, limit, from)
        }
        (
            &Method::POST,
            [
                "apis",
                "events.k8s.io",
                "v1",
                "namespaces",
                namespace,
                "events",
            ],
        ) => {
            server.lock().events.push((*namespace).to_owned());
            let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
            answer_with(201, &serde_json::from_slice(&body).unwrap())
        }
        (_, ["api", "v1", "namespaces", namespace, "secrets", name]) => {
            let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
            server.write(request, &namespace, &name).await
        }
        (method, _) => panic!("unexpected request: {method} {path}"),
    }
}

fn read(server: &Server, request: &Request, plural: &'static str, name: Option<&str>) -> Response {
    if query(request, "watch").is_some_and(|it| it == "true") {
        let since = query(request, "resourceVersion").unwrap().parse().unwrap();
        server.watch(plural, name, since)
    } else {
        server.lock().list(plural, name)
    }
}

fn query(request: &Request, key: &str) -> Option<String> {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(name, value)| (name == key).then(|| value.to_owned()))
}

fn answer_with(code: u16, body: &Value) -> Response {
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

fn refusal(code: u16) -> Response {
    answer_with(
        code,
        &json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "refused",
            "reason": "Refused",
        }),
    )
}
