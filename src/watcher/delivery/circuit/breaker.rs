//! One circuit breaker: closed, open after a failure, and half-open while a probe is under way.

use std::time::{Duration, Instant};

/// The time between two events that wait for an open circuit, so that they do not come all at the same time: many times
/// faster than KCP takes them, and slow enough that a hundred thousand of them are no work while it stays open.
pub(super) const SPACING: Duration = Duration::from_micros(500);

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
    /// Events that were told to wait.
    waiting: u32,
}

impl CircuitBreaker {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// When it lets a probe through; `None`: it is closed, or half-open.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let open = self.open.as_ref()?;
        (!open.probed).then_some(open.until)
    }

    pub(super) fn allows(&self, now: Instant) -> bool {
        let open = self.open.as_ref();
        open.is_none_or(|open| !open.probed && open.until <= now)
    }

    /// Lets a post through; whether it is a probe.
    pub(super) fn pass(&mut self) -> bool {
        if let Some(open) = &mut self.open {
            open.probed = true;
        }
        self.open.is_some()
    }

    pub(super) fn end_probe(&mut self) {
        if let Some(open) = &mut self.open {
            open.probed = false;
        }
    }

    /// When an event is to ask again that was not let through.
    pub(super) fn queue(&mut self, now: Instant) -> Instant {
        let Some(open) = &mut self.open else {
            return now;
        };
        open.waiting = open.waiting.saturating_add(1);
        open.until.max(now) + SPACING * open.waiting
    }

    /// Whether a post that was sent then tells anything new: it was sent after the circuit opened, or that is closed.
    pub(super) fn is_news(&self, sent_at: Instant) -> bool {
        let open = self.open.as_ref();
        open.is_none_or(|open| sent_at > open.since)
    }

    pub(super) fn open(&mut self, now: Instant, wait: Duration) {
        self.open = Some(Open {
            since: now,
            until: now + wait,
            probed: false,
            waiting: 0,
        });
    }

    pub(super) fn until(&self, now: Instant) -> Instant {
        self.open.as_ref().map_or(now, |open| open.until)
    }
}
