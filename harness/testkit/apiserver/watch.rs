//! Watches: streams of changes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, timeout_at};

use super::behavior::Behavior;
use super::object::{Key, State, Stored};
use super::request::{Query, Target};
use super::respond::{JSON, shown};
use super::status::Refusal;
use super::store::{Inner, Store};
use crate::tls::{Body, streamed};

/// History of changes for watches.
#[derive(Debug)]
pub(super) struct Log {
    /// Changes up to this version are not available any more.
    pub(super) forgotten: u64,
    pub(super) changes: VecDeque<Change>,
    pub(super) told: watch::Sender<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Change {
    key: Key,
    before: Option<Arc<State>>,
    /// The stored object after the change.
    after: Stored,
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
    pub(super) fn tell(&mut self, key: &Key, after: Stored, before: Option<Arc<State>>) {
        let Some(log) = &mut self.log else {
            return;
        };
        log.changes.push_back(Change {
            key: key.clone(),
            before,
            after,
        });
        if log.changes.len() > LONGEST_LOG
            && let Some(oldest) = log.changes.pop_front()
        {
            log.forgotten = oldest.after.version;
        }
        log.told.send_replace(self.version);
    }
}

impl Store {
    /// Starts a watch. Without a resource version it first returns all objects, then every change since that version.
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
            let log = inner.log.get_or_insert_with(|| Log::since(version));
            let told = log.told.subscribe();
            match query.resource_version.as_str() {
                "" | "0" => {
                    let found = inner.selected(&target, &query);
                    let objects = found.filter_map(|(key, _)| self.render(&inner, key));
                    let lines = objects.map(|it| line("ADDED", &shown(it, partial)));
                    (lines.collect(), version, told)
                }
                seen => (String::new(), seen.parse().unwrap_or_default(), told),
            }
        };
        let timeout = query.timeout_seconds.map(Duration::from_secs);
        let end = timeout.map(|timeout| Instant::now() + timeout);
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
        let mut response = streamed(lines.map(|text| Ok(Bytes::from(text))));
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Ok(response)
    }
}

struct Watch {
    store: Arc<Store>,
    target: Target,
    query: Query,
    partial: bool,
    /// Last version that the client has received; `None` after an error, which ends the watch.
    since: Option<u64>,
    told: watch::Receiver<u64>,
    end: Option<Instant>,
}

impl Watch {
    /// Returns the next lines; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.told.mark_unchanged();
            let text = self.changes()?;
            if !text.is_empty() {
                return Some(text);
            }
            let told = self.told.changed();
            match self.end {
                Some(end) => timeout_at(end, told).await.ok()?.ok()?,
                None => told.await.ok()?,
            }
        }
    }

    fn changes(&mut self) -> Option<String> {
        let since = self.since?;
        let inner = self.store.inner();
        let log = inner.log.as_ref()?;
        if log.forgotten > since {
            self.since = None;
            return Some(line("ERROR", &Refusal::expired().0));
        }
        let is_seen = |change: &Change| change.after.version <= since;
        let new = log.changes.range(log.changes.partition_point(is_seen)..);
        let lines = new.filter_map(|change| self.told_of(change, &inner.behavior));
        let text: String = lines.collect();
        // After the version was reset to that of a backup, the last change may have a newer version.
        let last = log.changes.back().map_or(since, |it| it.after.version);
        self.since = Some(inner.version.max(since).max(last));
        Some(text)
    }

    /// Returns the line for a change. An object that becomes selected is added; an object that is no longer selected is
    /// deleted.
    fn told_of(&self, change: &Change, behavior: &Behavior) -> Option<String> {
        let Change { key, before, after } = change;
        let selected = |state: &Option<Arc<State>>| {
            let state = state.as_ref();
            state.is_some_and(|state| self.query.selects(&self.target, key, state))
        };
        let (event, state) = match (selected(before), selected(&after.state)) {
            (false, false) => return None,
            (false, true) => ("ADDED", &after.state),
            (true, true) => ("MODIFIED", &after.state),
            // The content that was selected, with the new version.
            (true, false) => ("DELETED", before),
        };
        let stored = Stored {
            state: state.clone(),
            ..after.clone()
        };
        let object = stored.render(key, &self.store.common, behavior)?;
        Some(line(event, &shown(object, self.partial)))
    }
}

fn line(event: &str, object: &Value) -> String {
    // The order of the fields is that of a real API server.
    let event = json!(event);
    format!("{{\"type\":{event},\"object\":{object}}}\n")
}

/// Largest number of changes in the history. A watch with more outstanding changes expires.
const LONGEST_LOG: usize = 10_000;
