//! What is due leaves the outbox, and comes back if KCP does not take it.
//!
//! Invariant: an item that was taken is settled: delivered by an answer of 2xx, else put back, or given up with a mark that
//! asks its manager for a resync. Where the process ends in
//! between, it was never delivered for the spool, and comes again in the next life. On shutdown all that waits is sent once
//! more at once, confirmations included, in a bounded time: the spool of a Pod goes with the Pod.
//!
//! Deliberately absent: threads and locks; one task drives the window.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chassis::backoff::Backoff;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::log::{DeliveryLog, Subject};
use super::Channel;
use super::error::PostError;
use super::pace::{Fate, Pace, Ticket};
use crate::certificates::OutboundState;
use crate::metrics::WatcherMetrics;
use crate::outbox::{Item, Outbox};

mod log;

/// How an event is tried again.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_mins(1),
};

/// Rounds of taking before somebody else may run.
const ROUNDS: usize = 64;

/// Beyond all waits: what is due by then is all there is.
const EVERYTHING: Duration = Duration::from_hours(24);

/// How a sender behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderOptions {
    /// Posts under way at the same time. Default 8.
    pub in_flight: usize,
    /// How long a shutdown waits for what is still to be sent. Default 5 s.
    pub drain: Duration,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            in_flight: 8,
            drain: Duration::from_secs(5),
        }
    }
}

/// Brings events from the outbox to KCP.
pub struct Sender {
    options: SenderOptions,
    post: Post,
    /// Changes when new certificates come into force.
    certificates: watch::Receiver<OutboundState>,
    outbox: Outbox,
    metrics: WatcherMetrics,
}

/// How one event is posted.
type Post = Box<dyn Fn(&Item) -> BoxFuture<'static, Result<(), PostError>> + Send + Sync>;

struct Posted {
    item: Item,
    ticket: Ticket,
    result: Result<(), PostError>,
}

/// What is under way.
struct Window {
    pace: Pace,
    /// How many managers had been evicted when `pace` was last told.
    evictions: u64,
    log: DeliveryLog,
    posts: FuturesUnordered<BoxFuture<'static, Posted>>,
    /// Set on shutdown: what counts as due, and where those go that have had their last try.
    last_round: bool,
}

impl Sender {
    /// A sender that posts through `channel`.
    #[must_use]
    pub fn new(
        options: SenderOptions,
        channel: Arc<Channel>,
        outbox: Outbox,
        metrics: WatcherMetrics,
    ) -> Self {
        let certificates = channel.certificates();
        let post = move |item: &Item| -> BoxFuture<'static, _> {
            let (channel, item) = (channel.clone(), item.clone());
            Box::pin(async move {
                let Item {
                    manager,
                    event,
                    sequence,
                    ..
                } = &item;
                channel.post_event(manager, event, Some(*sequence)).await
            })
        };
        Self::posting(options, (Box::new(post), certificates), outbox, metrics)
    }

    fn posting(
        options: SenderOptions,
        (post, certificates): (Post, watch::Receiver<OutboundState>),
        outbox: Outbox,
        metrics: WatcherMetrics,
    ) -> Self {
        Self {
            options,
            post,
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
            let room = window.pace.room(now(), self.free(&window)) > 0;
            tokio::select! {
                () = cancel.cancelled() => {}
                Some(posted) = window.posts.next() => self.settle(&mut window, posted),
                () = self.outbox.changed(), if room => {}
                Ok(()) = certificates.changed() => {
                    // Otherwise they are worse than before.
                    if certificates.borrow_and_update().is_ok() {
                        window.pace.renewed(now());
                    }
                }
                () = until(next) => {}
            }
        }
        let drained = timeout(self.options.drain, self.drain(window)).await;
        // Among what is left are confirmations that were sent too early to count.
        let left = self.outbox.report(now()).depth;
        if left > 0 {
            let in_time = drained.is_ok();
            tracing::info!(left, in_time, "shutting down with undelivered events");
        }
    }

    /// Sends everything once, until the link breaks.
    async fn drain(&self, before: Window) {
        let mut window = Window::new(true);
        (window.posts, window.log) = (before.posts, before.log);
        loop {
            // A link that was down gets one more chance, and no second.
            if !window.pace.is_link_shut() {
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
        let evictions = self.outbox.evictions();
        if evictions != window.evictions {
            window.evictions = evictions;
            let is_registered = |manager: &_| self.outbox.is_registered(manager);
            window.pace.retain(is_registered);
            window.log.retain(is_registered);
        }
        for _ in 0..ROUNDS {
            let now = now();
            let room = window.pace.room(now, self.free(window));
            if room == 0 {
                return window.pace.reopens();
            }
            let items = self.outbox.take(window.horizon(now), room);
            if items.is_empty() {
                return self.outbox.next_due();
            }
            for item in items {
                match window.pace.depart(&item.manager, now) {
                    Ok(ticket) => window.posts.push(self.posted(item, ticket)),
                    Err(again_at) => self.outbox.failed(&item, window.retry_at(again_at)),
                }
            }
        }
        Some(now())
    }

    fn posted(&self, item: Item, ticket: Ticket) -> BoxFuture<'static, Posted> {
        let post = (self.post)(&item);
        Box::pin(async move {
            Posted {
                item,
                ticket,
                result: post.await,
            }
        })
    }

    fn settle(&self, window: &mut Window, posted: Posted) {
        let Posted {
            item,
            ticket,
            result,
        } = posted;
        let now = now();
        let subject = if self.outbox.is_known(&item.manager) {
            Subject::Manager(item.manager.clone())
        } else {
            Subject::Others
        };
        if let Err(error) = result {
            self.metrics.failed(error.reason());
            self.metrics.refused(error.kind());
            let chance = fastrand::u64(..);
            let attempt = (&item).into();
            let was_shut = window.pace.is_link_shut();
            match window.pace.failed(attempt, ticket, &error, (now, chance)) {
                Fate::Retry(at) => self.outbox.failed(&item, window.retry_at(at)),
                Fate::Drop => self.outbox.rejected(&item, now),
                Fate::DropAll => self.outbox.all_rejected(&item.manager, now),
            }
            if window.pace.is_link_shut() {
                window.log.failed(Subject::Kcp, &error, now);
            } else {
                if was_shut {
                    window.log.recovered(&Subject::Kcp);
                }
                window.log.failed(subject, &error, now);
            }
        } else {
            window.pace.arrived(&item.manager);
            self.outbox.delivered(&item, now);
            self.metrics.delivered();
            window.log.recovered(&Subject::Kcp);
            window.log.recovered(&subject);
        }
    }

    fn free(&self, window: &Window) -> usize {
        self.options.in_flight.saturating_sub(window.posts.len())
    }
}

impl Window {
    fn new(last_round: bool) -> Self {
        Self {
            pace: Pace::new(BACKOFF),
            evictions: 0,
            log: DeliveryLog::default(),
            posts: FuturesUnordered::new(),
            last_round,
        }
    }

    /// What is due by then may leave.
    fn horizon(&self, now: Instant) -> Instant {
        if self.last_round {
            now + EVERYTHING
        } else {
            now
        }
    }

    /// In the last round, beyond the horizon.
    fn retry_at(&self, retry_at: Instant) -> Instant {
        if self.last_round {
            retry_at + 2 * EVERYTHING
        } else {
            retry_at
        }
    }
}

/// The clock that the runtime sleeps by.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
