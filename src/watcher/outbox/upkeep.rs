//! What the disk needs now and then, outside the lock that admission takes.
//!
//! Invariant: one upkeep at a time; it holds the state's lock for nothing that waits for the disk: only for what takes no
//! longer than a record, and for copying what is to be told. (Who puts an event waits for the disk under
//! [`FsyncPolicy::Always`] alone, which asks for just that.)

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::event::PathSegment;

use super::FsyncPolicy;
use super::error::SpoolError;
use super::folder::{Disk, Folder};
use super::journal::Journal;
use super::moment::Moment;
use super::recovery::{self, Found};
use super::state::{Settings, State};

/// How often it is looked whether something is to be done.
const IDLE: Duration = Duration::from_secs(1);

/// State and disk of an outbox.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    disk: Box<dyn Disk>,
    fsync: FsyncPolicy,
    managers: Vec<PathSegment>,
    upkeep: Mutex<()>,
}

impl Store {
    pub(super) fn new(settings: Settings, disk: Box<dyn Disk>) -> Self {
        Self {
            fsync: settings.fsync,
            state: Mutex::new(State::new(&settings)),
            managers: settings.managers,
            disk,
            upkeep: Mutex::new(()),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due; how long until the next time.
    pub(super) fn keep_up(&self, now: Moment) -> Duration {
        let _alone = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        self.force(now);
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
