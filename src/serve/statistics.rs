//! Counters of one server, cheap to write and to read.
//!
//! Invariant: each number is written in one place and never blocks anyone; a snapshot is not atomic
//! across its fields. Deliberately absent: any metrics format.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handle on the counters of one server. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    counters: Arc<Counters>,
}

impl Statistics {
    /// The numbers as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let counters = &self.counters;
        Snapshot {
            accepted: counters.accepted.value(),
            open: counters.open.value(),
            displaced: counters.displaced.value(),
            refused_at_cap: counters.refused_at_cap.value(),
            accept_errors: counters.accept_errors.value(),
            without_certificate: counters.without_certificate.value(),
            closed_before_handshake: counters.closed_before_handshake.value(),
            plain_http: counters.plain_http.value(),
            handshake_failures: counters.handshake_failures.value(),
            handshake_timeouts: counters.handshake_timeouts.value(),
            requests: counters.requests.value(),
            bad_requests: counters.bad_requests.value(),
            header_timeouts: counters.header_timeouts.value(),
            body_timeouts: counters.body_timeouts.value(),
            body_too_large: counters.body_too_large.value(),
            body_over_budget: counters.body_over_budget.value(),
            body_bytes: counters.body_bytes.value(),
            panics: counters.panics.value(),
            cut: counters.cut.value(),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// What a server has counted since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// TCP connections taken from the listener, refused ones included.
    pub accepted: u64,
    /// Connections open now, handshakes included. A gauge, as `body_bytes`; all others only grow.
    pub open: u64,
    /// Connections closed at the cap, while no request of theirs was handled, to make room for a newer one.
    pub displaced: u64,
    /// Connections closed at once because the requests of all others were being handled.
    pub refused_at_cap: u64,
    /// Errors of accepting: out of file descriptors, or a peer that left the backlog.
    pub accept_errors: u64,
    /// Connections closed at once because there was no certificate yet.
    pub without_certificate: u64,
    /// Peers that closed before they sent a byte, as TCP probes do.
    pub closed_before_handshake: u64,
    /// Peers that spoke HTTP without TLS.
    pub plain_http: u64,
    /// TLS handshakes that failed.
    pub handshake_failures: u64,
    /// TLS handshakes not finished in time.
    pub handshake_timeouts: u64,
    /// Requests whose header was read.
    pub requests: u64,
    /// Requests answered 400 or 431 because their header was no good HTTP/1.
    pub bad_requests: u64,
    /// Connections closed because a header was not complete in time.
    pub header_timeouts: u64,
    /// Requests answered 408.
    pub body_timeouts: u64,
    /// Requests answered 413.
    pub body_too_large: u64,
    /// Requests answered 503 because the budget for all request bodies was used up.
    pub body_over_budget: u64,
    /// Bytes of request bodies held now, of those that arrive and of those that are handled, in blocks of 16 KiB. A gauge.
    pub body_bytes: u64,
    /// Panics of handlers, answered 500 where an answer was still possible.
    pub panics: u64,
    /// Connections cut at the end of the grace.
    pub cut: u64,
}

/// The numbers behind a [`Snapshot`], which explains them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: Counter,
    pub(crate) open: Counter,
    pub(crate) displaced: Counter,
    pub(crate) refused_at_cap: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) without_certificate: Counter,
    pub(crate) closed_before_handshake: Counter,
    pub(crate) plain_http: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) handshake_timeouts: Counter,
    pub(crate) requests: Counter,
    pub(crate) bad_requests: Counter,
    pub(crate) header_timeouts: Counter,
    pub(crate) body_timeouts: Counter,
    pub(crate) body_too_large: Counter,
    pub(crate) body_over_budget: Counter,
    pub(crate) body_bytes: Counter,
    pub(crate) panics: Counter,
    pub(crate) cut: Counter,
}

/// One number. Relaxed: nothing is ordered by it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: usize) {
        self.0
            .store(value.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
