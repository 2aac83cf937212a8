//! Delivery of events from the outbox to KCP.
//!
//! ```text
//! outbox ──take──> Sender ──┬── CircuitBreakers: what may be sent now (all, each manager)
//!    ^                      └── Channel ──> KcpClient ──> KCP
//!    └──────── settle ───────┘     ^
//! delivery mode sync ──────────────┘
//! ```
//!
//! An event stays in the outbox until the circuit breakers permit its request. It is removed after a 2xx response, or after
//! KCP has rejected it for long enough. In the second case its manager gets a request for a resync. Independent of the
//! behavior of KCP, the number of connections, the number of concurrent requests and the rate of attempts are limited, and
//! thousands of watchers do not reconnect at the same moment. A failure that concerns one event, one manager or all
//! managers delays only that event, that manager or all managers.

use std::time::Duration;

pub use self::address::{KcpAddress, KcpAddressError};
pub use self::channel::{Channel, ChannelOptions};
pub use self::error::PostError;
pub use self::sender::{IN_FLIGHT, Sender};

mod address;
mod channel;
mod circuit;
mod client;
mod error;
mod sender;
pub mod sync;

/// Longest wait that KCP can request. Up to a quarter is added, so that watchers with the same wait do not retry at the
/// same time.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Time limits of the steps of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit of name resolution and TCP connect. Default 5 s.
    pub connect: Duration,
    /// Limit of the TLS handshake, to which the unused time of `connect` is added. Default 5 s.
    pub handshake: Duration,
    /// Limit from the start of a request on a connection to the end of the response headers. Default 15 s: longer than a
    /// listener with a full queue lets a request wait.
    pub answer: Duration,
    /// Time without a request after which a connection is closed. Default 90 s: heartbeats keep a connection open, so that
    /// it is available for an event.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            answer: Duration::from_secs(15),
            idle: Duration::from_secs(90),
        }
    }
}

#[cfg(test)]
mod tests;
