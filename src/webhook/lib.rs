//! Admission of Pods over HTTP, the snapshots and certificate that it needs, the synchronization of the pull Secret, and
//! the repair of Pods that lack changes.
//!
//! A review is answered from snapshots alone: nothing on its path awaits an API call, takes a lock that a writer holds or
//! logs a body. Decisions about Pods are in `policy::admission`.

use std::time::Duration;

use component_base::backoff::Backoff;

pub mod admission;
pub mod certificate;
pub mod dry_run;
pub mod fallback_policy;
pub mod pull_secret_sync;
pub mod repairs;
pub mod self_review;
pub mod snapshot;
mod stored;
pub mod watches;

/// Selects the Pods that are not finished: the others neither pull images any more nor are replaced.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Between writes of one object in a row: after a failed one, and while another client overwrites every one.
const WRITE_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(30),
};
