//! One gate: shut after a failure, it lets one post through when its time has come, a probe.
//!
//! Deliberately absent: what a failure is, and what follows from an answer.

use std::time::{Duration, Instant};

/// Those that wait behind a shut gate come one after the other, not all at its opening: many times faster than KCP
/// takes them, and slow enough that a hundred thousand of them are no work while it stays shut.
pub(super) const SPACING: Duration = Duration::from_micros(500);

#[derive(Default)]
pub(super) struct Gate {
    pub(super) failures: u32,
    pub(super) last_failed: Option<u64>,
    shut: Option<Shut>,
}

struct Shut {
    since: Instant,
    until: Instant,
    probed: bool,
    /// How many were told to wait behind it.
    waiting: u32,
}

impl Gate {
    pub(super) fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// When it lets one through; `None`: it is open, or an answer decides.
    pub(super) fn reopens(&self) -> Option<Instant> {
        let shut = self.shut.as_ref()?;
        (!shut.probed).then_some(shut.until)
    }

    pub(super) fn admits(&self, now: Instant) -> bool {
        let shut = self.shut.as_ref();
        shut.is_none_or(|shut| !shut.probed && shut.until <= now)
    }

    /// Lets one through; whether it is a probe.
    pub(super) fn pass(&mut self) -> bool {
        if let Some(shut) = &mut self.shut {
            shut.probed = true;
        }
        self.shut.is_some()
    }

    pub(super) fn unprobe(&mut self) {
        if let Some(shut) = &mut self.shut {
            shut.probed = false;
        }
    }

    /// A place in the queue behind the gate.
    pub(super) fn queue(&mut self, now: Instant) -> Instant {
        let Some(shut) = &mut self.shut else {
            return now;
        };
        shut.waiting = shut.waiting.saturating_add(1);
        shut.until.max(now) + SPACING * shut.waiting
    }

    /// Whether a post that left then left after the gate was shut, or it is not.
    pub(super) fn is_news(&self, left: Instant) -> bool {
        let shut = self.shut.as_ref();
        shut.is_none_or(|shut| left > shut.since)
    }

    pub(super) fn shut(&mut self, now: Instant, wait: Duration) {
        self.shut = Some(Shut {
            since: now,
            until: now + wait,
            probed: false,
            waiting: 0,
        });
    }

    pub(super) fn until(&self, now: Instant) -> Instant {
        self.shut.as_ref().map_or(now, |shut| shut.until)
    }
}
