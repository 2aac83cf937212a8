//! Heartbeats to each manager, also if nothing changes, so that KCP can distinguish a runtime without changes from a
//! watcher that does not run.
//!
//! Receivers are the configured managers, managers that accepted an event, managers that lost an event, and further
//! receivers, also from a file. Other names may be invented by any client. Each receiver gets a heartbeat at least every
//! interval, and a last heartbeat after the last deliveries of the watcher. A request for a resync is repeated until a
//! heartbeat was accepted that was sent when the change that was lost is stored. A failed heartbeat is not retried, because
//! the next heartbeat replaces it; only the last heartbeat of a receiver that was removed is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use component_base::backoff::spread;
use component_base::files;
use component_base::readiness::{Probes, Readiness};
use component_base::telemetry::error_chain;
use futures::future::{join, join_all};
use serve::{Counter, Statistics};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use watcher_types::{BootId, Heartbeat, PathSegment};

use crate::certificates::Certificates;
use crate::delivery::{Channel, PostError};
use crate::metrics::WatcherMetrics;
use crate::outbox::{ManagerReport, Outbox, Receiver};

/// Maximum length of a release that a listener accepts, in bytes.
const VERSION_BYTES: usize = 64;

/// The largest file of receivers or of webhook entries, in bytes.
const RECEIVERS_BYTES: usize = 64 * 1024;

/// Maximum number of receivers that are read from a file.
const MAX_RECEIVERS: usize = 100;

/// Value of [`Heartbeats::last_timeout`], so that an unreachable KCP does not delay the shutdown.
const LAST_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time after which the API server sends reviews to a process that is ready.
const ROUTED: Duration = Duration::from_secs(3);

/// Maximum time for which the last heartbeats wait until a lost change is stored.
const LOST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum interval, in rounds, of heartbeats to a manager whose support is unclear. It is less than the three rounds after
/// which a listener reports a missing heartbeat, because the route may have been created just after the last heartbeat.
const RAREST: u32 = 2;

/// Number of rounds after which a manager whose listener does not support heartbeats is asked again: about an hour.
const RETRY_ROUNDS: u32 = 60;

/// Maximum number of attempts of the last heartbeat to a receiver that was removed: about half an hour.
const LAST_ATTEMPTS: u32 = 30;

/// Maximum number of managers whose reviews are counted. Any client can invent a name. A new manager replaces the manager
/// with the oldest last review.
const COUNTED_MANAGERS: usize = 128;

/// Counts the admission reviews since the start, with the time of the last review, for the heartbeats. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct ReviewActivity(Arc<Mutex<Reviews>>);

#[derive(Debug, Default)]
struct Reviews {
    all: ReviewCount,
    by_manager: HashMap<PathSegment, ReviewCount>,
}

/// Number of reviews, and time of the last review.
#[derive(Clone, Copy, Debug, Default)]
struct ReviewCount {
    seen: u64,
    last: Option<Instant>,
}

impl ReviewActivity {
    /// Records a valid review for a manager, for any change, including dry runs.
    pub(crate) fn record(&self, manager: &PathSegment) {
        let now = Instant::now();
        let mut reviews = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Reviews { all, by_manager } = &mut *reviews;
        all.record(now);
        if let Some(count) = by_manager.get_mut(manager) {
            return count.record(now);
        }
        if by_manager.len() >= COUNTED_MANAGERS {
            let oldest = by_manager.iter().min_by_key(|(_, count)| count.last);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                by_manager.remove(&oldest);
            }
        }
        by_manager.entry(manager.clone()).or_default().record(now);
    }

    /// Returns the number of reviews and the seconds since the last review (`None` if there was none): of all managers, and
    /// of `manager`.
    pub(crate) fn counts(&self, manager: &PathSegment) -> [(u64, Option<u64>); 2] {
        let reviews = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = reviews.by_manager.get(manager);
        [reviews.all, own.copied().unwrap_or_default()].map(|count| {
            let age = count.last.map(|at| at.elapsed().as_secs());
            (count.seen, age)
        })
    }
}

impl ReviewCount {
    fn record(&mut self, now: Instant) {
        self.seen += 1;
        self.last = Some(now);
    }
}

/// Sources of the content of heartbeats.
pub struct HeartbeatSources {
    /// Outbox with the events.
    pub outbox: Outbox,
    /// Counts of reviews.
    pub reviews: ReviewActivity,
    /// Statistics of the connections of API servers.
    pub connections: Statistics,
    /// Certificates that are presented and trusted.
    pub certificates: Certificates,
    /// Readiness of the process, on which it depends whether the API server sends reviews to it.
    pub readiness: Readiness,
}

/// Options of heartbeats.
#[derive(Clone, Debug)]
pub struct HeartbeatOptions {
    /// Maximum time between two heartbeats. Listeners use [`HEARTBEAT_INTERVAL`](watcher_types::HEARTBEAT_INTERVAL) to
    /// detect a missing heartbeat.
    pub interval: Duration,
    /// Boot ID of this process.
    pub boot_id: BootId,
    /// Release of the watcher. The first 64 bytes are sent.
    pub version: String,
    /// Managers that get heartbeats, even without events for them.
    pub receivers: Vec<PathSegment>,
    /// File with further receivers, one per line. It may change at any time.
    pub receivers_file: Option<PathBuf>,
    /// A file with a line for each manager, its name and a hash of its webhook entries, which may change at any time.
    pub entries_file: Option<PathBuf>,
}

/// Heartbeats of one watcher.
pub struct Heartbeats {
    options: HeartbeatOptions,
    channel: Arc<Channel>,
    sources: HeartbeatSources,
    metrics: WatcherMetrics,
    support: HashMap<PathSegment, HeartbeatSupport>,
    /// Receivers from [`HeartbeatOptions::receivers_file`].
    listed: Vec<PathSegment>,
    /// Receivers that were removed from the file, until they have answered their last heartbeat, with the number of its
    /// attempts.
    removed: Vec<(PathSegment, u32)>,
    /// The content of [`HeartbeatOptions::entries_file`], each hash with the time at which it was first read.
    entries: HashMap<PathSegment, (String, Instant)>,
    started: Instant,
    /// Time limit of all last heartbeats together.
    last_timeout: Duration,
}

impl Heartbeats {
    /// Creates heartbeats about `sources`, which are sent through `channel`.
    #[must_use]
    pub fn new(
        mut options: HeartbeatOptions,
        channel: Arc<Channel>,
        sources: HeartbeatSources,
        metrics: WatcherMetrics,
    ) -> Self {
        let longest = options.version.floor_char_boundary(VERSION_BYTES);
        options.version.truncate(longest);
        Self {
            options,
            channel,
            sources,
            metrics,
            support: HashMap::new(),
            listed: Vec::new(),
            removed: Vec::new(),
            entries: HashMap::new(),
            started: Instant::now(),
            last_timeout: LAST_TIMEOUT,
        }
    }

    /// Sends heartbeats until `delivered`, which is canceled after the last events were sent. Then sends a last heartbeat
    /// to each manager, for at most three seconds.
    pub async fn run(mut self, delivered: CancellationToken) {
        delivered
            .run_until_cancelled(self.send_periodically())
            .await;
        // No later heartbeat repeats the request for a resync.
        if let Some(stored) = self.sources.outbox.lost_stored_by() {
            let limit = Instant::now() + LOST_TIMEOUT;
            sleep_until(limit.min(stored.into())).await;
        }
        if timeout(self.last_timeout, self.round(true)).await.is_err() {
            tracing::debug!("last heartbeats timed out");
        }
    }

    async fn send_periodically(&mut self) {
        // Until the outbox knows which managers have a Watcher, it gives them a part of its capacity only.
        self.read_receivers().await;
        let interval = self.options.interval;
        self.serving(first_delay(interval, fastrand::u64(..))).await;
        loop {
            let next = Instant::now() + spread(interval, fastrand::u64(..));
            self.round(false).await;
            sleep_until(next).await;
        }
    }

    /// Waits until `delay` after the process is ready: the first heartbeat may cause a resync, and earlier changes have no review.
    /// If no probe finds the process ready within an interval, heartbeats are sent all the same.
    async fn serving(&self, delay: Duration) {
        let mut probes = self.sources.readiness.probes();
        let ready = probes.wait_for(|it| matches!(it, Probes::Ready(_)));
        let _ = timeout(self.options.interval, ready).await.map(drop);
        sleep(delay).await;
    }

    /// Returns the time since the API server sends reviews to this process: since the start if there was no readiness probe within
    /// an interval.
    fn ready_for(&self) -> Duration {
        let uptime = self.started.elapsed();
        match *self.sources.readiness.probes().borrow() {
            Probes::None if uptime >= self.options.interval => uptime,
            Probes::None | Probes::NotReady => Duration::ZERO,
            Probes::Ready(since) => since.elapsed().max(Duration::from_millis(1)),
        }
    }

    /// Sends one heartbeat to each manager that may support heartbeats. Sends a last heartbeat to receivers that were
    /// removed from the file, until they answer it or [`LAST_ATTEMPTS`] failed: the loss that it reports is known to no other.
    async fn round(&mut self, ending: bool) {
        self.read_receivers().await;
        self.read_entries().await;
        let outbox = &self.sources.outbox;
        let mut receivers: Vec<_> = outbox.managers(|managers| managers.receivers().collect());
        for name in self.options.receivers.iter().chain(&self.listed) {
            if !receivers.iter().any(|it| it.name == *name) {
                receivers.push(Receiver {
                    name: name.clone(),
                    reached: false,
                    known: true,
                });
            }
        }
        self.support
            .retain(|name, _| receivers.iter().any(|receiver| receiver.name == *name));
        receivers.retain(|Receiver { name, reached, .. }| {
            let support = self.support.entry(name.clone()).or_default();
            support.is_asked(*reached)
        });
        self.removed
            .retain(|(name, _)| !receivers.iter().any(|it| it.name == *name));
        let last = self.removed.iter().map(|(name, _)| self.post(name, true));
        let posts = receivers.iter().map(|it| self.post(&it.name, ending));
        let (answers, ended) = join(join_all(posts), join_all(last)).await;
        let mut ended = ended.into_iter();
        self.removed.retain_mut(|(_, attempts)| {
            *attempts += 1;
            ended.next() == Some(Answer::Failed) && *attempts < LAST_ATTEMPTS
        });
        for (receiver, answer) in receivers.into_iter().zip(answers) {
            let support = self.support.entry(receiver.name.clone()).or_default();
            if support.answered(answer, receiver.reached) && receiver.known {
                tracing::info!(manager = %receiver.name, "heartbeats not supported by the listener, or no route to it");
            }
        }
    }

    /// Reads the file of receivers. A file that cannot be read changes nothing, because the kubelet may be replacing it.
    async fn read_receivers(&mut self) {
        let Some(text) = read(self.options.receivers_file.clone()).await else {
            return;
        };
        let names = text.lines().filter_map(|it| PathSegment::parse(it).ok());
        let listed: Vec<_> = names.take(MAX_RECEIVERS).collect();
        let now = Instant::now().into_std();
        self.sources.outbox.set_watching(&listed, now);
        let before = std::mem::replace(&mut self.listed, listed);
        self.removed.extend(before.into_iter().map(|it| (it, 0)));
        self.removed.retain(|(it, _)| !self.listed.contains(it));
        self.removed.truncate(MAX_RECEIVERS);
    }

    /// Reads the file of webhook entries. One that cannot be read changes nothing.
    async fn read_entries(&mut self) {
        if let Some(text) = read(self.options.entries_file.clone()).await {
            let lines = text.lines().take(MAX_RECEIVERS);
            let entry = |line: &str| {
                let (manager, hash) = line.split_once(' ')?;
                let manager = PathSegment::parse(manager).ok()?;
                let hash = PathSegment::parse(hash).ok()?.as_str().to_owned();
                let known = self.entries.get(&manager).filter(|it| it.0 == hash);
                let since = known.map_or_else(Instant::now, |it| it.1);
                Some((manager, (hash, since)))
            };
            self.entries = lines.filter_map(entry).collect();
        }
    }

    fn heartbeat(&self, manager: &PathSegment, report: &ManagerReport, ending: bool) -> Heartbeat {
        let sources = &self.sources;
        let (boot_id, version) = (&self.options.boot_id, &self.options.version);
        let certificates = sources.certificates.report();
        let not_after = certificates.not_after;
        let not_after = not_after.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        let mut heartbeat = Heartbeat::new(boot_id.clone(), version.clone());
        heartbeat.sequence = report.sequence;
        heartbeat.spool_depth = report.spool_depth;
        heartbeat.follow_up_depth = report.follow_up_depth;
        heartbeat.oldest_age_seconds = report.oldest_age.unwrap_or_default().as_secs();
        heartbeat.resync_needed = report.resync.is_some();
        heartbeat.ending = ending;
        let [(seen, last_age), (own_seen, own_age)] = sources.reviews.counts(manager);
        heartbeat.reviews_seen = Some(seen);
        heartbeat.last_review_age_seconds = last_age;
        heartbeat.manager_reviews_seen = Some(own_seen);
        heartbeat.manager_last_review_age_seconds = own_age;
        // Counts only rejections of the certificate. Handshake failures of a port scanner give no information about the caBundle.
        let rejections = sources.connections.get(Counter::CertificateRejections);
        heartbeat.handshake_failures = Some(rejections);
        heartbeat.certificate_not_after = not_after.and_then(|it| i64::try_from(it.as_secs()).ok());
        heartbeat.bundle_sha256 = certificates.bundle_sha256;
        if let Some((hash, since)) = self.entries.get(manager) {
            heartbeat.webhook_entry_hash = Some(hash.clone());
            heartbeat.webhook_entry_age_seconds = Some(since.elapsed().as_secs());
        }
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).ok();
        heartbeat.ready_milliseconds = milliseconds(self.ready_for());
        let draining = sources.readiness.draining_since();
        heartbeat.terminating_milliseconds = draining.and_then(|it| milliseconds(it.elapsed()));
        heartbeat
    }

    async fn post(&self, manager: &PathSegment, ending: bool) -> Answer {
        let outbox = &self.sources.outbox;
        let sent = Instant::now().into_std();
        let report = outbox.manager_report(manager, sent);
        let heartbeat = self.heartbeat(manager, &report, ending);
        match self.channel.post_heartbeat(manager, &heartbeat).await {
            Ok(()) => {
                self.metrics.heartbeat("accepted");
                if let Some(mark) = report.resync {
                    outbox.resync_reported(manager, mark, sent);
                }
                Answer::Accepted
            }
            Err(PostError::Refused {
                status: 404 | 405, ..
            }) => {
                self.metrics.heartbeat("unsupported");
                Answer::NotFound
            }
            Err(error) => {
                self.metrics.heartbeat("error");
                tracing::debug!(error = error_chain(&error), "heartbeat failed");
                Answer::Failed
            }
        }
    }
}

/// Returns when the first heartbeat is sent after the process is ready: after a tenth to a fifth of the interval, because thousands
/// of watchers are updated at the same time; with short intervals after [`ROUTED`], when its reviews arrive.
fn first_delay(interval: Duration, random: u64) -> Duration {
    let jitter = interval.saturating_sub(spread(interval, random));
    ((interval / 5 + jitter) / 2).max(interval.min(ROUTED))
}

/// The content of a small file; `None` if there is none, or it cannot be read.
async fn read(path: Option<PathBuf>) -> Option<String> {
    let path = path?;
    let read = spawn_blocking(move || files::read(&path, RECEIVERS_BYTES)).await;
    let content = read.ok()?.ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// The status is 404 or 405.
    NotFound,
    /// Any other failure, which gives no information about the support of heartbeats.
    Failed,
}

/// Whether a manager supports heartbeats, determined by its responses. Time is counted in rounds.
///
/// A public listener responds with 404 or 405. A gateway without a route to the manager also responds with 404. An accepted
/// event distinguishes the two cases, because it proves that the route leads to a listener. Before the first accepted event,
/// the manager gets a heartbeat in every second round; after that event, once more. If the response is the same, it gets one
/// in each [`RETRY_ROUNDS`], because the manager may move to a listener that supports heartbeats, and only heartbeats report
/// a loss. A manager that has accepted a heartbeat supports heartbeats, so a later 404 is a response of the gateway.
#[derive(Debug, Default)]
struct HeartbeatSupport {
    /// Whether the manager supports heartbeats; `None` if this is unclear.
    takes: Option<bool>,
    /// Number of 404 and 405 responses while the support was unclear.
    not_found: u32,
    /// Number of next rounds without a heartbeat.
    pause: u32,
}

impl HeartbeatSupport {
    /// Returns whether the manager gets a heartbeat in this round. `reached` specifies whether the manager has accepted an event.
    fn is_asked(&mut self, reached: bool) -> bool {
        let is_unclear = reached && self.takes != Some(false);
        let is_due = is_unclear || self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_due
    }

    /// Records the response of this round. `reached` is the value from before the heartbeat. Returns whether missing
    /// support must be logged.
    fn answered(&mut self, answer: Answer, reached: bool) -> bool {
        self.pause = 0;
        match answer {
            Answer::Accepted => self.takes = Some(true),
            Answer::NotFound if reached && self.takes != Some(true) => {
                self.pause = RETRY_ROUNDS - 1;
                return self.takes.replace(false).is_none();
            }
            Answer::NotFound if self.takes.is_none() => {
                self.pause = 2_u32.saturating_pow(self.not_found).min(RAREST) - 1;
                self.not_found = self.not_found.saturating_add(1);
                return self.not_found == 1;
            }
            Answer::NotFound | Answer::Failed => {}
        }
        false
    }
}

#[cfg(test)]
mod tests;
