//! A sign of life for each manager, also where nothing happens, so that KCP can tell calm from silence.
//!
//! Source: product.md §3; the public pair has none (lifecycle-manager issue 3524). Invariants: each manager that can hear is
//! told at least every interval; a receiver that answers 404 or 405 is a public listener and is left alone until the next
//! start; a mark that asks for a look at everything is taken back only when the very heartbeat that carried it was
//! accepted. Deliberately absent: retries, for the next heartbeat says more than the last.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::event::{BootId, HEARTBEAT_INTERVAL, Heartbeat, PathSegment};
use chassis::backoff::spread;
use chassis::telemetry::error_chain;
use futures::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::delivery::{Channel, PostError};
use crate::metrics::WatcherMetrics;
use crate::outbox::Outbox;

/// Managers that are told. Reviews can name any; what comes after these is left out.
const MANAGERS: usize = 32;

/// The longest release that a listener takes, in bytes.
const VERSION_BYTES: usize = 64;

/// What a heartbeat says of the process, and how often.
#[derive(Clone, Debug)]
pub struct HeartbeatOptions {
    /// The longest time between two. Default for callers: [`HEARTBEAT_INTERVAL`], by which listeners judge silence.
    pub interval: Duration,
    /// Which life of the watcher this is.
    pub boot_id: BootId,
    /// The watcher's release; its first 64 bytes are sent.
    pub version: String,
}

impl HeartbeatOptions {
    /// The defaults.
    #[must_use]
    pub fn new(boot_id: BootId, version: String) -> Self {
        Self {
            interval: HEARTBEAT_INTERVAL,
            boot_id,
            version,
        }
    }
}

/// Who is told: those of the settings, and those that reviews name, up to a bound. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Managers {
    known: Arc<Mutex<Vec<PathSegment>>>,
}

impl Managers {
    /// The managers of the settings; at most 32 of them.
    #[must_use]
    pub fn new(configured: impl IntoIterator<Item = PathSegment>) -> Self {
        let managers = Self::default();
        for manager in configured {
            managers.meet(&manager);
        }
        managers
    }

    /// A review has named `manager`.
    pub fn meet(&self, manager: &PathSegment) {
        let mut known = self.lock();
        if known.len() < MANAGERS && !known.contains(manager) {
            known.push(manager.clone());
        }
    }

    pub(crate) fn all(&self) -> Vec<PathSegment> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathSegment>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The heartbeats of one watcher.
pub struct Heartbeats {
    options: HeartbeatOptions,
    channel: Arc<Channel>,
    outbox: Outbox,
    managers: Managers,
    metrics: WatcherMetrics,
}

impl Heartbeats {
    /// Heartbeats through `channel`, about what is in `outbox`.
    #[must_use]
    pub fn new(
        mut options: HeartbeatOptions,
        channel: Arc<Channel>,
        outbox: Outbox,
        managers: Managers,
        metrics: WatcherMetrics,
    ) -> Self {
        let longest = options.version.floor_char_boundary(VERSION_BYTES);
        options.version.truncate(longest);
        Self {
            options,
            channel,
            outbox,
            managers,
            metrics,
        }
    }

    /// Beats until `cancel`.
    pub async fn run(self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.beat_for_ever()).await;
    }

    async fn beat_for_ever(&self) {
        let mut deaf = HashSet::new();
        // Thousands of watchers are updated together.
        let interval = self.options.interval;
        sleep(interval.saturating_sub(spread(interval, fastrand::u64(..)))).await;
        loop {
            let next = Instant::now() + spread(interval, fastrand::u64(..));
            let hearing = self.managers.all().into_iter();
            let hearing = hearing.filter(|manager| !deaf.contains(manager));
            let gone_deaf = join_all(hearing.map(|manager| self.beat(manager))).await;
            deaf.extend(gone_deaf.into_iter().flatten());
            sleep_until(next).await;
        }
    }

    /// Tells one manager; returns it if it cannot hear.
    async fn beat(&self, manager: PathSegment) -> Option<PathSegment> {
        let now = Instant::now().into_std();
        let report = self.outbox.manager_report(&manager, now);
        let heartbeat = Heartbeat {
            boot_id: self.options.boot_id.clone(),
            sequence: report.sequence,
            spool_depth: report.spool_depth,
            oldest_age_seconds: report.oldest_age.unwrap_or_default().as_secs(),
            version: self.options.version.clone(),
            resync_needed: report.resync.is_some(),
        };
        match self.channel.post_heartbeat(&manager, &heartbeat).await {
            Ok(()) => {
                self.metrics.heartbeat("taken");
                if let Some(mark) = report.resync {
                    let now = Instant::now().into_std();
                    self.outbox.resync_told(&manager, mark, now);
                }
                None
            }
            Err(PostError::Refused {
                status: 404 | 405, ..
            }) => {
                self.metrics.heartbeat("unsupported");
                tracing::info!(%manager, "the listener knows no heartbeats; it gets none until the next start");
                Some(manager)
            }
            Err(error) => {
                self.metrics.heartbeat("failed");
                tracing::debug!(%manager, error = error_chain(&error), "a heartbeat was not taken");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
