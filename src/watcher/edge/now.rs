//! When KCP is told: after the answer, or, as the public watcher does it, before.
//!
//! Invariant: the answer comes before the API server gives up, and an event that KCP did not take by then goes into the
//! outbox, also when the caller hangs up (the public watcher loses it).

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::event::{PathSegment, WatchEvent};
use chassis::telemetry::error_chain;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::Edge;
use super::answer::{Answer, FAILED, SUCCEEDED};
use crate::delivery::Channel;
use crate::delivery::sync::{Delivery, deliver_now};
use crate::metrics::FAILED_REQUEST;

/// When KCP is told of an event.
#[derive(Clone)]
pub enum Notify {
    /// After the answer, out of the outbox.
    Spool,
    /// Before the answer, in the time that the API server gives.
    Sync(Arc<Channel>),
}

/// What the public project gives the API server to wait, if the request does not say.
const PATIENCE: Duration = Duration::from_secs(15);

/// How much earlier than the API server we give up, so that our answer arrives.
const MARGIN: Duration = Duration::from_millis(500);

/// How long the answer may take: the API server says in the query when it gives up (`?timeout=10s`).
pub(super) fn patience(query: Option<&str>) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let seconds = parameters
        .filter_map(|it| it.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok())
        .map(Duration::from_secs)
        .next();
    seconds
        .unwrap_or(PATIENCE)
        .min(2 * PATIENCE)
        .saturating_sub(MARGIN)
}

impl Edge {
    /// Tells KCP at once; what it does not take is kept.
    pub(super) async fn tell_now(
        &self,
        channel: &Channel,
        manager: &PathSegment,
        event: &WatchEvent,
        patience: Duration,
    ) -> Answer {
        let mut unsent = Unsent {
            edge: self,
            manager,
            event,
            taken: false,
        };
        let outcome = timeout(patience, deliver_now(channel, manager, event)).await;
        self.count(&outcome);
        let message = match outcome.map(|delivery| delivery.result) {
            Ok(Ok(())) => {
                unsent.taken = true;
                self.outbox.took(manager, Instant::now());
                SUCCEEDED.to_owned()
            }
            Ok(Err(error)) => format!("{FAILED}\n{}", error_chain(&error)),
            Err(_elapsed) => format!("{FAILED}\nKCP did not answer in time"),
        };
        Answer {
            message,
            warning: None,
        }
    }

    /// As the public watcher counts: a final failure once, a success at attempt k as k - 1 failures.
    fn count(&self, outcome: &Result<Delivery, Elapsed>) {
        match outcome {
            Ok(Delivery {
                attempts,
                result: Ok(()),
            }) => {
                self.metrics.delivered();
                (1..*attempts).for_each(|_| self.metrics.failed(FAILED_REQUEST));
            }
            Ok(Delivery {
                result: Err(error), ..
            }) => self.metrics.failed(error.reason()),
            Err(_elapsed) => self.metrics.failed(FAILED_REQUEST),
        }
    }
}

/// An event on its way; kept for later if it does not arrive.
struct Unsent<'a> {
    edge: &'a Edge,
    manager: &'a PathSegment,
    event: &'a WatchEvent,
    taken: bool,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if !self.taken {
            let stored = self
                .edge
                .outbox
                .put(self.manager, self.event, Instant::now());
            self.edge.metrics.stored(stored.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::said(Some("timeout=10s"), 9_500)]
    #[case::among_others(Some("a=b&timeout=3s"), 2_500)]
    #[case::not_said(None, 14_500)]
    #[case::empty(Some(""), 14_500)]
    #[case::no_number(Some("timeout=soon"), 14_500)]
    #[case::too_long(Some("timeout=3600s"), 29_500)]
    #[case::none(Some("timeout=0s"), 0)]
    fn the_api_server_says_when_it_gives_up(#[case] query: Option<&str>, #[case] millis: u64) {
        assert_eq!(patience(query), Duration::from_millis(millis));
    }
}
