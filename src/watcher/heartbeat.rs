//! A sign of life for each manager, also where nothing happens, so that KCP can tell calm from silence.
//!
//! The public pair has none (lifecycle-manager issue 3524). Receivers are the managers that are configured, those that
//! took an event, which KCP knows, and those that lost one (`outbox` has the list); another name in a review can be anybody's
//! invention. Invariants: each
//! manager that can hear is told at least every interval; a receiver that answers 404 or 405 is a public listener and is
//! left alone until the next start (`hearing` tells it from a gateway that has no route yet); a mark that asks for a look
//! at everything is taken back only when the very heartbeat that carried it was accepted. Deliberately absent: retries,
//! for the next heartbeat says more than the last.

use std::collections::HashMap;
use std::sync::Arc;
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
use crate::outbox::{Outbox, Receiver};

mod hearing;

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

/// The heartbeats of one watcher.
pub struct Heartbeats {
    options: HeartbeatOptions,
    channel: Arc<Channel>,
    outbox: Outbox,
    metrics: WatcherMetrics,
}

impl Heartbeats {
    /// Heartbeats through `channel`, about what is in `outbox`.
    #[must_use]
    pub fn new(
        mut options: HeartbeatOptions,
        channel: Arc<Channel>,
        outbox: Outbox,
        metrics: WatcherMetrics,
    ) -> Self {
        let longest = options.version.floor_char_boundary(VERSION_BYTES);
        options.version.truncate(longest);
        Self {
            options,
            channel,
            outbox,
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

    /// Sends one heartbeat to each manager that may take it.
    async fn round(&self, hearing: &mut HashMap<PathSegment, Hearing>) {
        let mut asked = self.outbox.receivers();
        hearing.retain(|name, _| asked.iter().any(|receiver| receiver.name == *name));
        asked.retain(|Receiver { name, reached, .. }| {
            let hearing = hearing.entry(name.clone()).or_default();
            hearing.is_asked(*reached)
        });
        let answers = join_all(asked.iter().map(|receiver| self.beat(&receiver.name))).await;
        for (receiver, answer) in asked.into_iter().zip(answers) {
            let Receiver {
                name,
                reached,
                known,
            } = receiver;
            let hearing = hearing.entry(name.clone()).or_default();
            let change = hearing.answered(answer, reached);
            if change && known && answer == Answer::Unknown {
                tracing::info!(manager = %name, "heartbeats not supported by the listener, or no route to it");
            }
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
                self.metrics.heartbeat("accepted");
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
                Answer::Unknown
            }
            Err(error) => {
                self.metrics.heartbeat("error");
                tracing::debug!(error = error_chain(&error), "heartbeat failed");
                Answer::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests;
