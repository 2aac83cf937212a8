//! A control plane's API server in process, for tests: lists, streaming watches, discovery, creation and merge patches.
//!
//! It fails the test at every request that the tested parts have no business with: a Secret without a name, a status, a
//! deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chassis::client::{Deadline, RequestMetrics};
use futures::stream::{self, StreamExt as _};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(in crate::bootstrapper) const NAMESPACE: &str = "kcp-system";

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Plural and name; one namespace is enough.
type Key = (String, String);

#[derive(Clone)]
pub(in crate::bootstrapper) struct Kcp(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

/// How writes to one object are refused.
#[derive(Clone, Debug)]
pub(in crate::bootstrapper) struct Refusal {
    pub(in crate::bootstrapper) code: u16,
    pub(in crate::bootstrapper) times: usize,
    pub(in crate::bootstrapper) retry_after: Option<u32>,
}

#[derive(Clone, Copy)]
enum Manner {
    Create,
    Replace,
    Merge,
}

#[derive(Default)]
pub(in crate::bootstrapper) struct Inner {
    /// The only one there is.
    pub(in crate::bootstrapper) namespace: &'static str,
    version: u64,
    objects: BTreeMap<Key, Value>,
    history: Vec<(u64, Key, String)>,
    /// `runtimes/a {patch}`, with the instant, whether it succeeded or not.
    pub(in crate::bootstrapper) writes: Vec<(tokio::time::Instant, String)>,
    /// Reasons of the Events that were created.
    pub(in crate::bootstrapper) events: Vec<String>,
    pub(in crate::bootstrapper) refusals: HashMap<Key, Refusal>,
    /// Plurals that may not be read.
    pub(in crate::bootstrapper) unreadable: BTreeSet<&'static str>,
    /// What discovery shows: group and version → plural.
    pub(in crate::bootstrapper) served: BTreeMap<&'static str, &'static str>,
    /// Somebody who writes an object between our reading and our writing it.
    pub(in crate::bootstrapper) quicker: HashMap<Key, Value>,
    pub(in crate::bootstrapper) reads: Vec<String>,
    /// How many writes are answered at the same time.
    writing: usize,
    pub(in crate::bootstrapper) most_writing: usize,
    /// An annotation that an admission plugin takes away from everything that is patched.
    pub(in crate::bootstrapper) stripped: Option<&'static str>,
    /// How long a write of a Runtime takes.
    pub(in crate::bootstrapper) latency: Duration,
    /// The next so many writes are done and then not answered.
    pub(in crate::bootstrapper) silent_writes: usize,
}

pub(in crate::bootstrapper) fn key(plural: &str, name: &str) -> Key {
    (plural.to_owned(), name.to_owned())
}

impl Kcp {
    /// One that serves every kind and holds the namespace `kube-system`.
    pub(in crate::bootstrapper) fn new() -> Self {
        let served = BTreeMap::from([
            ("certificates.k8s.io/v1beta1", "clustertrustbundles"),
            ("operator.kyma-project.io/v1alpha1", "runtimebootstrappers"),
        ]);
        let kcp = Self(Arc::new(Shared {
            inner: Mutex::new(Inner {
                namespace: NAMESPACE,
                version: 100,
                served,
                latency: Duration::from_millis(20),
                ..Inner::default()
            }),
            changed: watch::Sender::new(0),
        }));
        kcp.put(
            "namespaces",
            json!({"metadata": {"name": "kube-system", "uid": "kcp-uid"}}),
        );
        kcp
    }

    pub(in crate::bootstrapper) fn client(&self) -> Client {
        let kcp = self.clone();
        let service = tower::service_fn(move |request| {
            let kcp = kcp.clone();
            async move { Ok::<_, Infallible>(kcp.answer(request).await) }
        });
        let requests = RequestMetrics::register(&mut Registry::default());
        let deadline = Deadline::new(Duration::from_secs(15));
        chassis::client::over(service, NAMESPACE, deadline, &requests)
    }

    pub(in crate::bootstrapper) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap()
    }

    pub(in crate::bootstrapper) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.lock().objects.get(&key(plural, name)).cloned()
    }

    /// Writes to objects of a kind so far: `name {patch}`.
    pub(in crate::bootstrapper) fn writes(&self, plural: &str) -> Vec<String> {
        let prefix = format!("{plural}/");
        let inner = self.lock();
        let texts = inner.writes.iter().map(|(_, text)| text);
        texts
            .filter_map(|text| text.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    }

    /// When writes began whose text begins so.
    pub(in crate::bootstrapper) fn instants(&self, prefix: &str) -> Vec<tokio::time::Instant> {
        let inner = self.lock();
        let writes = inner
            .writes
            .iter()
            .filter(|(_, text)| text.starts_with(prefix));
        writes.map(|(at, _)| *at).collect()
    }

    /// Whether a write is under way.
    pub(in crate::bootstrapper) fn is_writing(&self) -> bool {
        self.lock().writing > 0
    }

    /// Somebody creates or replaces an object.
    pub(in crate::bootstrapper) fn put(&self, plural: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.lock().store(key(plural, &name), object);
        self.tell();
    }

    /// Somebody applies a merge patch.
    pub(in crate::bootstrapper) fn merge(&self, plural: &str, name: &str, patch: &Value) {
        self.lock().patch(key(plural, name), patch).unwrap();
        self.tell();
    }

    pub(in crate::bootstrapper) fn delete(&self, plural: &str, name: &str) {
        self.lock().remove(&key(plural, name));
        self.tell();
    }

    /// Objects of a kind change without events, and then every watch of it has expired.
    pub(in crate::bootstrapper) fn behind_the_watch(
        &self,
        plural: &str,
        change: impl FnOnce(&Self),
    ) {
        let kept = self.lock().history.len();
        change(self);
        let mut inner = self.lock();
        inner.history.truncate(kept);
        inner.version += 1;
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired",
            "code": 410,
        });
        let gone = json!({"type": "ERROR", "object": status});
        let entry = (inner.version, key(plural, ""), format!("{gone}\n"));
        inner.history.push(entry);
        drop(inner);
        self.tell();
    }

    fn tell(&self) {
        self.0.changed.send_modify(|it| *it += 1);
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let home = self.lock().namespace;
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["apis", group, version]) => {
                self.discovery(&format!("{group}/{version}"))
            }
            (&Method::POST, ["apis", "events.k8s.io", .., "events"]) => {
                let event = parsed(request).await;
                let reason = event["reason"].as_str().unwrap().to_owned();
                self.lock().events.push(reason);
                with(201, &event)
            }
            (&Method::GET, ["api", "v1", "namespaces", name]) => self.one("namespaces", name),
            (
                _,
                ["api", "v1", "namespaces", namespace, rest @ ..]
                | ["apis", _, _, "namespaces", namespace, rest @ ..],
            ) if *namespace == home => self.resource(request, &owned(rest)).await,
            (_, ["apis", "certificates.k8s.io", _, rest @ ..]) => {
                self.resource(request, &owned(rest)).await
            }
            (method, _) => panic!("unexpected request: {method} {path}"),
        }
    }

    async fn resource(&self, request: Request<Body>, rest: &[String]) -> Answer {
        let method = request.method().clone();
        match (&method, rest) {
            (&Method::GET, [plural]) => self.collection(&request, plural),
            (&Method::GET, [plural, name]) if plural == "configmaps" => self.one(plural, name),
            (&Method::POST, [plural]) if plural == "configmaps" => {
                let object = parsed(request).await;
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                self.write(key(plural, &name), object, Manner::Create).await
            }
            (&Method::PUT, [plural, name]) if plural == "configmaps" => {
                let object = parsed(request).await;
                self.write(key(plural, name), object, Manner::Replace).await
            }
            (&Method::PATCH, [plural, name]) if plural == "configmaps" || plural == "runtimes" => {
                let media_type = request.headers()["content-type"].to_str().unwrap();
                assert_eq!(media_type, "application/merge-patch+json");
                let patch = parsed(request).await;
                self.write(key(plural, name), patch, Manner::Merge).await
            }
            _ => panic!("unexpected request: {method} {rest:?}"),
        }
    }

    fn discovery(&self, version: &str) -> Answer {
        self.lock().reads.push(version.to_owned());
        match self.lock().served.get(version) {
            Some(plural) => with(
                200,
                &json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
                    "resources": [{"name": plural, "singularName": "", "namespaced": false, "kind": "K", "verbs": []}],
                }),
            ),
            None => refusal(404, None),
        }
    }

    fn one(&self, plural: &str, name: &str) -> Answer {
        if self.lock().unreadable.contains(plural) {
            return refusal(403, None);
        }
        self.object(plural, name)
            .map_or_else(|| refusal(404, None), |object| with(200, &object))
    }

    fn collection(&self, request: &Request<Body>, plural: &str) -> Answer {
        self.lock().reads.push(plural.to_owned());
        let name = query(request, "fieldSelector").map(|it| {
            let name = it.strip_prefix("metadata.name%3D").unwrap();
            name.to_owned()
        });
        match plural {
            // Rights name the object, so a list of all is refused by a real one.
            "secrets" | "configmaps" | "clustertrustbundles" => assert!(name.is_some(), "{plural}"),
            "runtimebootstrappers" => {
                let accept = request.headers()["accept"].to_str().unwrap();
                assert!(accept.contains("as=PartialObjectMetadata"), "{accept}");
            }
            "runtimes" => {}
            other => panic!("unexpected list of {other}"),
        }
        if self.lock().unreadable.contains(plural) {
            return refusal(403, None);
        }
        if query(request, "watch").is_some_and(|it| it == "true") {
            let since = query(request, "resourceVersion").unwrap().parse().unwrap();
            self.watch(plural.to_owned(), name, since)
        } else {
            self.lock().list(plural, name.as_deref())
        }
    }

    fn watch(&self, plural: String, name: Option<String>, since: u64) -> Answer {
        let start = (self.clone(), self.0.changed.subscribe(), since);
        let lines = stream::unfold(start, move |(server, mut changed, since)| {
            let (plural, name) = (plural.clone(), name.clone());
            async move {
                loop {
                    let (last, text) = server.lock().after(&plural, name.as_deref(), since);
                    if !text.is_empty() {
                        let frame = Frame::data(Bytes::from(text));
                        return Some((Ok::<_, Infallible>(frame), (server, changed, last)));
                    }
                    changed.changed().await.ok()?;
                }
            }
        });
        Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
    }

    async fn write(&self, key: Key, body: Value, manner: Manner) -> Answer {
        let latency = self.lock().begin_write(&key, &body);
        tokio::time::sleep(latency).await;
        let (answer, silent) = self.lock().end_write(key, body, manner);
        self.tell();
        if silent {
            return std::future::pending().await;
        }
        answer
    }
}

impl Inner {
    /// How long it takes.
    fn begin_write(&mut self, key: &Key, body: &Value) -> Duration {
        let text = format!("{}/{} {body}", key.0, key.1);
        self.writes.push((tokio::time::Instant::now(), text));
        self.writing += 1;
        self.most_writing = self.most_writing.max(self.writing);
        if key.0 == "runtimes" {
            self.latency
        } else {
            Duration::from_millis(20)
        }
    }

    /// The answer, and whether it gets lost.
    fn end_write(&mut self, key: Key, body: Value, manner: Manner) -> (Answer, bool) {
        self.writing -= 1;
        if let Some(refused) = self.refused(&key) {
            return (refused, false);
        }
        if let Some(object) = self.quicker.remove(&key) {
            self.store(key.clone(), object);
        }
        let done = match manner {
            Manner::Create => self.create(key, body),
            Manner::Replace => self.replace(key, body),
            Manner::Merge => self.patch(key, &body),
        };
        let silent = self.silent_writes > 0;
        self.silent_writes = self.silent_writes.saturating_sub(1);
        let answer = done.map_or_else(|code| refusal(code, None), |object| with(200, &object));
        (answer, silent)
    }

    fn refused(&mut self, key: &Key) -> Option<Answer> {
        let Refusal {
            code,
            times,
            retry_after,
        } = self.refusals.get_mut(key)?;
        *times = times.checked_sub(1)?;
        Some(refusal(*code, *retry_after))
    }

    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        let before = self.objects.get(&key);
        let generation = before.map_or(1, |before| {
            let generation = before["metadata"]["generation"].as_u64().unwrap();
            generation + u64::from(before["spec"] != object["spec"])
        });
        let event = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        object["metadata"]["generation"] = json!(generation);
        object["metadata"]["namespace"] = json!(self.namespace);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            let uid = before.map_or_else(
                || json!(format!("uid-{}", self.version)),
                |before| before["metadata"]["uid"].clone(),
            );
            object["metadata"]["uid"] = uid;
        }
        self.objects.insert(key.clone(), object.clone());
        self.note(key, event, &object);
        object
    }

    fn create(&mut self, key: Key, object: Value) -> Result<Value, u16> {
        if self.objects.contains_key(&key) {
            return Err(409);
        }
        Ok(self.store(key, object))
    }

    fn replace(&mut self, key: Key, object: Value) -> Result<Value, u16> {
        let stored = self.objects.get(&key).ok_or(404_u16)?;
        if object["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            return Err(409);
        }
        Ok(self.store(key, object))
    }

    /// RFC 7386, with the optimistic lock of an API server: a version in the patch must be the stored one.
    fn patch(&mut self, key: Key, patch: &Value) -> Result<Value, u16> {
        let stored = self.objects.get(&key).ok_or(404_u16)?;
        let expected = &patch["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != stored["metadata"]["resourceVersion"] {
            return Err(409);
        }
        let mut merged = stored.clone();
        merge(&mut merged, patch);
        if let Some(name) = self.stripped
            && let Some(annotations) = merged["metadata"]["annotations"].as_object_mut()
        {
            annotations.remove(name);
        }
        if merged == *stored {
            return Ok(merged);
        }
        Ok(self.store(key, merged))
    }

    fn remove(&mut self, key: &Key) {
        let mut object = self.objects.remove(key).unwrap();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.note(key.clone(), "DELETED", &object);
    }

    fn note(&mut self, key: Key, event: &str, object: &Value) {
        let line = json!({"type": event, "object": object});
        self.history.push((self.version, key, format!("{line}\n")));
    }

    fn after(&self, plural: &str, name: Option<&str>, since: u64) -> (u64, String) {
        let start = self
            .history
            .partition_point(|(version, _, _)| *version <= since);
        let lines = self.history[start..].iter().filter(|(_, key, _)| {
            let named = key.1.is_empty() || name.is_none_or(|name| key.1 == name);
            key.0 == plural && named
        });
        lines.fold((since, String::new()), |(_, text), (version, _, line)| {
            (*version, text + line)
        })
    }

    fn list(&self, plural: &str, name: Option<&str>) -> Answer {
        let wanted = |key: &Key| key.0 == plural && name.is_none_or(|name| key.1 == name);
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter_map(|(key, object)| wanted(key).then_some(object))
            .collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        with(
            200,
            &json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}),
        )
    }
}

fn owned(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|it| (*it).to_owned()).collect()
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

async fn parsed(request: Request<Body>) -> Value {
    let bytes = request.into_body().collect_bytes().await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn query(request: &Request<Body>, key: &str) -> Option<String> {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(name, value)| (name == key).then(|| value.to_owned()))
}

fn with(code: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body.boxed_unsync())
        .unwrap()
}

fn refusal(code: u16, retry_after: Option<u32>) -> Answer {
    if code == 429 {
        // Priority and fairness answers so, without a Status.
        let body = Full::new(Bytes::from("Too many requests, please try again later."));
        return Response::builder()
            .status(code)
            .header("retry-after", retry_after.unwrap_or(1))
            .body(body.boxed_unsync())
            .unwrap();
    }
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "Refused",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "refused",
        "reason": reason, "details": {"retryAfterSeconds": retry_after.unwrap_or_default()},
    });
    with(code, &status)
}
