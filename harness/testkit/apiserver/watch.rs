//! Watches: streams of changes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};

use super::object::{KEPT_APART, Key, State};
use super::request::{Query, Target};
use super::respond::{Body, JSON, is_of, shown};
use super::status::Refusal;
use super::store::{Inner, Store};

/// Changes that a watch may be told of.
#[derive(Debug)]
pub(super) struct Log {
    /// Changes up to this version are forgotten.
    pub(super) forgotten: u64,
    pub(super) changes: VecDeque<Change>,
    pub(super) told: watch::Sender<u64>,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) before: Option<Arc<State>>,
    pub(super) after: Option<Arc<State>>,
    /// The object after it, or before it was deleted.
    pub(super) object: Arc<str>,
}

impl Log {
    pub(super) fn since(version: u64) -> Self {
        Self {
            forgotten: version,
            changes: VecDeque::new(),
            told: watch::Sender::new(version),
        }
    }
}

impl Inner {
    pub(super) fn tell(
        &mut self,
        key: &Key,
        before: Option<Arc<State>>,
        after: Option<Arc<State>>,
        object: String,
    ) {
        let version = self.version;
        let Some(log) = &mut self.log else {
            return;
        };
        log.changes.push_back(Change {
            version,
            key: key.clone(),
            before,
            after,
            object: object.into(),
        });
        if log.changes.len() > LONGEST_LOG
            && let Some(oldest) = log.changes.pop_front()
        {
            log.forgotten = oldest.version;
        }
        log.told.send_replace(version);
    }
}

impl Store {
    /// A watch: what is there if the client has seen nothing, then every change since the version that it has seen.
    pub(super) fn watching(
        self: &Arc<Self>,
        target: Target,
        query: Query,
        partial: bool,
    ) -> Result<Response<Body>, Refusal> {
        let (first, since, told) = {
            let mut inner = self.inner();
            inner.reached(&query)?;
            let version = inner.version;
            let told = inner
                .log
                .get_or_insert_with(|| Log::since(version))
                .told
                .subscribe();
            match query.resource_version.as_deref() {
                None | Some("0") => {
                    let scene = self.scene(&inner.behaviour);
                    let live = inner.objects.iter().filter(|(key, stored)| {
                        let selects =
                            |state: &Arc<State>| query.selects(key, || state.owned().content);
                        is_of(&target, key) && stored.state.as_ref().is_some_and(selects)
                    });
                    let added = live.filter_map(|(key, stored)| stored.render(key, scene));
                    let lines: Vec<String> =
                        added.map(|it| line("ADDED", &shown(it, partial))).collect();
                    (lines, version, told)
                }
                Some(seen) => (Vec::new(), seen.parse().unwrap_or_default(), told),
            }
        };
        let end = query
            .timeout
            .map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let watch = Watch {
            store: Arc::clone(self),
            target,
            query,
            partial,
            since: Some(since),
            told,
            end,
        };
        let rest = stream::unfold(watch, |mut watch| async {
            let text = watch.next().await?;
            Some((text, watch))
        });
        let first = (!first.is_empty()).then(|| first.concat());
        let lines = stream::iter(first).chain(rest);
        let frames = lines.map(|text| Ok(Frame::data(Bytes::from(text))));
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Ok(response)
    }
}

/// An open watch.
struct Watch {
    store: Arc<Store>,
    target: Target,
    query: Query,
    partial: bool,
    /// The last version that the client has seen; absent after an error, which ends the watch.
    since: Option<u64>,
    told: watch::Receiver<u64>,
    end: Option<Instant>,
}

impl Watch {
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.told.mark_unchanged();
            let text = self.changes()?;
            if !text.is_empty() {
                return Some(text);
            }
            let timeout = async {
                match self.end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                told = self.told.changed() => told.ok()?,
                () = timeout => return None,
            }
        }
    }

    fn changes(&mut self) -> Option<String> {
        let since = self.since?;
        let inner = self.store.inner();
        let log = inner.log.as_ref()?;
        if log.forgotten > since {
            self.since = None;
            let mut status = Refusal::expired().body();
            status["details"] = json!({});
            return Some(line("ERROR", &status.to_string()));
        }
        let start = log
            .changes
            .partition_point(|change| change.version <= since);
        let new = log
            .changes
            .range(start..)
            .filter_map(|change| self.told_of(change));
        let text: String = new.collect();
        // After the version went back to that of a backup, the last change may be newer.
        let last = log.changes.back().map_or(since, |it| it.version);
        self.since = Some(inner.version.max(since).max(last));
        Some(text)
    }

    /// The line of a change: an object that begins to be selected is added, one that ends to be is deleted.
    fn told_of(&self, change: &Change) -> Option<String> {
        let Change {
            key,
            before,
            after,
            object,
            ..
        } = change;
        if !is_of(&self.target, key) {
            return None;
        }
        let selected = |state: &Option<Arc<State>>| {
            let state = state.as_ref();
            state.is_some_and(|state| self.query.selects(key, || state.owned().content))
        };
        let event = match (selected(before), selected(after)) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let object = match (event, before, after) {
            ("DELETED", Some(before), Some(_)) => as_selected(object, before),
            _ => object.as_ref().to_owned(),
        };
        Some(line(event, &shown(object, self.partial)))
    }
}

/// An object that is no longer selected, as it was while it was, in its new version.
fn as_selected(object: &str, before: &State) -> String {
    let mut object: Value = serde_json::from_str(object).unwrap_or_default();
    let mut content = before.owned().content;
    for field in KEPT_APART {
        let value = object["metadata"][field].take();
        if !value.is_null() {
            content["metadata"][field] = value;
        }
    }
    for field in ["apiVersion", "kind"] {
        content[field] = object[field].take();
    }
    content.to_string()
}

fn line(event: &str, object: &str) -> String {
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
}

/// A watch that falls behind by more has expired.
const LONGEST_LOG: usize = 10_000;
