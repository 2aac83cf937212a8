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

use super::object::{KEPT_APART, Key, State, Stored};
use super::request::{Query, Target};
use super::respond::{Body, JSON, shown};
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

impl Store {
    /// Notes a change of an object, which is as it is told of.
    pub(super) fn tell(
        &self,
        inner: &mut Inner,
        (key, stored): (&Key, &Stored),
        before: Option<Arc<State>>,
        after: Option<Arc<State>>,
    ) {
        let (version, Some(log)) = (inner.version, &mut inner.log) else {
            return;
        };
        let object = stored.render(key, self.scene(&inner.behaviour));
        log.changes.push_back(Change {
            version,
            key: key.clone(),
            before,
            after,
            object: object.unwrap_or_default().to_string().into(),
        });
        if log.changes.len() > LONGEST_LOG
            && let Some(oldest) = log.changes.pop_front()
        {
            log.forgotten = oldest.version;
        }
        log.told.send_replace(version);
    }

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
                    let found = inner.selected(&target, &query);
                    let objects = found.filter_map(|(key, _)| self.render(&inner, key));
                    let lines = objects.map(|it| line("ADDED", shown(it, partial)));
                    (lines.collect(), version, told)
                }
                Some(seen) => (String::new(), seen.parse().unwrap_or_default(), told),
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
        let lines = stream::iter(Some(first).filter(|it| !it.is_empty())).chain(rest);
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
            return Some(line("ERROR", Refusal::expired().body()));
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
        let selected = |state: &Option<Arc<State>>| {
            let state = state.as_ref();
            state.is_some_and(|state| self.query.selects(&self.target, &change.key, state))
        };
        let event = match (selected(&change.before), selected(&change.after)) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let mut object = serde_json::from_str(&change.object).unwrap_or_default();
        if let ("DELETED", Some(before), Some(_)) = (event, &change.before, &change.after) {
            object = as_selected(&object, before);
        }
        Some(line(event, shown(object, self.partial)))
    }
}

/// An object that is no longer selected, as it was while it was, in its new version.
fn as_selected(object: &Value, before: &State) -> Value {
    let mut selected = before.object.clone();
    for field in KEPT_APART {
        if let Some(value) = object["metadata"].get(field) {
            selected["metadata"][field] = value.clone();
        }
    }
    for field in ["apiVersion", "kind"] {
        selected[field] = object[field].clone();
    }
    selected
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make the object for this line"
)]
fn line(event: &str, object: Value) -> String {
    format!("{}\n", json!({"type": event, "object": object}))
}

/// A watch that falls behind by more has expired.
const LONGEST_LOG: usize = 10_000;
