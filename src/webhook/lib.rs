//! Admission of Pods over HTTP, with the required snapshots and certificate, the synchronization of the pull Secret, and
//! the repair of Pods that lack changes.
//!
//! A review is processed from snapshots only: it awaits no API call, takes no lock that a writer holds, and logs no body.
//! `policy::admission` decides about Pods.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use component_base::backoff::Backoff;

pub mod admission;
pub mod certificate;
pub mod dry_run;
pub mod fallback_policy;
pub mod leader;
pub mod pull_secret_sync;
pub mod repairs;
pub mod self_review;
pub mod snapshot;
mod stored;
pub mod watches;

/// Field selector of Pods that are not finished. Finished Pods neither pull images nor are replaced.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Runs a decision, and returns `None` if it panics. A decision shares only data that it reads, so a panic leaves no
/// inconsistent state.
fn survive<T>(decision: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(decision)).ok()
}

/// Backoff between successive writes of one object: after a failed write, and while another client overwrites each write.
const WRITE_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(30),
};
