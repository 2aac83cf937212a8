//! A control plane's API server in process: lists in pages, watches, server-side apply of a status, finalizers.
//!
//! It fails the test where a list of Secrets is asked for with their contents.

use std::collections::BTreeMap;
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

pub(super) const NAMESPACE: &str = "kcp-system";

/// Objects in one page at most, whatever a client would take.
const PAGE: usize = 2;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Key = (String, String);

#[derive(Clone)]
pub(super) struct Kcp(Arc<(Mutex<State>, watch::Sender<u64>)>);

pub(super) struct State {
    /// The only one there is.
    pub(super) namespace: &'static str,
    version: u64,
    objects: BTreeMap<Key, Value>,
    history: Vec<(u64, Key, Value)>,
    /// `verb plural/name[/status]`, of every write that was asked for.
    pub(super) writes: Vec<String>,
    /// Answers to requests whose `verb plural/name` begins so: status and how often.
    pub(super) refusals: BTreeMap<&'static str, (u16, usize)>,
    /// The next so many reads of a kubeconfig end in a panic of who asked.
    pub(super) panics: usize,
    /// Reads of kubeconfigs are not answered meanwhile.
    pub(super) holds: bool,
    /// Its store was put back: it waits in vain for versions that others saw before.
    pub(super) put_back: bool,
    /// Which versions reads of kubeconfigs asked for at least; 0: the newest.
    pub(super) kubeconfig_reads: Vec<u64>,
}

impl Kcp {
    pub(super) fn new() -> Self {
        let state = State {
            namespace: NAMESPACE,
            version: 0,
            objects: BTreeMap::new(),
            history: Vec::new(),
            writes: Vec::new(),
            refusals: BTreeMap::new(),
            panics: 0,
            holds: false,
            put_back: false,
            kubeconfig_reads: Vec::new(),
        };
        Self(Arc::new((Mutex::new(state), watch::Sender::new(0))))
    }

    pub(super) fn client(&self) -> Client {
        let kcp = self.clone();
        let service = tower::service_fn(move |request| {
            let kcp = kcp.clone();
            async move { Ok::<_, Infallible>(kcp.answer(request).await) }
        });
        let requests = RequestMetrics::register(&mut Registry::default());
        let deadline = Deadline::new(Duration::from_secs(15));
        chassis::client::over(service, NAMESPACE, deadline, &requests)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    fn tell(&self) {
        self.0.1.send_modify(|it| *it += 1);
    }

    pub(super) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let key = (plural.to_owned(), name.to_owned());
        self.lock().objects.get(&key).cloned()
    }

    /// Somebody creates or replaces an object.
    pub(super) fn put(&self, plural: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.lock().store((plural.to_owned(), name), object);
        self.tell();
    }

    /// Somebody changes an object.
    pub(super) fn merge(&self, plural: &str, name: &str, patch: &Value) {
        let key = (plural.to_owned(), name.to_owned());
        self.lock().patch(key, patch).unwrap();
        self.tell();
    }

    /// Somebody deletes an object; finalizers hold it.
    pub(super) fn delete(&self, plural: &str, name: &str) {
        let key = (plural.to_owned(), name.to_owned());
        self.lock().delete(key).unwrap();
        self.tell();
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let uri = request.uri().clone();
        let mut parts: Vec<&str> = uri.path().split('/').skip(1).collect();
        let namespace = self.lock().namespace;
        let at = parts.iter().position(|it| *it == namespace);
        let at = at.unwrap_or_else(|| panic!("another namespace: {uri}"));
        let rest: Vec<&str> = parts.drain(at + 1..).collect();
        let verb = verb(&request, rest.len() == 1);
        let (plural, name) = (rest[0].to_owned(), rest.get(1).copied().unwrap_or_default());
        let place = format!("{verb} {}", rest.join("/"));
        if verb == "read" && plural == "secrets" && !name.is_empty() {
            let version = Query::of(&request).version;
            self.kubeconfig_read(version).await;
            if version > 0 && self.lock().put_back {
                return refusal(504);
            }
        }
        if verb == "list" || verb == "watch" {
            let accept = request.headers().get("accept");
            let trimmed =
                accept.is_some_and(|it| it.to_str().unwrap().contains("as=PartialObjectMetadata"));
            assert_eq!(trimmed, plural == "secrets", "{accept:?}");
        }
        if let Some(refused) = self.lock().refused(&place) {
            return refused;
        }
        match verb {
            "list" => self.lock().list(&plural, &Query::of(&request)),
            "watch" => self.watch(plural, &Query::of(&request)),
            "read" => self
                .get(&plural, name)
                .map_or_else(|| refusal(404), |object| with(200, &object)),
            _ => self.write(request, verb, &rest).await,
        }
    }

    async fn kubeconfig_read(&self, version: u64) {
        let panics = {
            let mut state = self.lock();
            state.kubeconfig_reads.push(version);
            let panics = state.panics > 0;
            state.panics = state.panics.saturating_sub(1);
            panics
        };
        assert!(!panics, "a fault of ours, as the test wants it");
        let mut changed = self.0.1.subscribe();
        while self.lock().holds {
            changed.changed().await.unwrap();
        }
    }

    pub(super) fn release(&self) {
        self.lock().holds = false;
        self.tell();
    }

    async fn write(&self, request: Request<Body>, verb: &str, rest: &[&str]) -> Answer {
        let body = request.into_body().collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let name = rest
            .get(1)
            .copied()
            .unwrap_or_else(|| body["metadata"]["name"].as_str().unwrap());
        let key = (rest[0].to_owned(), name.to_owned());
        let place = [&[rest[0], name], rest.get(2..).unwrap_or_default()].concat();
        let done = {
            let mut state = self.lock();
            state.writes.push(format!("{verb} {}", place.join("/")));
            match (verb, rest.get(2)) {
                ("create", None) => state.create(key, body),
                ("replace", None) => state.replace(key, body),
                ("patch", None) => state.patch(key, &body),
                ("apply", None) => Ok(state.apply(key, body)),
                ("apply", Some(&"status")) => state.status(key, &body),
                ("delete", None) => state.delete_as(key, &body),
                _ => panic!("unexpected: {verb} {rest:?}"),
            }
        };
        self.tell();
        done.map_or_else(refusal, |object| with(200, &object))
    }

    fn watch(&self, plural: String, query: &Query) -> Answer {
        let since = query.version;
        let (name, labelled) = (query.name.clone(), query.labelled);
        let start = (self.clone(), self.0.1.subscribe(), since);
        let lines = stream::unfold(start, move |(kcp, mut changed, since)| {
            let (plural, name) = (plural.clone(), name.clone());
            async move {
                loop {
                    let (last, text) = kcp.lock().after(&plural, name.as_deref(), labelled, since);
                    if !text.is_empty() {
                        let frame = Frame::data(Bytes::from(text));
                        return Some((Ok::<_, Infallible>(frame), (kcp, changed, last)));
                    }
                    changed.changed().await.ok()?;
                }
            }
        });
        Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
    }
}

fn verb(request: &Request<Body>, plain: bool) -> &'static str {
    match *request.method() {
        Method::GET if Query::of(request).watch => "watch",
        Method::GET if plain => "list",
        Method::GET => "read",
        Method::POST => "create",
        Method::PUT => "replace",
        Method::DELETE => "delete",
        _ if request.headers()["content-type"] == "application/merge-patch+json" => "patch",
        _ => {
            assert_eq!(
                request.headers()["content-type"],
                "application/apply-patch+yaml"
            );
            "apply"
        }
    }
}

struct Query {
    watch: bool,
    version: u64,
    name: Option<String>,
    labelled: bool,
    from: usize,
}

impl Query {
    fn of(request: &Request<Body>) -> Self {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let pairs: BTreeMap<&str, &str> = pairs.filter_map(|it| it.split_once('=')).collect();
        let number = |key: &str| pairs.get(key).and_then(|it| it.parse().ok());
        Self {
            watch: pairs.get("watch") == Some(&"true"),
            version: number("resourceVersion").unwrap_or_default(),
            name: pairs
                .get("fieldSelector")
                .map(|it| it.strip_prefix("metadata.name%3D").unwrap().to_owned()),
            labelled: pairs.contains_key("labelSelector"),
            from: number("continue")
                .and_then(|it| usize::try_from(it).ok())
                .unwrap_or_default(),
        }
    }
}

impl State {
    fn refused(&mut self, place: &str) -> Option<Answer> {
        let mut refusals = self.refusals.iter_mut();
        let (code, times) =
            refusals.find_map(|(start, it)| place.starts_with(start).then_some(it))?;
        *times = times.checked_sub(1)?;
        self.writes.push(format!("refused {place}"));
        Some(refusal(*code))
    }

    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        let before = self.objects.get(&key);
        let generation = before.map_or(1, |before| {
            let changed = before["spec"] != object["spec"]
                || before["metadata"]["deletionTimestamp"]
                    != object["metadata"]["deletionTimestamp"];
            before["metadata"]["generation"].as_u64().unwrap() + u64::from(changed)
        });
        let event = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let uid = before.map_or_else(
            || json!(format!("uid-{}", self.version)),
            |it| it["metadata"]["uid"].clone(),
        );
        object["metadata"]["uid"] = uid;
        object["metadata"]["generation"] = json!(generation);
        object["metadata"]["namespace"] = json!(self.namespace);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        let line = json!({"type": event, "object": object});
        self.history.push((self.version, key, line));
        object
    }

    fn remove(&mut self, key: Key) -> Value {
        let mut object = self.objects.remove(&key).unwrap();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = json!({"type": "DELETED", "object": object});
        self.history.push((self.version, key, line));
        object
    }

    /// What an API server does after every change.
    fn update(&mut self, key: Key, object: Value) -> Value {
        let stored = &self.objects[&key];
        let finalizers = object["metadata"]["finalizers"]
            .as_array()
            .map_or(0, Vec::len);
        let leaves = !object["metadata"]["deletionTimestamp"].is_null();
        if *stored == object {
            return object;
        }
        let stored = self.store(key.clone(), object);
        if leaves && finalizers == 0 {
            return self.remove(key);
        }
        stored
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

    fn patch(&mut self, key: Key, patch: &Value) -> Result<Value, u16> {
        let stored = self.objects.get(&key).ok_or(404_u16)?;
        let expected = &patch["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != stored["metadata"]["resourceVersion"] {
            return Err(409);
        }
        let mut merged = stored.clone();
        merge(&mut merged, patch);
        Ok(self.update(key, merged))
    }

    fn apply(&mut self, key: Key, object: Value) -> Value {
        match self.objects.get(&key).cloned() {
            None => self.store(key, object),
            Some(mut stored) => {
                merge(&mut stored, &object);
                self.update(key, stored)
            }
        }
    }

    fn status(&mut self, key: Key, body: &Value) -> Result<Value, u16> {
        let mut stored = self.objects.get(&key).cloned().ok_or(404_u16)?;
        let uid = &body["metadata"]["uid"];
        if !uid.is_null() && *uid != stored["metadata"]["uid"] {
            return Err(409);
        }
        stored["status"] = body["status"].clone();
        Ok(self.update(key, stored))
    }

    fn delete(&mut self, key: Key) -> Result<Value, u16> {
        let mut stored = self.objects.get(&key).cloned().ok_or(404_u16)?;
        if stored["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            return Ok(self.remove(key));
        }
        if stored["metadata"]["deletionTimestamp"].is_null() {
            stored["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now().to_string());
        }
        Ok(self.update(key, stored))
    }

    fn delete_as(&mut self, key: Key, options: &Value) -> Result<Value, u16> {
        let stored = self.objects.get(&key).ok_or(404_u16)?;
        if options["preconditions"]["uid"] != stored["metadata"]["uid"] {
            return Err(409);
        }
        self.delete(key)
    }

    fn after(&self, plural: &str, name: Option<&str>, labelled: bool, since: u64) -> (u64, String) {
        let new = self.history.iter().filter(|(version, key, line)| {
            *version > since && wanted(plural, name, labelled, key, &line["object"])
        });
        new.fold((since, String::new()), |(_, text), (version, _, line)| {
            (*version, format!("{text}{line}\n"))
        })
    }

    fn list(&self, plural: &str, query: &Query) -> Answer {
        let mut items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(key, object)| {
                wanted(plural, query.name.as_deref(), query.labelled, key, object)
            })
            .map(|(_, object)| object)
            .skip(query.from)
            .collect();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if items.len() > PAGE {
            items.truncate(PAGE);
            metadata["continue"] = json!((query.from + PAGE).to_string());
        }
        with(
            200,
            &json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}),
        )
    }
}

fn wanted(plural: &str, name: Option<&str>, labelled: bool, key: &Key, object: &Value) -> bool {
    let label = &object["metadata"]["labels"]["kyma-project.io/runtime-id"];
    key.0 == plural && name.is_none_or(|it| it == key.1) && (!labelled || !label.is_null())
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

fn with(code: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body.boxed_unsync())
        .unwrap()
}

fn refusal(code: u16) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "refused",
        "reason": reason,
    });
    with(code, &status)
}
