//! One circuit breaker: closed, open after a failure, or half-open while a probe is in progress.

use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct CircuitBreaker {
    pub(super) failures: u32,
    pub(super) last_failed: Option<u64>,
    open: Option<Open>,
}

struct Open {
    since: Instant,
    until: Instant,
    /// Half-open: a probe is in progress.
    probed: bool,
}

impl CircuitBreaker {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Checks whether a request may be sent.
    ///
    /// # Errors
    /// The circuit is open. The error is the time of the next probe, or `None` while a probe is in progress.
    pub(super) fn ready(&self, now: Instant) -> Result<(), Option<Instant>> {
        match &self.open {
            Some(open) if open.probed => Err(None),
            Some(open) if open.until > now => Err(Some(open.until)),
            _ => Ok(()),
        }
    }

    /// Records a request, which is a probe if the circuit is open.
    pub(super) fn pass(&mut self) {
        if let Some(open) = &mut self.open {
            open.probed = true;
        }
    }

    /// Records that a request ended without a result for the circuit. If it was the probe, the next request may be sent.
    pub(super) fn end_probe(&mut self, sent_at: Instant) {
        if let Some(open) = self.open.as_mut().filter(|open| sent_at > open.since) {
            open.probed = false;
        }
    }

    /// Returns whether a request that was sent at `sent_at` is a probe. No other requests are sent while the circuit is open.
    pub(super) fn is_probe(&self, sent_at: Instant) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| sent_at > open.since)
    }

    /// Returns whether the result of a request is relevant: the circuit is closed, or the request was sent after the
    /// circuit opened.
    pub(super) fn is_news(&self, sent_at: Instant) -> bool {
        !self.is_open() || self.is_probe(sent_at)
    }

    pub(super) fn open(&mut self, now: Instant, wait: Duration) {
        self.open = Some(Open {
            since: now,
            until: now + wait,
            probed: false,
        });
    }

    pub(super) fn until(&self, now: Instant) -> Instant {
        self.open.as_ref().map_or(now, |open| open.until)
    }
}
