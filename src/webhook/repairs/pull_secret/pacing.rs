//! How fast the mirror repeats itself.

use std::time::Duration;

use chassis::backoff::Backoff;

/// Distances between two looks at one namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// Between two writes.
    pub(super) rest: Duration,
    /// From the end of the need to the removal, where a Pod could still bring the need back.
    pub(super) linger: Duration,
    /// After failures.
    pub(super) retry: Backoff,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            rest: Duration::from_secs(1),
            linger: Duration::from_secs(10),
            retry: Backoff {
                base: Duration::from_secs(1),
                cap: Duration::from_mins(2),
            },
        }
    }
}
