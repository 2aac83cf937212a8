//! The open connections, and the decision which connection is evicted if there are too many connections, or too many bytes
//! of headers or responses.
//!
//! Invariant: at most `limits.connections` connections are open that were not evicted. A connection whose request is being
//! handled is never evicted.
//!
//! Otherwise a client in the cluster could occupy all connections with idle connections, or with incomplete requests. The
//! API server could not connect, and would admit Pods without changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::limits::Limits;
use crate::metrics::{Counter, Statistics};
use crate::state::{ConnectionState, EvictionClass, KeptBytes};

/// Fraction of the connections that is reserved, at the limit, for connections without a complete request. While there are
/// fewer of them, an idle connection is evicted. Otherwise, if a client held all other connections as idle, each new
/// connection would be evicted by the next one.
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

/// Permit of one open connection. Dropping it releases the place.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    /// Unique number of the connection, counted from zero.
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

    /// Returns the permit of a new connection, or `None` if the requests of all other connections are being handled.
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

    /// Evicts the connections with the earliest `since` while `kept` exceeds its limit and a connection has this time.
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
    /// Evicts the connection with the lowest eviction cost. It does not count anymore, although its task may still run for
    /// a moment. `reserved` is the number of unfinished connections that are kept while there are idle connections.
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

    /// Evicts the connection with the earliest `since`, if any connection has this time.
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
    /// Records received bytes. If headers take too many bytes, the connections with the oldest incomplete header are evicted.
    pub(crate) fn received(&self, bytes: &[u8]) {
        self.state.received(bytes);
        let limiter = &self.limiter;
        limiter.bound(&limiter.kept.headers, limiter.headers_bytes, |state| {
            state.header_since()
        });
    }

    /// Records that the client accepts no bytes of a response. If the stored responses take too many bytes, the connections
    /// that have been stalled longest are evicted, except this connection, which may have the only response.
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
