//! A sign of life for each manager, also where nothing happens, so that KCP can tell calm from silence.
//!
//! Source: product.md §3; the public pair has none (lifecycle-manager issue 3524). Who is told: the managers of the
//! settings, those that took an event, which KCP knows, and those that lost one; another name in a review can be anybody's
//! invention. Invariants: each
//! manager that can hear is told at least every interval; a receiver that answers 404 or 405 is a public listener and is
//! left alone until the next start (`hearing` tells it from a gateway that has no route yet); a mark that asks for a look
//! at everything is taken back only when the very heartbeat that carried it was accepted. Deliberately absent: retries,
//! for the next heartbeat says more than the last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::event::{BootId, HEARTBEAT_INTERVAL, Heartbeat, PathSegment};
use chassis::backoff::spread;
use chassis::telemetry::error_chain;
use futures::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::hearing::{Answer, Hearing};
use crate::delivery::{Channel, PostError};
use crate::metrics::WatcherMetrics;
use crate::outbox::Outbox;

mod hearing;

/// Managers that are told; what comes after these is left out.
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

/// Who is told: those of the settings, and those that took an event, up to a bound. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Managers {
    known: Arc<Mutex<Vec<Known>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    name: PathSegment,
    /// Whether it has taken an event.
    reached: bool,
}

impl Managers {
    /// The managers of the settings; at most 32 of them.
    #[must_use]
    pub fn new(configured: impl IntoIterator<Item = PathSegment>) -> Self {
        let managers = Self::default();
        for name in configured {
            managers.note(&name, false);
        }
        managers
    }

    /// `manager` has taken an event.
    pub fn took(&self, manager: &PathSegment) {
        self.note(manager, true);
    }

    fn note(&self, manager: &PathSegment, reached: bool) {
        let mut known = self.lock();
        if let Some(known) = known.iter_mut().find(|known| known.name == *manager) {
            known.reached |= reached;
        } else if known.len() < MANAGERS {
            let name = manager.clone();
            known.push(Known { name, reached });
        }
    }

    pub(crate) fn all(&self) -> Vec<Known> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
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
        let mut hearing = HashMap::new();
        // Thousands of watchers are updated together.
        let interval = self.options.interval;
        sleep(interval.saturating_sub(spread(interval, fastrand::u64(..)))).await;
        loop {
            let next = Instant::now() + spread(interval, fastrand::u64(..));
            self.round(&mut hearing).await;
            sleep_until(next).await;
        }
    }

    /// Tells everybody who may hear it.
    async fn round(&self, hearing: &mut HashMap<PathSegment, Hearing>) {
        for manager in self.outbox.reached() {
            self.managers.took(&manager);
        }
        let known = self.managers.all();
        let mut is_asked = |Known { name, reached }: &Known| {
            let hearing = hearing.entry(name.clone()).or_default();
            hearing.is_asked(*reached)
        };
        // Whoever lost something is told, also if nothing of it was ever taken; it takes up nobody's place.
        let bereft = self.outbox.bereft().into_iter();
        let strangers: Vec<Known> = bereft
            .filter(|name| known.iter().all(|known| known.name != *name))
            .map(|name| Known {
                name,
                reached: false,
            })
            .filter(|stranger| is_asked(stranger))
            .take(MANAGERS)
            .collect();
        let mut asked = known;
        asked.retain(is_asked);
        asked.extend(strangers);
        let answers = join_all(asked.iter().map(|known| self.beat(&known.name))).await;
        for (Known { name, reached }, answer) in asked.into_iter().zip(answers) {
            let hearing = hearing.entry(name).or_default();
            hearing.answered(answer, reached);
        }
    }

    /// Tells one manager.
    async fn beat(&self, manager: &PathSegment) -> Answer {
        let now = Instant::now().into_std();
        let report = self.outbox.manager_report(manager, now);
        let heartbeat = Heartbeat {
            boot_id: self.options.boot_id.clone(),
            sequence: report.sequence,
            spool_depth: report.spool_depth,
            oldest_age_seconds: report.oldest_age.unwrap_or_default().as_secs(),
            version: self.options.version.clone(),
            resync_needed: report.resync.is_some(),
        };
        match self.channel.post_heartbeat(manager, &heartbeat).await {
            Ok(()) => {
                self.metrics.heartbeat("taken");
                if let Some(mark) = report.resync {
                    let now = Instant::now().into_std();
                    self.outbox.resync_told(manager, mark, now);
                }
                Answer::Taken
            }
            Err(PostError::Refused {
                status: 404 | 405, ..
            }) => {
                self.metrics.heartbeat("unsupported");
                tracing::info!(%manager, "the listener knows no heartbeats, or there is no route to it");
                Answer::Unknown
            }
            Err(error) => {
                self.metrics.heartbeat("failed");
                tracing::debug!(%manager, error = error_chain(&error), "a heartbeat was not taken");
                Answer::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests;
