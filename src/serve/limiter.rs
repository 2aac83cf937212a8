//! The connections that are open, and which one is evicted when there are too many, or too many bytes of headers or answers.
//!
//! Invariant: at most `limits.connections` that were not evicted. A connection whose request is handled is never evicted.
//!
//! Any client in the cluster could otherwise hold all connections with silent ones, or with requests that it never
//! completes, and the API server, rejected, would let Pods pass unchanged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::limits::Limits;
use crate::metrics::{Counter, Statistics};
use crate::state::{ConnectionState, EvictionClass, KeptBytes};

/// At the limit, this share of the connections is for those that have sent no complete request yet: while they are fewer,
/// an idle one is evicted. Else a client that holds the others with idle connections could evict each new connection by
/// the next.
const UNFINISHED_SHARE: usize = 8;

pub(crate) struct ConnectionLimiter {
    connections: usize,
    headers_bytes: usize,
    answers_bytes: usize,
    strict_framing: bool,
    kept: Arc<KeptBytes>,
    set: Mutex<ConnectionSet>,
    statistics: Statistics,
}

#[derive(Default)]
struct ConnectionSet {
    next: u64,
    states: HashMap<u64, Arc<ConnectionState>>,
}

/// The permission to be open of one connection; given back on drop.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    /// Counts connections from zero; never used twice.
    number: u64,
    pub(crate) state: Arc<ConnectionState>,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: &Limits, strict_framing: bool, statistics: Statistics) -> Arc<Self> {
        Arc::new(Self {
            connections: limits.connections,
            headers_bytes: limits.headers_bytes.max(limits.header_bytes),
            answers_bytes: limits.answers_bytes,
            strict_framing,
            kept: Arc::default(),
            set: Mutex::default(),
            statistics,
        })
    }

    /// The permit of a new connection, or `None` if the requests of all others are being handled.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut set = self.set();
        if set.states.len() >= self.connections {
            if !set.evict_one(self.connections / UNFINISHED_SHARE) {
                self.statistics.add_one(Counter::Rejected);
                return None;
            }
            self.statistics.add_one(Counter::Evicted);
        }
        let number = set.next;
        set.next += 1;
        let kept = Arc::clone(&self.kept);
        let state = Arc::new(ConnectionState::new(self.strict_framing, kept));
        set.states.insert(number, Arc::clone(&state));
        self.statistics.add_one(Counter::Open);
        Some(ConnectionPermit {
            limiter: Arc::clone(self),
            number,
            state,
        })
    }

    /// Evicts the connection of the earliest `since` as long as `kept` is above its limit and there is one.
    fn bound(
        &self,
        kept: &AtomicUsize,
        limit: usize,
        since: impl Fn(&ConnectionState) -> Option<Instant>,
    ) {
        while kept.load(Ordering::Relaxed) > limit && self.set().evict_oldest(&since) {
            self.statistics.add_one(Counter::Evicted);
        }
    }

    fn set(&self) -> MutexGuard<'_, ConnectionSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSet {
    /// Evicts the connection that costs least. It no longer counts, although its task may need a moment. `reserved`: so
    /// many unfinished ones stay while there are idle ones.
    fn evict_one(&mut self, reserved: usize) -> bool {
        let (mut unfinished, mut oldest_unfinished, mut oldest_idle) = (0, None, None);
        for (&number, state) in &self.states {
            let (oldest, since) = match state.eviction_class() {
                None => continue,
                Some(EvictionClass::Unfinished(since)) => {
                    unfinished += 1;
                    (&mut oldest_unfinished, since)
                }
                Some(EvictionClass::Idle(since)) => (&mut oldest_idle, since),
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
        self.evict(next)
    }

    /// Evicts the connection of the earliest `since`, if any has one.
    fn evict_oldest(&mut self, since: impl Fn(&ConnectionState) -> Option<Instant>) -> bool {
        let states = self.states.iter();
        let candidates = states.filter_map(|(&number, state)| Some((since(state)?, number)));
        let oldest = candidates.min();
        self.evict(oldest)
    }

    fn evict(&mut self, chosen: Option<(Instant, u64)>) -> bool {
        let state = chosen.and_then(|(_, number)| self.states.remove(&number));
        state.map(|state| state.evict()).is_some()
    }
}

impl ConnectionPermit {
    /// Bytes came. If they are of a header, and there are too many of those, the oldest incomplete one is evicted.
    pub(crate) fn received(&self, bytes: &[u8]) {
        self.state.received(bytes);
        let limiter = &self.limiter;
        limiter.bound(&limiter.kept.headers, limiter.headers_bytes, |state| {
            state.header_since()
        });
    }

    /// The peer takes none of the bytes of an answer. If too many bytes of answers are kept, the connection that has been
    /// so for longest is evicted; not this one, which may have the only answer.
    pub(crate) fn stalled(&self) {
        self.state.stall(true);
        let limiter = &self.limiter;
        limiter.bound(&limiter.kept.answers, limiter.answers_bytes, |state| {
            let is_other = !std::ptr::eq(state, &raw const *self.state);
            is_other.then(|| state.stalled_since()).flatten()
        });
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.set().states.remove(&self.number);
        self.limiter.statistics.subtract_one(Counter::Open);
    }
}

#[cfg(test)]
mod tests;
