//! A watch that never ends.
//!
//! kube's watcher recovers from errors but hands each one to its reader, without a pause. Here
//! an error is a pause, one log line at each change of state, and a readiness condition; the
//! reader sees events only. Invariant: the stream yields no error and has no end. Each watch has
//! its own back-off, so a failing one delays no other.
//!
//! The condition is not ready until the first complete list has arrived. From then on a failing
//! watch is a remark only: the last known state still serves. Beside the condition, a failing watch is a metric
//! (`metrics`). Both end with the stream: a watch that is not polled any more, such as one of an earlier leader, is neither
//! ready nor failing.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use jiff::Timestamp;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

pub use self::metrics::WatchMetrics;
pub use self::object::watch_object;
use crate::backoff::Backoff;
use crate::client::STREAM_HEAD;
use crate::readiness::Condition;
use crate::telemetry::error_chain;

mod metrics;
mod object;

/// After a retry that met no error for this long, a watch on which simply nothing happens is
/// taken to work again: a failing attempt would have said so within [`STREAM_HEAD`].
const QUIET: Duration = STREAM_HEAD.saturating_add(Duration::from_secs(15));

/// Watches for ever. Nothing is asked before the stream is polled.
///
/// `Init` begins a complete list and `InitDone` ends it; a list that fails half-way begins anew
/// with another `Init`, so gather until `InitDone`.
pub fn keep_watching<K>(
    api: Api<K>,
    config: watcher::Config,
    condition: Condition,
) -> impl Stream<Item = Event<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    let keeper = Keeper {
        events: begin(),
        begin,
        health: Health::new(condition),
    };
    stream::unfold(keeper, async |mut keeper| {
        Some((keeper.next().await, keeper))
    })
}

struct Keeper<K, B> {
    begin: B,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    health: Health,
}

impl<K, B> Keeper<K, B>
where
    B: Fn() -> BoxStream<'static, watcher::Result<Event<K>>>,
{
    async fn next(&mut self) -> Event<K> {
        loop {
            match self.poll().await {
                Some(Ok(event)) => {
                    self.health.succeeded(&event);
                    return event;
                }
                Some(Err(error)) => self.pause_after(&error_chain(&error)).await,
                // kube's watcher has no end today; should it get one, begin anew.
                None => {
                    self.pause_after("the watch ended").await;
                    self.events = (self.begin)();
                }
            }
        }
    }

    async fn poll(&mut self) -> Option<watcher::Result<Event<K>>> {
        if self.health.may_be_quiet()
            && let Ok(item) = timeout(QUIET, self.events.next()).await
        {
            return item;
        }
        self.health.quiet();
        self.events.next().await
    }

    async fn pause_after(&mut self, error: &str) {
        let earlier_failures = self.health.failed(error);
        sleep(Backoff::WATCH.delay(earlier_failures, fastrand::u64(..))).await;
    }
}

/// What is told about a watch.
struct Health {
    condition: Condition,
    synced: bool,
    failing: Option<Failing>,
}

struct Failing {
    since: Timestamp,
    times: u32,
}

impl Health {
    fn new(condition: Condition) -> Self {
        condition.not_ready("first list not complete yet");
        condition.watches().set(condition.name(), false);
        Self {
            condition,
            synced: false,
            failing: None,
        }
    }

    /// Only what proves that the API server answered: `Init` precedes the first request of a
    /// list, and one page of a list may be followed by a page that fails.
    fn succeeded<K>(&mut self, event: &Event<K>) {
        match event {
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone if !self.synced => {
                self.synced = true;
                self.condition.ready();
                self.recovered();
            }
            Event::InitDone | Event::Apply(_) | Event::Delete(_) => self.recovered(),
        }
    }

    /// Whether silence could mean that all is well: not while the first list is missing.
    fn may_be_quiet(&self) -> bool {
        self.synced && self.failing.is_some()
    }

    fn quiet(&mut self) {
        if self.may_be_quiet() {
            self.recovered();
        }
    }

    fn recovered(&mut self) {
        if let Some(Failing { since, times }) = self.failing.take() {
            let watch = self.condition.name();
            tracing::info!(watch, %since, failures = times, "watch re-established");
            self.condition.watches().set(watch, false);
            self.condition.ready();
        }
    }

    /// Gives the number of failures in a row before this one.
    fn failed(&mut self, error: &str) -> u32 {
        let condition = &self.condition;
        let failing = self.failing.get_or_insert_with(|| {
            tracing::warn!(watch = condition.name(), error, "watch failed");
            condition.watches().set(condition.name(), true);
            Failing {
                since: Timestamp::now(),
                times: 0,
            }
        });
        let Failing { since, times } = failing;
        let text = format!("failing since {since:.0}: {error}");
        if self.synced {
            condition.detail(text);
        } else {
            condition.not_ready(text);
        }
        let earlier = *times;
        *times = times.saturating_add(1);
        earlier
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.condition.watches().set(self.condition.name(), false);
        self.condition.remove();
    }
}

#[cfg(test)]
mod tests;
