//! The connections that are open, and who goes when there are too many.
//!
//! Invariant: at most `cap` members that were not displaced. A busy connection is never displaced.
//!
//! Why displace at all: whoever can reach the port could otherwise hold all places with silent connections, and
//! the API server, refused, would let Pods pass unchanged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::pulse::Pulse;
use crate::statistics::Statistics;

pub(crate) struct Crowd {
    cap: usize,
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
    pub(crate) fn new(cap: usize, statistics: Statistics) -> Arc<Self> {
        Arc::new(Self {
            cap,
            members: Mutex::default(),
            statistics,
        })
    }

    /// A place for a new connection, or `None` if all are busy.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Seat> {
        let mut members = self.members();
        let counters = self.statistics.counters();
        if members.pulses.len() >= self.cap {
            if !members.displace_one() {
                counters.refused_at_cap.add_one();
                return None;
            }
            counters.displaced.add_one();
        }
        let number = members.next;
        members.next += 1;
        let pulse = Arc::new(Pulse::new(Instant::now()));
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
    /// Asks the least worthy member to leave. It no longer counts, although its task may need a moment.
    fn displace_one(&mut self) -> bool {
        let worths = self
            .pulses
            .iter()
            .filter_map(|(&number, pulse)| Some((pulse.worth()?, number)));
        let Some((_, number)) = worths.min() else {
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
