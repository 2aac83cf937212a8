//! Sends due events from the outbox, and puts them back if KCP does not accept them.
//!
//! Each event that was taken is settled: delivered after a 2xx response, put back, or dropped with a mark that requests a
//! resync of its manager. If the process ends in between, the spool still contains the event, and the next process sends it
//! again. On shutdown all waiting events, including follow-up events, are sent once more immediately, within a time limit,
//! because the spool of a Pod is deleted with the Pod.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component_base::backoff::Backoff;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use watcher_types::PathSegment;

use self::log::{DeliveryLog, Subject};
use super::Channel;
use super::circuit::CircuitBreakers;
use super::error::PostError;
use crate::certificates::OutboundState;
use crate::metrics::WatcherMetrics;
use crate::outbox::{Item, Managers, Outbox, Settlement};

mod log;

/// Backoff between attempts for one event.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_mins(1),
};

/// Time that is longer than all waits, so that all events are due by then.
const EVERYTHING: Duration = Duration::from_hours(24);

/// Maximum number of concurrent requests with events. A manager gets a further one only while it has fewer than are free, so
/// that one manager has at most half of them, and several slow managers leave some to the others. More would be quicker for one
/// runtime, but after an outage of KCP the watchers of all runtimes open this many connections to its gateway.
pub const IN_FLIGHT: usize = 32;

/// Time limit of the last deliveries at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends events from the outbox to KCP.
pub struct Sender {
    post: Post,
    /// Changes when new certificates become active.
    certificates: watch::Receiver<OutboundState>,
    outbox: Outbox,
    metrics: WatcherMetrics,
}

/// Function that posts one event.
type Post = Box<dyn Fn(&Item) -> BoxFuture<'static, Result<(), PostError>> + Send + Sync>;

/// An event, the time when it was sent, and the result.
type Posted = (Item, Instant, Result<(), PostError>);

/// The requests in progress and the state of the circuit breakers.
struct Window {
    circuit: CircuitBreakers,
    /// Number of evicted managers when `circuit` was last updated.
    evictions: u64,
    log: DeliveryLog,
    posts: FuturesUnordered<BoxFuture<'static, Posted>>,
    /// Number of requests in progress by manager.
    posts_by_manager: HashMap<PathSegment, usize>,
    /// Set on shutdown: all events count as due, and events that fail again are not retried.
    last_round: bool,
}

impl Sender {
    /// Creates a sender that uses `channel`.
    #[must_use]
    pub fn new(channel: Arc<Channel>, outbox: Outbox, metrics: WatcherMetrics) -> Self {
        let certificates = channel.certificates();
        let post = move |item: &Item| -> BoxFuture<'static, _> {
            let (channel, item) = (channel.clone(), item.clone());
            Box::pin(async move {
                let sequence = Some(item.sequence);
                let posted = channel.post_event(&item.manager, &item.event, sequence);
                posted.await
            })
        };
        Self {
            post: Box::new(post),
            certificates,
            outbox,
            metrics,
        }
    }

    /// Delivers events until `cancel`, and then the remaining events within `DRAIN_TIMEOUT`.
    pub async fn run(self, cancel: CancellationToken) {
        let mut window = Window::new(false);
        let mut certificates = self.certificates.clone();
        while !cancel.is_cancelled() {
            let next = self.dispatch(&mut window);
            let next = next.unwrap_or_else(|| now() + EVERYTHING);
            let has_capacity = window.free() > 0;
            tokio::select! {
                () = cancel.cancelled() => {}
                Some(posted) = window.posts.next() => self.settle(&mut window, posted),
                () = self.outbox.changed(), if has_capacity => {}
                Ok(()) = certificates.changed() => {
                    // An invalid set does not improve the situation.
                    if certificates.borrow_and_update().is_ok() {
                        window.circuit.certificates_renewed(now());
                    }
                }
                () = sleep_until(next.into()) => {}
            }
        }
        let drained = timeout(DRAIN_TIMEOUT, self.drain(window)).await;
        let left = self.outbox.report(now()).undelivered;
        if left > 0 {
            let in_time = drained.is_ok();
            tracing::info!(left, in_time, "shutting down with undelivered events");
        }
    }

    /// Sends all events once, until the circuit of KCP opens.
    async fn drain(&self, before: Window) {
        let mut window = Window::new(true);
        (window.posts, window.log) = (before.posts, before.log);
        window.posts_by_manager = before.posts_by_manager;
        loop {
            // If KCP was unavailable, it gets exactly one more attempt.
            if !window.circuit.is_open() {
                self.dispatch(&mut window);
            }
            let Some(posted) = window.posts.next().await else {
                return;
            };
            self.settle(&mut window, posted);
        }
    }

    /// Starts all permitted requests. Returns when further requests may be permitted.
    fn dispatch(&self, window: &mut Window) -> Option<Instant> {
        let evictions = self.outbox.managers(Managers::evictions);
        if evictions != window.evictions {
            window.evictions = evictions;
            self.outbox.managers(|managers| {
                let is_registered = |manager: &_| managers.place(manager).is_some();
                window.circuit.retain(is_registered);
                window.log.retain(is_registered);
            });
        }
        let last_round = window.last_round;
        while window.free() > 0 {
            let now = now();
            // Events that are due by then may be sent.
            let horizon = if last_round { now + EVERYTHING } else { now };
            let free = window.free();
            let (circuit, posts) = (&mut window.circuit, &window.posts_by_manager);
            let permit = |manager: &_, known| {
                // The next attempt follows the end of one of the requests in progress.
                if posts.get(manager).is_some_and(|it| *it >= free) {
                    return Err(None);
                }
                // The last round has no time for spacing.
                circuit.permit(manager, known || last_round, now)
            };
            match self.outbox.take_permitted(horizon, permit) {
                Ok((item, sent_at)) => {
                    let posts = &mut window.posts_by_manager;
                    *posts.entry(item.manager.clone()).or_default() += 1;
                    window.posts.push(self.posted(item, sent_at));
                }
                Err(again_at) => return again_at,
            }
        }
        None
    }

    fn posted(&self, item: Item, sent_at: Instant) -> BoxFuture<'static, Posted> {
        let post = (self.post)(&item);
        Box::pin(async move { (item, sent_at, post.await) })
    }

    fn settle(&self, window: &mut Window, (item, sent_at, result): Posted) {
        let now = now();
        window.ended(&item.manager);
        let is_known = self.outbox.managers(|it| it.knows(&item.manager));
        let subject = if is_known {
            Subject::Manager(item.manager.clone())
        } else {
            Subject::Others
        };
        if let Err(error) = result {
            self.metrics.failed(error.reason());
            self.metrics.refused(error.kind());
            let was_open = window.circuit.is_open();
            let failed = (now, fastrand::u64(..));
            let settlement = match window.circuit.failed(&item, sent_at, &error, failed) {
                // Beyond the horizon.
                Settlement::Retry(at) if window.last_round => {
                    Settlement::Retry(at + 2 * EVERYTHING)
                }
                settlement => settlement,
            };
            self.outbox.settle(&item, settlement, now);
            if window.circuit.is_open() {
                window.log.failed(Subject::Kcp, &error, now);
            } else {
                if was_open {
                    window.log.recovered(&Subject::Kcp);
                }
                window.log.failed(subject, &error, now);
            }
        } else {
            window.circuit.succeeded(&item.manager);
            self.outbox.settle(&item, Settlement::Delivered, now);
            self.metrics.delivered.inc();
            window.log.recovered(&Subject::Kcp);
            window.log.recovered(&subject);
        }
    }
}

impl Window {
    fn new(last_round: bool) -> Self {
        Self {
            circuit: CircuitBreakers::new(BACKOFF),
            evictions: 0,
            log: DeliveryLog::default(),
            posts: FuturesUnordered::new(),
            posts_by_manager: HashMap::new(),
            last_round,
        }
    }

    /// Returns how many further requests may be in progress.
    fn free(&self) -> usize {
        IN_FLIGHT.saturating_sub(self.posts.len())
    }

    /// Records that a request to the manager has ended.
    fn ended(&mut self, manager: &PathSegment) {
        if let Some(posts) = self.posts_by_manager.get_mut(manager) {
            *posts -= 1;
            if *posts == 0 {
                self.posts_by_manager.remove(manager);
            }
        }
    }
}

/// Returns the time of the clock that the timers of the async runtime use.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
