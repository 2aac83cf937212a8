//! When KCP is told: after the answer or, as the public watcher does it, before. An event that KCP did not take by then goes
//! into the outbox, also when the caller hangs up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chassis::telemetry::error_chain;
use tokio::time::timeout;
use watcher_types::{PathSegment, WatchEvent};

use super::AdmissionService;
use super::answer::{Answer, FAILED, SUCCEEDED};
use crate::delivery::Channel;
use crate::delivery::sync::{Delivery, deliver_now};
use crate::metrics::FAILED_REQUEST;

/// When KCP is told of an event.
#[derive(Clone)]
pub enum DeliveryMode {
    /// After the answer, out of the outbox.
    Async,
    /// Before the answer, in the time that the API server gives.
    Sync(Arc<Channel>),
}

/// What the public project gives the API server to wait, if the request does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);

/// How much earlier than the API server we give up, so that our answer arrives.
const MARGIN: Duration = Duration::from_millis(500);

/// How long the answer may take: the API server says in the query when it gives up (`?timeout=10s`).
pub(super) fn answer_timeout(query: Option<&str>) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let seconds = parameters
        .filter_map(|it| it.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok())
        .map(Duration::from_secs)
        .next();
    seconds
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(2 * DEFAULT_TIMEOUT)
        .saturating_sub(MARGIN)
}

impl AdmissionService {
    /// Tells KCP at once; what it does not take is kept.
    pub(super) async fn tell_now(
        &self,
        channel: &Channel,
        manager: &PathSegment,
        event: &WatchEvent,
        patience: Duration,
    ) -> Answer {
        let mut pending = PendingEvent {
            service: self,
            manager,
            event,
            settled: false,
        };
        // As the public watcher counts: a final failure once, a success at attempt k as k - 1 failures.
        let delivered = timeout(patience, deliver_now(channel, manager, event)).await;
        pending.settled = true;
        let (reason, text) = match delivered {
            Ok(Delivery {
                attempts,
                result: Ok(()),
            }) => {
                self.outbox.took(manager, Instant::now());
                self.metrics.delivered.inc();
                (1..attempts).for_each(|_| self.metrics.failed(FAILED_REQUEST));
                return Answer {
                    message: SUCCEEDED.to_owned(),
                    warning: None,
                };
            }
            Ok(Delivery {
                result: Err(error), ..
            }) => (error.reason(), error_chain(&error)),
            Err(_elapsed) => (FAILED_REQUEST, "KCP did not answer in time".to_owned()),
        };
        self.metrics.failed(reason);
        let _ = self.put(manager, event).await;
        Answer {
            message: format!("{FAILED}\n{text}"),
            warning: None,
        }
    }
}

/// An event that is being delivered; kept for later if the caller hangs up.
struct PendingEvent<'a> {
    service: &'a AdmissionService,
    manager: &'a PathSegment,
    event: &'a WatchEvent,
    settled: bool,
}

impl Drop for PendingEvent<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let AdmissionService {
                outbox, metrics, ..
            } = self.service;
            metrics.stored(outbox.put(self.manager, self.event, Instant::now()).name());
        }
    }
}

#[cfg(test)]
mod tests;
