//! What is due leaves the outbox, and comes back if KCP does not take it.
//!
//! An item that was taken is settled: delivered by an answer of 2xx, else put back, or given up with a mark that asks its
//! manager for a resync. Where the process ends in between, it is not delivered for the spool, and comes again after the next
//! start. On shutdown all that waits is sent once more at once, follow-ups included, in a bounded time: the spool of a Pod
//! goes with the Pod.

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

/// How an event is tried again.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_mins(1),
};

/// Beyond all waits: what is due by then is all there is.
const EVERYTHING: Duration = Duration::from_hours(24);

/// Posts of events under way at the same time.
pub const IN_FLIGHT: usize = 12;

/// Those to one manager: a manager that responds slowly leaves the others some.
const IN_FLIGHT_PER_MANAGER: usize = 8;

/// How long a shutdown waits for what is still to be sent.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Brings events from the outbox to KCP.
pub struct Sender {
    post: Post,
    /// Changes when new certificates come into force.
    certificates: watch::Receiver<OutboundState>,
    outbox: Outbox,
    metrics: WatcherMetrics,
}

/// How one event is posted.
type Post = Box<dyn Fn(&Item) -> BoxFuture<'static, Result<(), PostError>> + Send + Sync>;

/// An event that was posted, when, and what became of it.
type Posted = (Item, Instant, Result<(), PostError>);

/// What is under way.
struct Window {
    circuit: CircuitBreakers,
    /// How many managers had been evicted when `circuit` was last updated.
    evictions: u64,
    log: DeliveryLog,
    posts: FuturesUnordered<BoxFuture<'static, Posted>>,
    /// The number of posts by manager.
    posts_by_manager: HashMap<PathSegment, usize>,
    /// Set on shutdown: what counts as due, and where those go that have had their last try.
    last_round: bool,
}

impl Sender {
    /// A sender that posts through `channel`.
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

    /// Delivers until `cancel`, then what it still can within the drain's time.
    pub async fn run(self, cancel: CancellationToken) {
        let mut window = Window::new(false);
        let mut certificates = self.certificates.clone();
        while !cancel.is_cancelled() {
            let next = self.dispatch(&mut window);
            let next = next.unwrap_or_else(|| now() + EVERYTHING);
            let has_capacity = window.has_capacity();
            tokio::select! {
                () = cancel.cancelled() => {}
                Some(posted) = window.posts.next() => self.settle(&mut window, posted),
                () = self.outbox.changed(), if has_capacity => {}
                Ok(()) = certificates.changed() => {
                    // Otherwise they are worse than before.
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

    /// Sends everything once, until KCP's circuit opens.
    async fn drain(&self, before: Window) {
        let mut window = Window::new(true);
        (window.posts, window.log) = (before.posts, before.log);
        window.posts_by_manager = before.posts_by_manager;
        loop {
            // A KCP that was down gets one more chance, and no second.
            if !window.circuit.is_open() {
                self.dispatch(&mut window);
            }
            let Some(posted) = window.posts.next().await else {
                return;
            };
            self.settle(&mut window, posted);
        }
    }

    /// Starts all posts that may start; when there may be more to start.
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
        while window.has_capacity() {
            let now = now();
            // What is due by then may leave.
            let horizon = if last_round { now + EVERYTHING } else { now };
            let (circuit, posts) = (&mut window.circuit, &window.posts_by_manager);
            let permit = |manager: &_, known| {
                // The end of one of its posts is when to ask again.
                if posts
                    .get(manager)
                    .is_some_and(|it| *it >= IN_FLIGHT_PER_MANAGER)
                {
                    return Err(None);
                }
                // In the last round there is no time to space them.
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

    fn has_capacity(&self) -> bool {
        self.posts.len() < IN_FLIGHT
    }

    /// A post to the manager has ended.
    fn ended(&mut self, manager: &PathSegment) {
        if let Some(posts) = self.posts_by_manager.get_mut(manager) {
            *posts -= 1;
            if *posts == 0 {
                self.posts_by_manager.remove(manager);
            }
        }
    }
}

/// The clock that the runtime sleeps by.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
