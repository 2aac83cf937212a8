//! The connections that are open, and who goes when there are too many.
//!
//! Invariant: at most `cap` members that were not displaced. A connection whose request is handled is never displaced.
//!
//! Why displace at all: any client in the cluster could otherwise hold all places with silent connections, or with
//! requests that it never completes, and the API server, refused, would let Pods pass unchanged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::pulse::{Pulse, Worth};
use crate::statistics::Statistics;

/// At the cap, this share of the places is for connections that have sent no complete request yet: while they are fewer,
/// an idle one goes in their place. Else a client that holds the other places with idle connections could evict each
/// new connection by the next.
const UNFINISHED_SHARE: usize = 8;

pub(crate) struct Crowd {
    cap: usize,
    kept_header_bytes: usize,
    members: Mutex<Members>,
    statistics: Statistics,
}

#[derive(Default)]
struct Members {
    next: u64,
    pulses: HashMap<u64, Arc<Pulse>>,
}

/// One connection's place; given back on drop.
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    /// Counts connections from zero; never used twice.
    pub(crate) number: u64,
    pub(crate) pulse: Arc<Pulse>,
}

impl Crowd {
    /// `kept_header_bytes`: how much of a header each connection keeps to be judged.
    pub(crate) fn new(cap: usize, kept_header_bytes: usize, statistics: Statistics) -> Arc<Self> {
        Arc::new(Self {
            cap,
            kept_header_bytes,
            members: Mutex::default(),
            statistics,
        })
    }

    /// A place for a new connection, or `None` if all are busy.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Seat> {
        let mut members = self.members();
        let counters = self.statistics.counters();
        if members.pulses.len() >= self.cap {
            if !members.displace_one(self.cap / UNFINISHED_SHARE) {
                counters.refused_at_cap.add_one();
                return None;
            }
            counters.displaced.add_one();
        }
        let number = members.next;
        members.next += 1;
        let pulse = Arc::new(Pulse::new(Instant::now(), self.kept_header_bytes));
        members.pulses.insert(number, Arc::clone(&pulse));
        counters.open.add_one();
        Some(Seat {
            crowd: Arc::clone(self),
            number,
            pulse,
        })
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Asks the least worthy member to leave. It no longer counts, although its task may need a moment. `reserved`: so
    /// many unfinished ones stay while there are idle ones.
    fn displace_one(&mut self, reserved: usize) -> bool {
        let (mut unfinished, mut oldest_unfinished, mut oldest_idle) = (0, None, None);
        for (&number, pulse) in &self.pulses {
            let (oldest, since) = match pulse.worth() {
                None => continue,
                Some(Worth::Unfinished(since)) => {
                    unfinished += 1;
                    (&mut oldest_unfinished, since)
                }
                Some(Worth::Idle(since)) => (&mut oldest_idle, since),
            };
            if oldest.is_none_or(|oldest| (since, number) < oldest) {
                *oldest = Some((since, number));
            }
        }
        let next = if unfinished < reserved.max(1) {
            oldest_idle.or(oldest_unfinished)
        } else {
            oldest_unfinished
        };
        let Some((_, number)) = next else {
            return false;
        };
        if let Some(pulse) = self.pulses.remove(&number) {
            pulse.displace();
        }
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.crowd.members().pulses.remove(&self.number);
        self.crowd.statistics.counters().open.subtract_one();
    }
}

#[cfg(test)]
mod tests;
