//! What the leader does: it issues and renews the certificate in the Secret, and publishes the `caBundle`.
//!
//! A rotation writes the Secret first, with the earlier CAs in its `ca.crt`, then the `caBundle`. Replicas wait for the
//! second before they serve what is in the first.

use std::time::{Duration, SystemTime};

use chassis::backoff::Backoff;
use chassis::telemetry::error_chain;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::plan::{FilesPlanner, Plan, plan};
use super::write::WriteError;
use super::{Certificates, LOOK_AGAIN};

/// After a failed write, and between writes that another writer overwrites.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(30),
};

/// Writes in a row without a pause: a Secret and a `caBundle`, twice. More means that another client overwrites them.
const BURST: u32 = 4;

/// Without a write for this long, the row ends.
const QUIET: Duration = Duration::from_mins(1);

impl Certificates {
    /// Keeps Secret and `caBundle` as they should be, as the leader (`chassis::lease::run_while_leading`), until
    /// `shutdown`. With certificate files no Secret is written, and `ca.crt` is published if it verifies the certificate.
    ///
    /// Rights beside those of the watches:
    /// - `secrets` named `rt-bootstrapper-webhook-cert` in the product namespace, not needed with files: `create` (by
    ///   server-side apply, so that `resourceNames` limits it), `patch`, `delete` (a Secret of another type, or an
    ///   immutable one, cannot be changed);
    /// - `mutatingwebhookconfigurations` named `rt-bootstrapper-mutating-webhook-configuration`: `patch`, and
    ///   deliberately not `create`.
    pub async fn reconcile(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.reconcile_forever()).await;
    }

    async fn reconcile_forever(&self) {
        let (mut certificates, mut entries) =
            (self.certificate.subscribe(), self.entry.subscribe());
        let mut files = FilesPlanner::default();
        let mut retry = RetryPolicy::default();
        loop {
            let stored = certificates.borrow_and_update().clone();
            let live = entries.borrow_and_update().clone();
            let now = SystemTime::now();
            let Plan { write, again } = if self.files.is_some() {
                files.plan(&stored, &live, &self.settings, now)
            } else {
                plan(&stored, &live, &self.settings, now)
            };
            let Some(write) = write else {
                let wait = again.map(|again| again.duration_since(now).unwrap_or_default());
                tokio::select! {
                    _ = certificates.changed() => {}
                    _ = entries.changed() => {}
                    () = sleep(wait.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN)) => {}
                }
                continue;
            };
            let result = self.write(write, now).await;
            sleep(retry.delay_after(&result, Instant::now())).await;
        }
    }
}

/// The pauses after writes: none after the first few, a growing one after failures and while another client overwrites
/// every write.
#[derive(Default)]
pub(super) struct RetryPolicy {
    failures: u32,
    recent: u32,
    last: Option<Instant>,
}

impl RetryPolicy {
    fn delay_after(&mut self, result: &Result<(), WriteError>, now: Instant) -> Duration {
        let Err(error) = result else {
            self.failures = 0;
            return self.after_success(now, fastrand::u64(..));
        };
        let delay = BACKOFF.delay(self.failures, fastrand::u64(..));
        self.failures = self.failures.saturating_add(1);
        if error.is_conflict() {
            tracing::info!(?delay, "conflict, retrying");
        } else {
            tracing::warn!(error = error_chain(error), ?delay, "write failed, retrying");
        }
        delay
    }

    fn after_success(&mut self, now: Instant, random: u64) -> Duration {
        let in_row = self.last.is_some_and(|last| now - last < QUIET);
        self.recent = if in_row {
            self.recent.saturating_add(1)
        } else {
            1
        };
        self.last = Some(now);
        let Some(excess) = self.recent.checked_sub(BURST) else {
            return Duration::ZERO;
        };
        tracing::warn!(
            writes = self.recent,
            "caBundle overwritten by another writer"
        );
        BACKOFF.delay(excess, random)
    }
}

#[cfg(test)]
mod retry_tests;
#[cfg(test)]
mod tests;
