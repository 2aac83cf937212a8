//! The connections that are open, and which one is evicted when there are too many, or too many bytes of headers.
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
use crate::state::{ConnectionState, EvictionClass};

/// At the limit, this share of the connections is for those that have sent no complete request yet: while they are fewer,
/// an idle one is evicted. Else a client that holds the others with idle connections could evict each new connection by
/// the next.
const UNFINISHED_SHARE: usize = 8;

pub(crate) struct ConnectionLimiter {
    connections: usize,
    headers_bytes: usize,
    strict_framing: bool,
    /// Bytes of the incomplete headers of all connections.
    header_bytes: Arc<AtomicUsize>,
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
            strict_framing,
            header_bytes: Arc::default(),
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
        let header_bytes = Arc::clone(&self.header_bytes);
        let state = Arc::new(ConnectionState::new(self.strict_framing, header_bytes));
        set.states.insert(number, Arc::clone(&state));
        self.statistics.add_one(Counter::Open);
        Some(ConnectionPermit {
            limiter: Arc::clone(self),
            number,
            state,
        })
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

    /// Evicts the connection whose header has been incomplete for longest.
    fn evict_header(&mut self) -> bool {
        let headers = self.states.iter();
        let headers = headers.filter_map(|(&number, state)| Some((state.header_since()?, number)));
        let oldest = headers.min();
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
        while limiter.header_bytes.load(Ordering::Relaxed) > limiter.headers_bytes {
            if !limiter.set().evict_header() {
                return;
            }
            limiter.statistics.add_one(Counter::Evicted);
        }
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
