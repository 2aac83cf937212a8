//! One circuit breaker: closed, open after a failure, and half-open while a probe is under way.

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
    /// Half-open: a probe is under way.
    probed: bool,
}

impl CircuitBreaker {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether a post may pass.
    ///
    /// # Errors
    /// It may not: when a probe may, or `None` while one is under way.
    pub(super) fn ready(&self, now: Instant) -> Result<(), Option<Instant>> {
        match &self.open {
            Some(open) if open.probed => Err(None),
            Some(open) if open.until > now => Err(Some(open.until)),
            _ => Ok(()),
        }
    }

    /// Lets a post through, which is a probe if the circuit is open.
    pub(super) fn pass(&mut self) {
        if let Some(open) = &mut self.open {
            open.probed = true;
        }
    }

    /// A post that was sent then has ended without a result for the circuit: if it was the probe, the next may pass.
    pub(super) fn end_probe(&mut self, sent_at: Instant) {
        if let Some(open) = self.open.as_mut().filter(|open| sent_at > open.since) {
            open.probed = false;
        }
    }

    /// Whether a post that was sent then is a probe: nothing else is sent while the circuit is open.
    pub(super) fn is_probe(&self, sent_at: Instant) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| sent_at > open.since)
    }

    /// Whether the result of a post that was sent then is new: it was sent after the circuit opened, or that is closed.
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
