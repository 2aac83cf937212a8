//! Time of the delivery of an event: after the response or, as in the public watcher, before it. An event that KCP has not
//! accepted before the response is put into the outbox, also if the client disconnects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use component_base::telemetry::error_chain;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use watcher_types::{PathSegment, WatchEvent};

use super::AdmissionService;
use super::answer::{Answer, FAILED, SUCCEEDED};
use crate::delivery::Channel;
use crate::delivery::sync::{WAITS, Waits, deliver_now};
use crate::metrics::FAILED_REQUEST;

/// When an event is delivered to KCP.
#[derive(Clone)]
pub enum DeliveryMode {
    /// After the response, from the outbox.
    Async,
    /// Before the response; see [`DeliveryMode::sync`].
    Sync(SyncDelivery),
}

/// Delivery before the response, while the semaphore has a permit.
#[derive(Clone)]
pub struct SyncDelivery {
    channel: Arc<Channel>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) waits: Waits,
}

impl DeliveryMode {
    /// Returns the mode that delivers before the response: at most [`MAX_SYNC_DELIVERIES`] events at a time, each for at
    /// most 10 seconds.
    #[must_use]
    pub fn sync(channel: Arc<Channel>) -> Self {
        Self::Sync(SyncDelivery {
            channel,
            permits: Arc::new(Semaphore::new(MAX_SYNC_DELIVERIES)),
            waits: WAITS,
        })
    }
}

/// Maximum number of reviews that wait for KCP at a time. Each of them occupies a connection of the API server, so a slow
/// KCP must not block more.
pub const MAX_SYNC_DELIVERIES: usize = 64;

/// Maximum wait for KCP. An API server may allow 30 seconds, and any client may post a review.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// Time by which the wait ends before the timeout of the API server, so that the response arrives in time.
const MARGIN: Duration = Duration::from_millis(500);

/// Returns how long a review may wait for KCP. The API server sends its timeout in the query (`?timeout=10s`).
pub(super) fn answer_timeout(query: Option<&str>) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let seconds = parameters
        .filter_map(|it| it.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok())
        .map(Duration::from_secs)
        .next();
    seconds.map_or(MAX_TIMEOUT, |it| it.saturating_sub(MARGIN).min(MAX_TIMEOUT))
}

impl AdmissionService {
    /// Delivers an event for at most `limit`, if a permit is available. An event that KCP does not accept is put into the outbox.
    pub(super) async fn deliver(
        &self,
        delivery: &SyncDelivery,
        manager: &PathSegment,
        event: &WatchEvent,
        limit: Duration,
    ) -> Answer {
        let mut pending = PendingEvent {
            service: self,
            manager,
            event,
            settled: false,
        };
        // Counts as the public watcher does: a final failure once, and a success at attempt k as k - 1 failures.
        let delivered = match delivery.permits.try_acquire() {
            Ok(_permit) => {
                let now = deliver_now(&delivery.channel, delivery.waits, manager, event);
                let delivered = timeout(limit, now).await;
                delivered.map_err(|_elapsed| "KCP did not answer in time")
            }
            Err(_) => Err("too many deliveries wait for KCP"),
        };
        pending.settled = true;
        let (reason, text) = match delivered {
            Ok((attempts, Ok(()))) => {
                self.outbox.took(manager, Instant::now());
                self.metrics.delivered.inc();
                (1..attempts).for_each(|_| self.metrics.failed(FAILED_REQUEST));
                return Answer {
                    message: SUCCEEDED.to_owned(),
                    warning: None,
                };
            }
            Ok((_, Err(error))) => (error.reason(), error_chain(&error)),
            Err(text) => (FAILED_REQUEST, text.to_owned()),
        };
        self.metrics.failed(reason);
        let _ = self.put(manager, event).await;
        Answer {
            message: format!("{FAILED}\n{text}"),
            warning: None,
        }
    }
}

/// An event that is being delivered. It is put into the outbox if the client disconnects.
struct PendingEvent<'a> {
    service: &'a AdmissionService,
    manager: &'a PathSegment,
    event: &'a WatchEvent,
    settled: bool,
}

impl Drop for PendingEvent<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let outbox = &self.service.outbox;
            let stored = outbox.put(self.manager, self.event, Instant::now());
            self.service.metrics.stored(stored.name());
        }
    }
}

#[cfg(test)]
mod tests;
