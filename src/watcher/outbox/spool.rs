//! The thread that owns the files of the spool, and the rules for writing and replacing files and for retries.
//!
//! Records are appended to the segment with the highest number. A compaction starts a new segment for further records, and
//! writes a snapshot of the pending events under the preceding number. The snapshot is synced to the disk and renamed, and
//! then the older segments are removed, the oldest first. If a kill interrupts this, reading the remaining files in order
//! gives the same result. Syncs and snapshots are jobs of another thread, one at a time, so that appends do not wait for
//! them. Only the owner thread appends.
//!
//! The total size of the files never exceeds `max_bytes`. Pending events take at most a quarter (the queue rejects more).
//! Records are appended up to three quarters, and the rest is reserved for a snapshot.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use component_base::backoff::Backoff;
use component_base::telemetry::error_chain;

use super::handoff::{Compaction, Shared, Work};
use super::queue::{MonotonicTime, Usage};
use super::record::FRAME_BYTES;
use super::segment::{HEADER_BYTES, NOT_WHOLE, WHOLE_AT};
use super::segments::{self, Active, Segment};
use super::storage::{AppendFile, OpenSpool, Storage, segment_name};
use super::{FsyncPolicy, Options};

/// Backoff of retries after a failure of the disk.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Number of obsolete bytes below which no compaction starts, because an fsync would cost more.
const NEGLIGIBLE: u64 = 256 << 10;

/// An error of the disk. No error loses an event of a process that keeps running, because each operation is retried.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpoolError {
    #[error("failed to {0}")]
    Io(&'static str, #[source] io::Error),
    #[error("spool directory is in use by another process")]
    Held,
    #[error("write to the disk timed out")]
    Stalled,
    #[error("spool is full and cannot be compacted")]
    Full,
}

impl SpoolError {
    /// Returns whether the directory no longer exists, so that its path must be opened again.
    fn directory_is_gone(&self) -> bool {
        let gone = [ErrorKind::NotFound, ErrorKind::StaleNetworkFileHandle];
        matches!(self, Self::Io(_, error) if gone.contains(&error.kind()))
    }
}

fn sync_failed(error: io::Error) -> SpoolError {
    SpoolError::Io("sync the spool to disk", error)
}

/// The running thread. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct SpoolThread {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SpoolThread {
    /// Starts the thread, which first opens the directory.
    pub(super) fn start(shared: Arc<Shared>, dir: OpenSpool, options: Options) -> Self {
        let spool = Spool {
            shared: Arc::clone(&shared),
            dir,
            options,
            storage: None,
            segments: Vec::new(),
            active: None,
            job: None,
            next: 1,
            failures: 0,
            retry_at: MonotonicTime::default(),
        };
        let builder = thread::Builder::new().name("spool".to_owned());
        let thread = match builder.spawn(move || spool.run()) {
            Ok(thread) => Some(thread),
            Err(error) => {
                shared.give_up(&SpoolError::Io("start the spool thread", error));
                shared.ended();
                None
            }
        };
        Self { shared, thread }
    }
}

impl Drop for SpoolThread {
    /// Waits for the pending records, but not for a disk that does not respond.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && self.shared.end()
        {
            let _nothing_to_tell = thread.join();
        }
    }
}

struct Spool {
    shared: Arc<Shared>,
    dir: OpenSpool,
    options: Options,
    /// `None` if the directory is not open.
    storage: Option<Arc<dyn Storage>>,
    /// The closed segments, by number.
    segments: Vec<Segment>,
    active: Option<Active>,
    job: Option<thread::JoinHandle<JobResult>>,
    /// A number that is higher than any used number.
    next: u64,
    failures: u32,
    retry_at: MonotonicTime,
}

/// Result of a job. After a compaction: the number of the snapshot, and the remaining segments up to and including the snapshot.
type JobResult = Result<Option<(u64, Vec<Segment>)>, SpoolError>;

impl Spool {
    fn run(mut self) {
        while let Some(work) = self.shared.next_work(self.job.is_some()) {
            if let Err(error) = self.work(&work) {
                self.give_up(&error, work.now);
            }
            self.shared.finish(&work, self.bytes(), self.job.is_some());
        }
        if let Err(error) = self.start_sync().and_then(|()| self.end_job()) {
            tracing::warn!(error = error_chain(&error), "failed to sync spool");
        }
        let shared = Arc::clone(&self.shared);
        // Releases the lock of the directory.
        drop(self);
        shared.ended();
    }

    fn work(&mut self, work: &Work) -> Result<(), SpoolError> {
        if work.job_ended || work.compaction == Compaction::Now {
            let ended = self.end_job();
            if self.active.is_some() {
                ended?;
            }
        }
        if self.active.is_none() {
            return if work.tick && self.retry_at <= work.now {
                self.open()
            } else {
                Ok(())
            };
        }
        if work.compaction == Compaction::Needed {
            // From now on only the snapshot contains the dropped records.
            self.close();
            self.mark_incomplete();
            return self.replace_all();
        }
        if !self.has_capacity(&work.frames) {
            self.end_job()?;
        }
        if !self.has_capacity(&work.frames) {
            self.close();
            return if self.retry_at <= work.now {
                self.replace_all()
            } else {
                Err(SpoolError::Full)
            };
        }
        self.append(&work.frames)?;
        self.shared.acknowledge(work.number);
        if self.job.is_some() {
            return Ok(());
        }
        if work.compaction == Compaction::Now || self.wants_compaction(work.now) {
            return self.compact(work.now);
        }
        if work.tick {
            self.start_sync()?;
        }
        Ok(())
    }

    /// Opens and reads the directory, if it is not open, and starts a new segment.
    fn open(&mut self) -> Result<(), SpoolError> {
        if self.storage.is_none() {
            // The job may hold the lock of the directory.
            let _outdated = self.end_job();
            let storage = (self.dir)().map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => SpoolError::Held,
                _ => SpoolError::Io("open the spool directory", error),
            })?;
            let found = segments::read_all(&*storage, &self.options.managers)?;
            (self.segments, self.next) = (found.segments, found.next);
            self.storage = Some(Arc::from(storage));
            self.shared.recover(found.left, found.damage);
        }
        self.replace_all()
    }

    /// Appends records. After an error the file contains none of the records, or at most a torn end.
    fn append(&mut self, frames: &[u8]) -> Result<(), SpoolError> {
        let Some(active) = self.active.as_mut().filter(|_| !frames.is_empty()) else {
            return Ok(());
        };
        if let Err(error) = segments::append(&*active.file, frames) {
            if let Err(error) = active.file.cut(active.segment.bytes) {
                tracing::warn!(%error, "failed to cut a torn record off the spool segment");
            }
            return Err(SpoolError::Io("write to a segment", error));
        }
        active.segment.bytes += frames.len() as u64;
        active.dirty = true;
        if self.options.fsync == FsyncPolicy::Always {
            active.file.sync().map_err(sync_failed)?;
            active.dirty = false;
        }
        Ok(())
    }

    /// Starts a sync of the records since the last sync, if the policy syncs in batches. The kernel may drop data after a
    /// failed sync, so after an error all events are written again to another segment.
    fn start_sync(&mut self) -> Result<(), SpoolError> {
        self.end_job()?;
        match self.unsynced() {
            Some(file) => self.start_job(move || {
                file.sync().map_err(sync_failed)?;
                Ok(None)
            }),
            None => Ok(()),
        }
    }

    /// Returns the file of the active segment, if the policy requires a sync of the file.
    fn unsynced(&mut self) -> Option<Arc<dyn AppendFile>> {
        let batches = matches!(self.options.fsync, FsyncPolicy::EachBatch(_));
        let active = self.active.as_mut().filter(|it| batches && it.dirty)?;
        active.dirty = false;
        Some(Arc::clone(&active.file))
    }

    /// Replaces all segments by a snapshot, to which further records are appended. Used for a spool that lacks records: no
    /// record is acknowledged before the snapshot is on the disk.
    fn replace_all(&mut self) -> Result<(), SpoolError> {
        if let Err(error) = self.end_job() {
            let error = error_chain(&error);
            tracing::debug!(error, "sync of a replaced segment failed");
        }
        let Some(storage) = &self.storage else {
            return Ok(());
        };
        let number = self.next;
        self.next += 1;
        let snapshot = self.shared.snapshot();
        let active = segments::write(&**storage, number, Some(&snapshot))?;
        self.active = Some(active);
        self.segments = segments::remove(&**storage, std::mem::take(&mut self.segments));
        self.failures = 0;
        self.shared.acknowledge(snapshot.number);
        Ok(())
    }

    /// Starts a new segment and a job that replaces all other segments by a snapshot. If this fails, only space is lost,
    /// and it is retried after the backoff.
    fn compact(&mut self, now: MonotonicTime) -> Result<(), SpoolError> {
        let Some(storage) = self.storage.clone() else {
            return Ok(());
        };
        let number = self.next;
        self.next += 2;
        let snapshot = self.shared.snapshot();
        if snapshot.is_only_copy {
            self.close();
            self.mark_incomplete();
            return self.replace_all();
        }
        if !self.has_capacity(&snapshot.frames) {
            return Err(SpoolError::Full);
        }
        self.append(&snapshot.frames)?;
        self.shared.acknowledge(snapshot.number);
        self.back_off(now);
        match segments::write(&*storage, number + 1, None) {
            Ok(active) => {
                let unsynced = self.unsynced();
                self.close();
                self.active = Some(active);
                let segments = self.segments.clone();
                self.start_job(move || {
                    let synced = unsynced.map_or(Ok(()), |file| file.sync());
                    synced.and_then(|()| storage.sync()).map_err(sync_failed)?;
                    Ok(match segments::write(&*storage, number, Some(&snapshot)) {
                        Ok(snapshot) => {
                            let mut left = segments::remove(&*storage, segments);
                            left.push(snapshot.segment);
                            Some((number, left))
                        }
                        Err(error) => {
                            tracing::warn!(error = error_chain(&error), "failed to compact spool");
                            None
                        }
                    })
                })?;
                if self.options.fsync == FsyncPolicy::Always {
                    return self.end_job();
                }
            }
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "failed to compact spool");
            }
        }
        Ok(())
    }

    fn start_job(
        &mut self,
        job: impl FnOnce() -> JobResult + Send + 'static,
    ) -> Result<(), SpoolError> {
        let shared = Arc::clone(&self.shared);
        shared.set_job_runs(true);
        let builder = thread::Builder::new().name("spool-sync".to_owned());
        let job = builder.spawn(move || {
            let result = job();
            shared.set_job_runs(false);
            result
        });
        self.job = Some(job.map_err(sync_failed)?);
        Ok(())
    }

    fn end_job(&mut self) -> Result<(), SpoolError> {
        let Some(job) = self.job.take() else {
            return Ok(());
        };
        let panicked = || sync_failed(io::Error::other("panic"));
        let compacted = job.join().map_err(|_| panicked())??;
        // Otherwise the job belongs to a directory that no longer exists.
        if let Some((number, mut left)) = compacted.filter(|_| self.storage.is_some()) {
            self.segments.retain(|segment| segment.number > number);
            left.append(&mut self.segments);
            self.segments = left;
            (self.failures, self.retry_at) = (0, MonotonicTime::default());
        }
        Ok(())
    }

    /// Stops writing until a retry. The last segment is marked as incomplete.
    fn give_up(&mut self, error: &SpoolError, now: MonotonicTime) {
        self.close();
        self.mark_incomplete();
        if error.directory_is_gone() {
            self.storage = None;
            self.segments.clear();
        }
        self.back_off(now);
        self.shared.give_up(error);
    }

    /// Overwrites one byte in place, which is possible even if the disk is full.
    fn mark_incomplete(&self) {
        if let (Some(storage), Some(last)) = (&self.storage, self.segments.last())
            && let Err(error) = storage.overwrite(&segment_name(last.number), WHOLE_AT, NOT_WHOLE)
        {
            tracing::warn!(%error, "failed to mark spool incomplete");
        }
    }

    /// Closes the active segment.
    fn close(&mut self) {
        let closed = self.active.take();
        self.segments.extend(closed.map(|active| active.segment));
    }

    fn back_off(&mut self, now: MonotonicTime) {
        self.retry_at = now.after(RETRY.delay(self.failures, u64::MAX));
        self.failures = self.failures.saturating_add(1);
    }

    fn bytes(&self) -> u64 {
        let active = self.active.as_ref().map(|active| &active.segment);
        let segments = self.segments.iter().chain(active);
        segments.map(|segment| segment.bytes).sum()
    }

    fn has_capacity(&self, frames: &[u8]) -> bool {
        self.bytes() + frames.len() as u64 <= self.options.max_bytes / 4 * 3
    }

    /// Returns whether most bytes of the segments are obsolete.
    fn wants_compaction(&self, now: MonotonicTime) -> bool {
        let bytes = self.bytes();
        if bytes <= NEGLIGIBLE || now < self.retry_at {
            return false;
        }
        let live = self.shared.live_bytes();
        let threshold = live.max(NEGLIGIBLE).min(self.options.max_bytes / 4);
        bytes.saturating_sub(live) > threshold
    }
}

/// Returns the size of a segment with a record for each of these keys.
pub(super) fn segment_bytes(keys: Usage) -> u64 {
    (HEADER_BYTES + keys.keys * FRAME_BYTES + keys.key_bytes) as u64
}
