//! A control plane's API server in process: lists in pages, watches, server-side apply of a status, finalizers.
//!
//! It fails the test where a list of Secrets is asked for with their contents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::watch;

use crate::bootstrapper::fake::store::{Store, key};
use crate::bootstrapper::fake::wire::{
    Answer, NAMESPACE, Query, client, parsed, refusal, watched, with,
};

/// Objects in one page at most, whatever a client would take.
const PAGE: usize = 2;

#[derive(Clone)]
pub(super) struct Kcp(Arc<(Mutex<State>, watch::Sender<u64>)>);

pub(super) struct State {
    pub(super) store: Store,
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
            store: Store::new(NAMESPACE),
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
        client(move |request| kcp.clone().answer(request))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    fn tell(&self) {
        self.0.1.send_modify(|it| *it += 1);
    }

    pub(super) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        self.lock().store.get(&key(plural, name)).cloned()
    }

    /// Somebody creates or replaces an object.
    pub(super) fn put(&self, plural: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.lock().store.store(key(plural, &name), object);
        self.tell();
    }

    /// Somebody changes an object.
    pub(super) fn merge(&self, plural: &str, name: &str, patch: &Value) {
        let patched = self.lock().store.patch(&key(plural, name), patch);
        patched.unwrap();
        self.tell();
    }

    /// Somebody deletes an object; finalizers hold it.
    pub(super) fn delete(&self, plural: &str, name: &str) {
        let deleted = self.lock().store.delete(&key(plural, name));
        deleted.unwrap();
        self.tell();
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let uri = request.uri().clone();
        let mut parts: Vec<&str> = uri.path().split('/').skip(1).collect();
        let namespace = self.lock().store.namespace;
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
                return refusal(504, None);
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
            "list" => {
                let list = self.lock().store.list(&plural, &Query::of(&request), PAGE);
                with(200, &list)
            }
            "watch" => self.watch(plural, Query::of(&request)),
            "read" => self
                .get(&plural, name)
                .map_or_else(|| refusal(404, None), |object| with(200, &object)),
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
        let body = parsed(request).await;
        let name = rest
            .get(1)
            .copied()
            .unwrap_or_else(|| body["metadata"]["name"].as_str().unwrap());
        let key = key(rest[0], name);
        let place = [&[rest[0], name], rest.get(2..).unwrap_or_default()].concat();
        let done = {
            let mut state = self.lock();
            state.writes.push(format!("{verb} {}", place.join("/")));
            let store = &mut state.store;
            match (verb, rest.get(2)) {
                ("create", None) => store.create(key, body),
                ("replace", None) => store.replace(key, body),
                ("patch", None) => store.patch(&key, &body),
                ("apply", None) => Ok(store.apply(key, body)),
                ("apply", Some(&"status")) => store.status(&key, &body),
                ("delete", None) => store.delete_as(&key, &body),
                _ => panic!("unexpected: {verb} {rest:?}"),
            }
        };
        self.tell();
        done.map_or_else(|code| refusal(code, None), |object| with(200, &object))
    }

    fn watch(&self, plural: String, query: Query) -> Answer {
        let kcp = self.clone();
        watched(self.0.1.subscribe(), query.version, move |since| {
            kcp.lock().store.after(&plural, &query, since)
        })
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

impl State {
    fn refused(&mut self, place: &str) -> Option<Answer> {
        let mut refusals = self.refusals.iter_mut();
        let (code, times) =
            refusals.find_map(|(start, it)| place.starts_with(start).then_some(it))?;
        *times = times.checked_sub(1)?;
        self.writes.push(format!("refused {place}"));
        Some(refusal(*code, None))
    }
}
