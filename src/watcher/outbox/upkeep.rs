//! What the disk needs now and then, outside the lock that admission takes.
//!
//! Invariant: one upkeep at a time; the state's lock is held for nothing that waits for the disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::event::{PathSegment, WatchEvent};

use super::error::SpoolError;
use super::folder::{Disk, Folder};
use super::journal::Journal;
use super::moment::Moment;
use super::recovery::{self, Found};
use super::state::{Settings, State};
use super::writer::{STALLED, Written};
use super::{FsyncPolicy, Stored};

/// How often it is looked whether something is to be done.
const IDLE: Duration = Duration::from_secs(1);

/// How long a put waits for the disk where each record is forced to it.
const FORCED: Duration = Duration::from_secs(1);

/// State and disk of an outbox.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    disk: Box<dyn Disk>,
    fsync: FsyncPolicy,
    managers: Vec<PathSegment>,
    write_deadline: Duration,
    upkeep: Mutex<()>,
}

impl Store {
    pub(super) fn new(settings: Settings, disk: Box<dyn Disk>) -> Self {
        Self {
            fsync: settings.fsync,
            write_deadline: settings.write_deadline,
            state: Mutex::new(State::new(&settings)),
            managers: settings.managers,
            disk,
            upkeep: Mutex::new(()),
        }
    }

    /// Keeps an event, and waits until it is on the disk, for a bounded time and without the lock.
    pub(super) fn put(&self, manager: &PathSegment, event: &WatchEvent, now: Moment) -> Stored {
        let mut state = self.lock();
        let stored = state.put(manager, event, now);
        let pending = state.spool.pending();
        drop(state);
        let Some(pending) = pending else {
            return stored;
        };
        let deadline = match self.fsync {
            FsyncPolicy::Always => FORCED,
            FsyncPolicy::Never | FsyncPolicy::EachBatch(_) => self.write_deadline,
        };
        if pending.wait(deadline) == Written::Yes {
            return stored;
        }
        self.lock().spool.check(now);
        match stored {
            Stored::Spooled | Stored::Coalesced => Stored::MemoryOnly,
            other => other,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due; how long until the next time.
    pub(super) fn keep_up(&self, now: Moment) -> Duration {
        let _alone = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        self.force(now);
        let handed_over = self.lock().spool.handed_over();
        let answers = handed_over.wait(STALLED) == Written::Yes;
        self.lock().spool.check(now);
        if !answers {
            // Whatever is tried now would not be answered either.
            return IDLE;
        }
        let wants_retry = self.lock().spool.wants_retry(now);
        if let Some(anew) = wants_retry {
            self.attach(anew, now);
        } else if self.lock().wants_compaction(now) {
            self.compact(now);
        }
        self.lock().queue.shrink();
        match self.fsync {
            FsyncPolicy::EachBatch(period) => period.clamp(Duration::from_millis(1), IDLE),
            FsyncPolicy::Never | FsyncPolicy::Always => IDLE,
        }
    }

    /// Takes the disk into use for the first time, before any upkeep.
    pub(super) fn attach_first(&self) -> Option<Found> {
        let _alone = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        self.attach(true, Moment::default())
    }

    /// Takes the disk into use; what was found on it, if its folder was opened anew.
    pub(super) fn attach(&self, anew: bool, now: Moment) -> Option<Found> {
        let mut found = None;
        if anew {
            let (folder, mut read) = self.read(now)?;
            let (segments, next) = (std::mem::take(&mut read.segments), read.next);
            let journal = Journal::new(folder, segments, next);
            let left = std::mem::take(&mut read.left);
            self.lock().adopt(journal, left, now);
            found = Some(read);
        }
        self.compact(now);
        found
    }

    fn read(&self, now: Moment) -> Option<(Arc<dyn Folder>, Found)> {
        let opened = self.disk.open().map_err(SpoolError::opening);
        let read = opened.and_then(|folder| {
            let found = recovery::read(&folder, &self.managers)?;
            Ok((folder, found))
        });
        read.map_err(|error| self.lock().spool.give_up(&error, now))
            .ok()
    }

    pub(super) fn compact(&self, now: Moment) {
        // Not in the conditions: their locks would be held to the end.
        let reserved = self.lock().spool.reserve();
        let Some((reserved, lasting)) = reserved else {
            return;
        };
        let ended = reserved.create(lasting).and_then(|fresh| {
            let compaction = self.lock().switch(fresh);
            compaction.map(|it| it.run()).transpose()
        });
        match ended {
            Ok(None) => {}
            Ok(Some(compacted)) => self.lock().spool.end(Ok(compacted), now),
            Err(error) => self.lock().spool.end(Err(error), now),
        }
    }

    /// Forces to the disk what was written since the last time.
    fn force(&self, now: Moment) {
        let unforced = self.lock().spool.unforced();
        if let Some(Err(error)) = unforced.map(|file| file.sync()) {
            // What was not forced may be dropped by the kernel: everything is written again, elsewhere.
            self.lock().spool.give_up(&SpoolError::Sync(error), now);
        }
    }
}
