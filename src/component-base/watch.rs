//! Watches that retry without an end.
//!
//! The watcher of kube recovers from errors, but returns each error and does not pause. This watch pauses with backoff,
//! logs a change of state once, and reports failures with a readiness check. Its stream contains only events. Invariant:
//! the stream returns no error and does not end. Each watch has a separate backoff.
//!
//! A watch that gets no response of the API server two times in a row lists again. An API server that was restored from
//! a backup may have earlier resource versions: it accepts a watch from a later one, and sends no event before it has
//! reached that version.
//!
//! The check is not ready until the first list is complete. After that a failing watch only sets a message, because the
//! last state is still served. A failing watch is also a metric (`metrics`). Check and metric end with the stream: a
//! dropped watch, such as a watch of a former leader, is neither ready nor failing.
//!
//! For a kind that another installation defines ([`watch_if_served`]), the response that the API server does not serve it
//! also completes the first list, so that a missing CustomResourceDefinition does not keep the process from being ready.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use jiff::Timestamp;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

pub use self::changes::{WatchChange, changes};
pub use self::metrics::WatchMetrics;
pub use self::object::watch_object;
use crate::backoff::Backoff;
use crate::client::STREAM_HEAD_TIMEOUT;
use crate::readiness::ReadinessCheck;
use crate::telemetry::error_chain;

mod changes;
mod metrics;
mod object;

/// Time after a retry without an error, after which a watch without events counts as recovered: a failing attempt would
/// have returned an error within [`STREAM_HEAD_TIMEOUT`].
const RECOVERY_TIMEOUT: Duration = STREAM_HEAD_TIMEOUT.saturating_add(Duration::from_secs(15));

/// Watches with backoff. No request is sent before the stream is polled.
///
/// `Init` starts a list and `InitDone` completes it. A list that fails is restarted with another `Init`, so the caller must
/// collect objects until `InitDone`.
pub fn watch_with_backoff<K>(
    api: Api<K>,
    config: watcher::Config,
    check: ReadinessCheck,
) -> impl Stream<Item = Event<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch(api, config, WatchHealth::new(check))
}

/// Watches as [`watch_with_backoff`], a kind that the API server may not serve because another installation defines it.
///
/// While it is not served, the check is ready with a message, the metric reports a failing watch, and the stream contains only
/// `Init`. The list is repeated until the kind is served.
pub fn watch_if_served<K>(
    api: Api<K>,
    config: watcher::Config,
    check: ReadinessCheck,
) -> impl Stream<Item = Event<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut health = WatchHealth::new(check);
    health.may_be_absent = true;
    watch(api, config, health)
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    health: WatchHealth,
) -> impl Stream<Item = Event<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    supervise(move || watcher(api.clone(), config.clone()).boxed(), health)
}

fn supervise<K: Send + 'static>(
    begin: impl Fn() -> BoxStream<'static, watcher::Result<Event<K>>> + Send,
    health: WatchHealth,
) -> impl Stream<Item = Event<K>> + Send {
    let state = (begin(), begin, health);
    stream::unfold(state, async |(mut events, begin, mut health)| {
        loop {
            let error = match next_item(&mut events, &mut health).await {
                Some(Ok(event)) => {
                    health.succeeded(&event);
                    return Some((event, (events, begin, health)));
                }
                Some(Err(error)) => Some(error),
                // The watcher of kube does not end. If a later version does, the watch is restarted.
                None => None,
            };
            if error.as_ref().is_some_and(is_not_served) {
                health.not_served();
            }
            let text = error.as_ref().map(|it| error_chain(it));
            let earlier_failures = health.failed(text.as_deref().unwrap_or("the watch ended"));
            // Once in an outage: after it the watcher of kube tries the list itself until it succeeds.
            let lists_again =
                earlier_failures == 1 && error.as_ref().is_some_and(is_without_response);
            if lists_again || error.is_none() {
                health.lists_again |= lists_again;
                events = begin();
            }
            sleep(Backoff::WATCH.delay(earlier_failures, fastrand::u64(..))).await;
        }
    })
}

/// Returns whether a watch got no response of the API server. While it rejects watches, lists would only be more load.
fn is_without_response(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(error) => !matches!(error, kube::Error::Api(_)),
        watcher::Error::WatchFailed(_) => true,
        _ => false,
    }
}

/// Returns whether the API server responded that it does not serve the kind. The list of a kind that it serves is never 404.
fn is_not_served(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Returns the next item of a watch. The watch counts as recovered if there is no item for a while.
async fn next_item<T>(events: &mut BoxStream<'static, T>, health: &mut WatchHealth) -> Option<T> {
    if health.may_have_recovered() {
        if let Ok(item) = timeout(RECOVERY_TIMEOUT, events.next()).await {
            return item;
        }
        health.recovered();
    }
    events.next().await
}

/// Reported state of a watch.
struct WatchHealth {
    check: ReadinessCheck,
    /// Whether the first list is complete.
    synced: bool,
    /// Whether the API server may not serve the kind.
    may_be_absent: bool,
    /// Whether a list was started because the watch fails. Its success does not show that watches succeed.
    lists_again: bool,
    failing: Option<WatchFailure>,
}

struct WatchFailure {
    since: Timestamp,
    times: u32,
}

impl WatchHealth {
    fn new(check: ReadinessCheck) -> Self {
        check.not_ready("first list not complete yet");
        check.watches().set(check.name(), false);
        Self {
            check,
            synced: false,
            may_be_absent: false,
            lists_again: false,
            failing: None,
        }
    }

    /// Handles an event. Not each event proves that the API server responds: `Init` precedes the first request of a list,
    /// and a page of a list may be followed by a failing page.
    fn succeeded<K>(&mut self, event: &Event<K>) {
        match event {
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone if !self.synced => {
                self.synced = true;
                self.check.ready();
                self.recovered();
            }
            Event::InitDone if std::mem::take(&mut self.lists_again) => {}
            Event::InitDone | Event::Apply(_) | Event::Delete(_) => self.recovered(),
        }
    }

    /// Handles the response that the kind is not served: no object of it exists.
    fn not_served(&mut self) {
        self.synced |= self.may_be_absent;
    }

    /// Returns whether a watch without events may have recovered, which requires a complete first list.
    fn may_have_recovered(&self) -> bool {
        self.synced && self.failing.is_some()
    }

    fn recovered(&mut self) {
        if let Some(WatchFailure { since, times }) = self.failing.take() {
            let watch = self.check.name();
            tracing::info!(watch, %since, failures = times, "watch re-established");
            self.check.watches().set(watch, false);
            self.check.ready();
        }
    }

    /// Reports a failure. Returns the number of consecutive failures before it.
    fn failed(&mut self, error: &str) -> u32 {
        let check = &self.check;
        let failing = self.failing.get_or_insert_with(|| {
            tracing::warn!(watch = check.name(), error, "watch failed");
            check.watches().set(check.name(), true);
            WatchFailure {
                since: Timestamp::now(),
                times: 0,
            }
        });
        let WatchFailure { since, times } = failing;
        let text = format!("failing since {since:.0}: {error}");
        if self.synced {
            check.detail(text);
        } else {
            check.not_ready(text);
        }
        let earlier = *times;
        *times = times.saturating_add(1);
        earlier
    }
}

impl Drop for WatchHealth {
    fn drop(&mut self) {
        self.check.watches().set(self.check.name(), false);
        self.check.remove();
    }
}

#[cfg(test)]
mod tests;
