//! From the outbox to KCP.
//!
//! ```text
//! outbox ──take──> Sender ──┬── CircuitBreakers: what may be sent now (all, each manager)
//!    ^                      └── Channel ──> KcpClient ──> KCP
//!    └──────── settle ───────┘     ^
//! delivery mode sync ──────────────┘
//! ```
//!
//! An event stays in the outbox until the circuits let it through. It leaves by an answer of 2xx, or because KCP has rejected
//! it for long enough, and then its manager is asked for a resync. Whatever KCP does, the connections, the posts under way and
//! the rate of attempts are bounded, and thousands of watchers do not come back at the same moment. A failure that concerns
//! one event, one manager or all holds up just that.

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

/// The longest wait that KCP can ask for; up to a quarter more is added, so that watchers with the same time do not come
/// together.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// How long the steps of a post may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Name and TCP. Default 5 s.
    pub connect: Duration,
    /// TLS, in addition to what connecting left of its time. Default 5 s.
    pub handshake: Duration,
    /// From sending a request on a connection to the end of the answer's head. Default 15 s: longer than a listener with a full queue
    /// lets a request wait.
    pub answer: Duration,
    /// After so long without a request a connection is closed. Default 90 s: heartbeats keep one open, so that an
    /// event finds it.
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
