//! An outbox on a disk in memory, and a clock.

use std::collections::HashMap;
use std::path::PathBuf;

use tokio::runtime::{Builder, Runtime};
use watcher_types::{Gvk, NamespacedName};

use super::super::*;
use super::disk::FakeDisk;

/// Time that no step of a correct outbox takes, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_mins(2);

/// Time limits for tests that are not about them.
pub(super) const LONG_LIMITS: TimeLimits = TimeLimits {
    open: LONG,
    stalled: LONG,
    shutdown: LONG,
};

pub(crate) struct Fixture {
    pub(crate) disk: FakeDisk,
    pub(crate) outbox: Outbox,
    pub(crate) recovered: Recovered,
    pub(crate) now: Instant,
    pub(super) settings: Settings,
}

/// Options without the directory, and limits.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) managers: Vec<PathSegment>,
    pub(crate) write_deadline: Duration,
    pub(crate) limits: Limits,
    pub(super) time_limits: TimeLimits,
    pub(crate) max_bytes: u64,
    pub(crate) fsync: FsyncPolicy,
    pub(crate) follow_up_delay: Duration,
}

impl Settings {
    fn open(&self, disk: FakeDisk, now: Instant) -> (Outbox, Recovered) {
        let options = Options {
            folder: PathBuf::new(),
            managers: self.managers.clone(),
            write_deadline: self.write_deadline,
            max_bytes: self.max_bytes,
            fsync: self.fsync,
            follow_up_delay: self.follow_up_delay,
        };
        let dir = Box::new(move || disk.open());
        Outbox::on(dir, options, self.limits, self.time_limits, now)
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        managers: Vec::new(),
        // Only the tests in `stuck` and `syncs` are about the deadlines.
        write_deadline: LONG,
        limits: Limits::WATCHER,
        time_limits: LONG_LIMITS,
        max_bytes: 512 << 10,
        fsync: FsyncPolicy::Never,
        follow_up_delay: Duration::from_secs(5),
    }
}

pub(crate) fn manager(name: &str) -> PathSegment {
    PathSegment::parse(name).unwrap()
}

pub(crate) fn event(number: u32) -> WatchEvent {
    WatchEvent {
        watched: NamespacedName {
            namespace: "n".to_owned(),
            name: number.to_string(),
        },
        watched_gvk: Gvk {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
        },
    }
}

/// Puts an event as admission does.
pub(crate) fn put_forced(outbox: &Outbox, to: &str, number: u32, now: Instant) -> Stored {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().unwrap();
    }
    RUNTIME.with(|it| it.block_on(outbox.put_forced(&manager(to), &event(number), now)))
}

fn name(item: &Item) -> String {
    format!("{}/{}", item.manager, item.event.watched.name)
}

impl Outbox {
    /// Opens a spool on a real disk as [`Self::open`] does, but waits for a disk that is busy with other writes.
    pub(crate) fn open_patiently(mut options: Options, now: Instant) -> (Self, Recovered) {
        let folder = options.folder.clone();
        options.write_deadline = LONG;
        let dir = Box::new(move || open_local(&folder));
        Self::on(dir, options, Limits::WATCHER, LONG_LIMITS, now)
    }

    /// Takes at most `limit` due events, of any manager.
    pub(crate) fn take(&self, now: Instant, limit: usize) -> Vec<Item> {
        let one = || self.take_permitted(now, |_, _| Ok(())).ok();
        let taken = std::iter::from_fn(one).take(limit);
        taken.map(|(item, ())| item).collect()
    }

    /// Checks what the queue maintains for reports.
    pub(crate) fn assert_pending_is_complete(&self) {
        self.shared.lock().queue.assert_pending_is_complete();
    }

    pub(crate) fn delivered(&self, item: &Item, now: Instant) {
        self.settle(item, Settlement::Delivered, now);
    }

    pub(crate) fn failed(&self, item: &Item, retry_at: Instant) {
        self.settle(item, Settlement::Retry(retry_at), self.epoch);
    }

    pub(crate) fn receivers(&self) -> Vec<Receiver> {
        self.managers(|managers| managers.receivers().collect())
    }

    /// Returns when the earliest event that is not in progress becomes due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let due = self.shared.lock().queue.next_due()?;
        Some(self.epoch + Duration::from_nanos(due.0))
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(FakeDisk::default(), settings())
    }

    pub(crate) fn with(disk: FakeDisk, settings: Settings) -> Self {
        Self::at(disk, settings, Instant::now())
    }

    fn at(disk: FakeDisk, settings: Settings, now: Instant) -> Self {
        let (outbox, recovered) = settings.open(disk.clone(), now);
        Self {
            disk,
            outbox,
            recovered,
            now,
            settings,
        }
    }

    /// Configures these managers for the next process.
    pub(crate) fn configure(&mut self, names: &[&str]) {
        self.settings.managers = names.iter().map(|name| manager(name)).collect();
    }

    /// Returns whether `name` must get a request for a resync.
    pub(crate) fn lost(&self, name: &str) -> bool {
        let report = self.outbox.manager_report(&manager(name), self.now);
        report.resync.is_some()
    }

    pub(crate) fn put(&mut self, to: &str, number: u32) -> Stored {
        match self.settings.fsync {
            FsyncPolicy::Always => put_forced(&self.outbox, to, number, self.now),
            _ => self.outbox.put(&manager(to), &event(number), self.now),
        }
    }

    /// Sets the duration of a disk operation after which the disk counts as failed.
    pub(crate) fn set_stalled(&self, stalled: Duration) {
        self.outbox.shared.lock().handoff.time_limits.stalled = stalled;
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Kills the process, and starts it again.
    pub(crate) fn kill(&mut self) -> Recovered {
        self.restart(None);
        self.recovered.clone()
    }

    /// Kills and restarts the process as [`Self::kill`] does. The next process dies after it has written `life` bytes.
    pub(crate) fn restart(&mut self, life: Option<u64>) {
        // The lock of the killed process must be released before.
        let (idle, _) = self.settings.open(FakeDisk::default(), self.now);
        self.outbox = idle;
        self.disk.content().revive();
        self.disk.content().life = life;
        *self = Self::at(self.disk.clone(), self.settings.clone(), self.now);
    }

    /// Forces a compaction.
    pub(crate) fn compact(&self) {
        self.outbox.shared.compact();
    }

    /// Runs the due work of the spool.
    pub(crate) fn keep_up(&self) {
        assert!(self.outbox.keep_up(self.now, LONG));
    }

    pub(crate) fn follow_up_delay(&self) -> Duration {
        self.settings.follow_up_delay
    }

    /// Delivers the due events, and returns their names.
    pub(crate) fn deliver_all(&mut self) -> Vec<String> {
        let items = self.outbox.take(self.now, usize::MAX);
        for item in &items {
            self.outbox.delivered(item, self.now);
        }
        items.iter().map(name).collect()
    }

    /// Delivers all events, follow-up events included.
    pub(crate) fn deliver_twice(&mut self) {
        self.deliver_all();
        self.pass(5);
        self.deliver_all();
    }

    /// Delivers all events, and returns how often each event was delivered.
    pub(crate) fn drain(&mut self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        while let Some(due) = self.outbox.next_due() {
            self.now = self.now.max(due);
            for name in self.deliver_all() {
                *times.entry(name).or_default() += 1;
            }
        }
        times
    }
}
