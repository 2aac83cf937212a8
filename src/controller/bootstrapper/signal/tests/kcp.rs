//! A control plane's API server in process, for tests: lists, streaming watches, discovery, creation and merge patches.
//!
//! It fails the test at every request that the tested parts have no business with: a Secret without a name, a status, a
//! deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::bootstrapper::fake::store::{Key, Store, key};
use crate::bootstrapper::fake::wire::{
    Answer, NAMESPACE, Query, client, parsed, refusal, watched, with,
};

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

pub(in crate::bootstrapper) struct Inner {
    pub(in crate::bootstrapper) store: Store,
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
    /// How long a write of a Runtime takes.
    pub(in crate::bootstrapper) latency: Duration,
    /// The next so many writes are done and then not answered.
    pub(in crate::bootstrapper) silent_writes: usize,
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
                store: Store::new(NAMESPACE),
                writes: Vec::new(),
                events: Vec::new(),
                refusals: HashMap::new(),
                unreadable: BTreeSet::new(),
                served,
                quicker: HashMap::new(),
                reads: Vec::new(),
                writing: 0,
                most_writing: 0,
                latency: Duration::from_millis(20),
                silent_writes: 0,
            }),
            changed: watch::Sender::new(0),
        }));
        kcp.put("namespaces", json!({"metadata": {"name": "kube-system"}}));
        kcp
    }

    pub(in crate::bootstrapper) fn client(&self) -> Client {
        let kcp = self.clone();
        client(move |request| kcp.clone().answer(request))
    }

    pub(in crate::bootstrapper) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap()
    }

    pub(in crate::bootstrapper) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.lock().store.get(&key(plural, name)).cloned()
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
        self.lock().store.store(key(plural, &name), object);
        self.tell();
    }

    /// Somebody applies a merge patch.
    pub(in crate::bootstrapper) fn merge(&self, plural: &str, name: &str, patch: &Value) {
        let patched = self.lock().store.patch(&key(plural, name), patch);
        patched.unwrap();
        self.tell();
    }

    pub(in crate::bootstrapper) fn delete(&self, plural: &str, name: &str) {
        self.lock().store.remove(&key(plural, name));
        self.tell();
    }

    /// Objects of a kind change without events, and then every watch of it has expired.
    pub(in crate::bootstrapper) fn behind_the_watch(
        &self,
        plural: &str,
        change: impl FnOnce(&mut Store),
    ) {
        self.lock().store.behind_the_watch(plural, change);
        self.tell();
    }

    fn tell(&self) {
        self.0.changed.send_modify(|it| *it += 1);
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let home = self.lock().store.namespace;
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
        let query = Query::of(request);
        match plural {
            // Rights name the object, so a list of all is refused by a real one.
            "secrets" | "configmaps" | "clustertrustbundles" => {
                assert!(query.name.is_some(), "{plural}");
            }
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
        if !query.watch {
            return with(200, &self.lock().store.list(plural, &query, usize::MAX));
        }
        let (kcp, plural, since) = (self.clone(), plural.to_owned(), query.version);
        watched(self.0.changed.subscribe(), since, move |since| {
            kcp.lock().store.after(&plural, &query, since)
        })
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
            self.store.store(key.clone(), object);
        }
        let done = match manner {
            Manner::Create => self.store.create(key, body),
            Manner::Replace => self.store.replace(key, body),
            Manner::Merge => self.store.patch(&key, &body),
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
}

fn owned(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|it| (*it).to_owned()).collect()
}
