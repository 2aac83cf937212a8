//! How fast the mirror repeats itself.

use std::time::Duration;

use chassis::backoff::Backoff;

/// Distances between two looks at one namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// Between two writes.
    pub(super) rest: Duration,
    /// From the end of the need to the removal: the next Pod may bring the need back, and a configuration that was
    /// mistyped may be corrected.
    pub(super) linger: Duration,
    /// Between two lists of the Pods of a namespace whose copy is no longer needed and in use.
    pub(super) in_use: Backoff,
    /// After failures.
    pub(super) retry: Backoff,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            rest: Duration::from_secs(1),
            linger: Duration::from_secs(10),
            in_use: Backoff {
                base: Duration::from_secs(15),
                cap: Duration::from_mins(5),
            },
            retry: Backoff {
                base: Duration::from_secs(1),
                cap: Duration::from_mins(2),
            },
        }
    }
}
