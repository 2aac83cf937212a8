//! How often one runtime may be called.
//!
//! A token bucket per runtime, kept as the one instant at which it will be full again. Invariant: a bucket outlives
//! the [`super::Remote`] that emptied it (or every pass would begin with a full one) and is forgotten once it is full,
//! so an idle runtime costs nothing. Deliberately absent: back-off, which belongs to the queue of passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::RuntimeId;

/// The rate of calls to one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time between two calls in the long run.
    pub interval: Duration,
    /// How many calls may be made at once after a rest; at least one.
    pub burst: u32,
}

impl Rate {
    /// client-go lets a client make five calls a second, ten at once; a pass over one runtime needs up to twenty, and
    /// the bucket of a runtime in trouble must still not become a burden there.
    pub const PASS: Self = Self {
        interval: Duration::from_millis(100),
        burst: 30,
    };
}

/// The buckets of all runtimes that were called lately.
pub(super) struct Pace {
    rate: Rate,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    buckets: HashMap<RuntimeId, Arc<Bucket>>,
    sweep_at: usize,
}

/// When the bucket of one runtime will be full again.
pub(super) struct Bucket {
    full: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            rate,
            ledger: Mutex::default(),
        }
    }

    /// The bucket of a runtime: the one in use, or a full one.
    pub(super) fn bucket(&self, runtime: &RuntimeId, now: Instant) -> Arc<Bucket> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if ledger.buckets.len() >= ledger.sweep_at {
            ledger
                .buckets
                .retain(|_, it| Arc::strong_count(it) > 1 || it.full_at() > now);
            // Doubling keeps the cost of sweeping in proportion to that of opening.
            ledger.sweep_at = (ledger.buckets.len() * 2).max(FIRST_SWEEP);
        }
        let bucket = ledger.buckets.entry(runtime.clone()).or_insert_with(|| {
            Arc::new(Bucket {
                full: Mutex::new(now),
            })
        });
        bucket.clone()
    }

    /// Takes one token, and waits until it is there. Calls that wait are served in order.
    pub(super) async fn take(&self, bucket: &Bucket) {
        let wait = bucket.take(self.rate, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.ledger.lock().unwrap().buckets.len()
    }
}

impl Bucket {
    fn full_at(&self) -> Instant {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until the token taken is there.
    fn take(&self, rate: Rate, now: Instant) -> Duration {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let before = (*full).max(now);
        *full = before + rate.interval;
        let spare = rate.interval.saturating_mul(rate.burst.saturating_sub(1));
        before.duration_since(now).saturating_sub(spare)
    }
}

const FIRST_SWEEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        interval: Duration::from_millis(100),
        burst: 3,
    };

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_then_the_rate_holds() {
        let pace = Pace::new(RATE);
        let begun = Instant::now();
        let mut taken = Vec::new();
        for _ in 0..6 {
            // A new pass finds the bucket as the last one left it.
            let bucket = pace.bucket(&RuntimeId::new("a"), Instant::now());
            pace.take(&bucket).await;
            taken.push(begun.elapsed().as_millis());
        }
        assert_eq!(taken, [0, 0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_runtime_does_not_slow_another() {
        let pace = Pace::new(RATE);
        let now = Instant::now();
        let [busy, fresh] = ["a", "b"].map(|it| pace.bucket(&RuntimeId::new(it), now));
        for _ in 0..10 {
            busy.take(RATE, now);
        }
        pace.take(&fresh).await;
        assert_eq!(now.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_forgotten() {
        let pace = Pace::new(RATE);
        for index in 0..1_000 {
            let runtime = RuntimeId::new(&index.to_string());
            pace.bucket(&runtime, Instant::now())
                .take(RATE, Instant::now());
        }
        assert_eq!(pace.remembered(), 1_000);
        tokio::time::advance(RATE.interval).await;
        for index in 1_000..2_000 {
            pace.bucket(&RuntimeId::new(&index.to_string()), Instant::now());
        }
        assert!(pace.remembered() < 1_000, "{}", pace.remembered());
    }
}
