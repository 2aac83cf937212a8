//! The line to beat: what today's way of labelling every `Runtime` and waiting for its manager takes.
//!
//! A model, not a measurement: the manager may call its infrastructure so many times a second (a token bucket) and
//! reconciles so many runtimes at once; each reconciliation takes one such call and some round trips to the runtime.
//! The numbers are the public manager's defaults: 5 requests a second, burst 5, 25 workers. In its favour:
//! no requeues, no other work, no lag of caches, and the call itself costs nothing but its token.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::curve::Curve;

/// A manager that is signalled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Today {
    /// Calls to the infrastructure a second.
    pub(super) rate: u32,
    /// So many may be made at once after a pause.
    pub(super) burst: u32,
    /// Runtimes that are reconciled at the same time.
    pub(super) workers: usize,
    /// To a runtime.
    pub(super) round_trip: Duration,
}

impl Today {
    /// As it is set up by default.
    pub(super) fn with_round_trip(round_trip: Duration) -> Self {
        Self {
            rate: 5,
            burst: 5,
            workers: 25,
            round_trip,
        }
    }

    /// When each of so many runtimes is done, all signalled at once.
    pub(super) fn curve(self, runtimes: usize) -> Curve {
        let mut free: BinaryHeap<Reverse<Duration>> =
            (0..self.workers).map(|_| Reverse(Duration::ZERO)).collect();
        let mut done = Vec::with_capacity(runtimes);
        for number in 0..u32::try_from(runtimes).unwrap_or(u32::MAX) {
            let worker = free.pop().map_or(Duration::ZERO, |Reverse(time)| time);
            let token =
                Duration::from_secs(1) * (number + 1).saturating_sub(self.burst) / self.rate;
            let end = worker.max(token) + self.round_trip * ROUND_TRIPS;
            free.push(Reverse(end));
            done.push(end);
        }
        Curve::new(done, runtimes)
    }
}

/// A new client for every pass: TCP, TLS, discovery; then reading and writing three objects.
const ROUND_TRIPS: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Duration = Duration::ZERO;

    #[test]
    fn the_rate_of_calls_is_what_limits_it() {
        // 5 at once, and 4995 more at 5 a second.
        let curve = Today::with_round_trip(NEAR).curve(5000);
        assert_eq!(curve.last(), Some(Duration::from_secs(999)));
        assert_eq!(curve.quantile(1), Some(Duration::ZERO));
    }

    #[test]
    fn far_runtimes_keep_the_workers_busy() {
        let far = Duration::from_secs(2);
        let curve = Today::with_round_trip(far).curve(100);
        // The 25th begins with the 20th token after the burst, at 4 s; its worker takes four turns of 18 s.
        assert_eq!(curve.last(), Some(Duration::from_secs(4 + 4 * 18)));
    }
}
