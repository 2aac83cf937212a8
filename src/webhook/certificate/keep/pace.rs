//! How fast the leader writes.
//!
//! Invariant: a repair is made at once, a failure is tried again later and later, and a quarrel with somebody who undoes
//! every write costs the API server a few writes a minute.

use std::time::Duration;

use chassis::backoff::Backoff;
use chassis::telemetry::error_chain;
use tokio::time::Instant;

use super::apply::KeepError;

/// After a failed write, and between writes that somebody keeps undoing.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(30),
};
/// So many writes in a row are made at once: a Secret and a `caBundle`, twice. More is a quarrel with somebody else.
const AT_ONCE: u32 = 4;
/// Without a write for this long, the quarrel is over.
const QUIET: Duration = Duration::from_mins(1);

/// How long to wait after a write.
#[derive(Default)]
pub(super) struct Pace {
    failures: u32,
    recent: u32,
    last: Option<Instant>,
}

impl Pace {
    pub(super) fn after(&mut self, written: &Result<(), KeepError>, now: Instant) -> Duration {
        match written {
            Ok(()) => {
                self.failures = 0;
                self.after_success(now, fastrand::u64(..))
            }
            Err(error) => {
                let delay = BACKOFF.delay(self.failures, fastrand::u64(..));
                self.failures = self.failures.saturating_add(1);
                if error.is_conflict() {
                    tracing::info!(?delay, "conflict, retrying");
                } else {
                    let error = error_chain(error);
                    tracing::warn!(error, ?delay, "write failed, retrying");
                }
                delay
            }
        }
    }

    fn after_success(&mut self, now: Instant, random: u64) -> Duration {
        let quarrel = self.last.is_some_and(|last| now - last < QUIET);
        self.recent = if quarrel {
            self.recent.saturating_add(1)
        } else {
            1
        };
        self.last = Some(now);
        match self.recent.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(excess) => {
                tracing::warn!(
                    writes = self.recent,
                    "caBundle overwritten by another writer"
                );
                BACKOFF.delay(excess, random)
            }
        }
    }
}

#[cfg(test)]
mod tests;
