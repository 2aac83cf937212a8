//! The thread that owns the files of the spool, and how the files are written, replaced and tried again.
//!
//! Records are appended to the segment with the highest number. A compaction begins a new segment for the records to come,
//! and writes a snapshot of what is to be sent under the number before it: to the disk first, then renamed, then the
//! older segments are removed, the oldest first. Whichever of the files a kill leaves, reading them in order gives the same.
//! Syncs and snapshots are a job of another thread, one at a time, so that appends do not wait for them; only the owner
//! appends.
//!
//! The files never exceed `max_bytes` together. What is to be sent takes a quarter at most (the queue rejects more), records
//! are appended up to three quarters, and the rest is for a snapshot.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use component_base::backoff::Backoff;
use component_base::telemetry::error_chain;

use super::handoff::{Compaction, Shared, Work};
use super::queue::MonotonicTime;
use super::record::FRAME_BYTES;
use super::segment::{HEADER_BYTES, NOT_WHOLE, WHOLE_AT};
use super::segments::{self, Active, Segment};
use super::storage::{AppendFile, OpenSpool, Storage, segment_name};
use super::{FsyncPolicy, Options};

/// How long a disk is left alone that has failed.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Below so many dead bytes nothing is compacted: it is not worth an fsync.
const NEGLIGIBLE: u64 = 256 << 10;

/// How long the end of a process waits for the records that were handed over.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// An error of the disk. None loses an event of a process that keeps running: all are retried.
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
    /// Whether the directory itself is gone, so that its path must be opened anew.
    fn directory_is_gone(&self) -> bool {
        let gone = [ErrorKind::NotFound, ErrorKind::StaleNetworkFileHandle];
        matches!(self, Self::Io(_, error) if gone.contains(&error.kind()))
    }
}

fn sync_failed(error: io::Error) -> SpoolError {
    SpoolError::Io("sync the spool to disk", error)
}

/// The running thread. It ends with this.
#[derive(Debug)]
pub(super) struct SpoolThread {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SpoolThread {
    /// Starts the thread, which opens the directory first.
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
    /// Waits for what was handed over, but not for a disk that does not answer.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && self.shared.end(SHUTDOWN_TIMEOUT)
        {
            let _nothing_to_tell = thread.join();
        }
    }
}

struct Spool {
    shared: Arc<Shared>,
    dir: OpenSpool,
    options: Options,
    /// `None`: the directory is not open.
    storage: Option<Arc<dyn Storage>>,
    /// The segments that are not appended to, by number.
    segments: Vec<Segment>,
    active: Option<Active>,
    job: Option<thread::JoinHandle<JobResult>>,
    /// A number that is higher than any in use.
    next: u64,
    failures: u32,
    retry_at: MonotonicTime,
}

/// What the slow work of another thread has come to. After a compaction: the number of the snapshot, and what is left of the
/// segments up to it, itself included.
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
        // It holds the lock of the directory.
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
            // What the segment lacks from now on is in the snapshot only.
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

    /// Opens the directory and reads it, if it is not open, and begins a new segment.
    fn open(&mut self) -> Result<(), SpoolError> {
        if self.storage.is_none() {
            // It may hold the lock of the directory.
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

    /// Appends records. After an error nothing of them is in the file, or at worst a torn end.
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

    /// Begins to force to the disk what was written since the last time, by a policy that does so in batches. What could
    /// not be forced may be dropped by the kernel, so after an error everything is written again, elsewhere.
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

    /// The file of the segment that is appended to, if its policy asks for a sync of it.
    fn unsynced(&mut self) -> Option<Arc<dyn AppendFile>> {
        let batches = matches!(self.options.fsync, FsyncPolicy::EachBatch(_));
        let active = self.active.as_mut().filter(|it| batches && it.dirty)?;
        active.dirty = false;
        Some(Arc::clone(&active.file))
    }

    /// Replaces all segments by a snapshot, which is appended to from then on. For a spool that lacks records: nothing is
    /// acknowledged before the snapshot is on the disk.
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

    /// Begins a new segment, and to replace all others by a snapshot. If that fails it costs nothing but space, and is tried
    /// when the back-off that begins now is over.
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
        // Or else it was of a directory that is gone.
        if let Some((number, mut left)) = compacted.filter(|_| self.storage.is_some()) {
            self.segments.retain(|segment| segment.number > number);
            left.append(&mut self.segments);
            self.segments = left;
            (self.failures, self.retry_at) = (0, MonotonicTime::default());
        }
        Ok(())
    }

    /// Stops writing for a while. The last segment says that something of its time is missing.
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

    /// Changes a byte in place, which is possible where a full disk takes no more.
    fn mark_incomplete(&self) {
        if let (Some(storage), Some(last)) = (&self.storage, self.segments.last())
            && let Err(error) = storage.overwrite(&segment_name(last.number), WHOLE_AT, NOT_WHOLE)
        {
            tracing::warn!(%error, "failed to mark spool incomplete");
        }
    }

    /// Takes no more records into the segment that is appended to.
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

    /// Whether most of the segments is dead.
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

/// Bytes of a segment with so many records and bytes of payload.
pub(super) fn segment_bytes(records: usize, payload_bytes: usize) -> u64 {
    (HEADER_BYTES + records * FRAME_BYTES + payload_bytes) as u64
}
