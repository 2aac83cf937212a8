//! The thread that writes records, so that nothing else waits for a disk that does not answer.
//!
//! Records are handed over in the order in which they change the spool, and written in that order. Whoever promises that a
//! record is on the disk waits for it ([`Pending::wait`]), for a bounded time and without a lock. Invariants: no lock is held
//! while the disk works; what waits to be written is bounded by [`BACKLOG`]; a record is acknowledged after `write(2)`, or
//! after `fsync(2)` if it is to survive the machine. Deliberately absent: which file is written, and what follows from a
//! failure (the spool).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::SpoolError;
use super::folder::{Appended, Folder};
use super::segment::{NOT_WHOLE, WHOLE_AT};

/// Most bytes of records that wait to be written.
const BACKLOG: usize = 1 << 20;

/// How long the disk may work at one record before the spool is given up.
pub(super) const STALLED: Duration = Duration::from_secs(1);

/// How long the end of a process waits for the records that were handed over.
const FAREWELL: Duration = Duration::from_secs(1);

/// A segment that is written.
#[derive(Debug)]
pub(super) struct SegmentFile {
    file: Arc<dyn Appended>,
    /// Bytes that were written.
    length: AtomicU64,
    /// Written to since it was last forced to the disk.
    dirty: AtomicBool,
    /// The number of the first record that it did not take. From there on it takes none.
    failed_at: AtomicU64,
}

impl SegmentFile {
    /// A file that holds `length` bytes.
    pub(super) fn new(file: Arc<dyn Appended>, length: u64) -> Self {
        Self {
            file,
            length: AtomicU64::new(length),
            dirty: AtomicBool::new(false),
            failed_at: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether it was written to since the last call. From now on it counts as forced.
    pub(super) fn take_dirty(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    /// Forces what was written to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn append(&self, number: u64, frame: &[u8], lasting: bool) -> Result<(), SpoolError> {
        if self.failed_at.load(Ordering::Acquire) < number {
            return Err(SpoolError::Append(ErrorKind::NotConnected.into()));
        }
        let outcome = self.write(frame, lasting);
        if outcome.is_err() {
            self.failed_at.store(number, Ordering::Release);
        }
        outcome
    }

    /// After an error nothing of the record is in the file, or at worst a torn end.
    fn write(&self, frame: &[u8], lasting: bool) -> Result<(), SpoolError> {
        let length = self.length.load(Ordering::Acquire);
        if let Err(error) = append_all(&*self.file, frame) {
            if let Err(error) = self.file.cut(length) {
                tracing::warn!(%error, "failed to cut a torn record off the spool segment");
            }
            return Err(SpoolError::Append(error));
        }
        self.length
            .store(length + frame.len() as u64, Ordering::Release);
        if lasting {
            return self.file.sync().map_err(SpoolError::Sync);
        }
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }
}

/// One write, or an error: what a disk takes only in part it has no room for.
pub(super) fn append_all(file: &dyn Appended, bytes: &[u8]) -> io::Result<()> {
    match file.append(bytes)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(ErrorKind::StorageFull.into()),
    }
}

/// What is written.
#[derive(Debug)]
pub(super) enum Job {
    /// A record at the end of a segment.
    Append {
        file: Arc<SegmentFile>,
        frame: Vec<u8>,
        /// Whether it is to survive the machine.
        lasting: bool,
    },
    /// In this segment, that something of its time is missing; possible where a full disk takes no more.
    MarkIncomplete {
        folder: Arc<dyn Folder>,
        segment: String,
    },
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Append { frame, .. } => frame.len(),
            Self::MarkIncomplete { .. } => 0,
        }
    }

    fn run(&self, number: u64) -> Result<(), SpoolError> {
        match self {
            Self::Append {
                file,
                frame,
                lasting,
            } => file.append(number, frame, *lasting),
            Self::MarkIncomplete { folder, segment } => {
                if let Err(error) = folder.overwrite(segment, WHOLE_AT, NOT_WHOLE) {
                    tracing::warn!(%error, "failed to mark spool incomplete");
                }
                Ok(())
            }
        }
    }
}

/// The writer. Its thread starts with the first record, and ends with this.
#[derive(Debug, Default)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the thread.
    handed: Condvar,
    /// The thread has done something.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Bytes of `jobs`.
    bytes: usize,
    /// Jobs that were handed over, and that are done.
    handed: u64,
    done: u64,
    /// Since when the disk works at a job.
    busy_since: Option<Instant>,
    /// The first failure that was not taken yet.
    failure: Option<SpoolError>,
    ending: bool,
    ended: bool,
}

/// What was handed over until some moment, to be waited for.
#[derive(Debug)]
pub(super) struct Pending {
    shared: Arc<Shared>,
    number: u64,
    /// Where the record goes; `None`: whatever was handed over is waited for, wherever it goes.
    file: Option<Arc<SegmentFile>>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Yes,
    /// The disk refused it.
    No,
    /// The disk has not answered in time. It may be written later.
    Late,
}

impl Writer {
    /// Hands a job over.
    ///
    /// # Errors
    /// There is no thread, or the disk is so slow that too much waits.
    pub(super) fn hand_over(&mut self, job: Job) -> Result<u64, SpoolError> {
        self.start()?;
        let mut state = self.shared.lock();
        if state.bytes + job.bytes() > BACKLOG {
            return Err(SpoolError::Stalled);
        }
        state.bytes += job.bytes();
        state.jobs.push_back(job);
        state.handed += 1;
        let number = state.handed;
        drop(state);
        self.shared.handed.notify_one();
        Ok(number)
    }

    /// All that was handed over until now, done or not; for `file` if one is given.
    pub(super) fn pending(&self, file: Option<&Arc<SegmentFile>>) -> Pending {
        Pending {
            shared: Arc::clone(&self.shared),
            number: self.shared.lock().handed,
            file: file.cloned(),
        }
    }

    /// What went wrong since the last call: a failure, or a disk that has not answered for [`STALLED`].
    pub(super) fn trouble(&self) -> Option<SpoolError> {
        let mut state = self.shared.lock();
        let stalled = state
            .busy_since
            .is_some_and(|since| since.elapsed() >= STALLED);
        let failure = state.failure.take();
        failure.or(stalled.then_some(SpoolError::Stalled))
    }

    fn start(&mut self) -> Result<(), SpoolError> {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("spool-writer".to_owned());
            let thread = builder
                .spawn(move || shared.write())
                .map_err(SpoolError::Thread)?;
            self.thread = Some(thread);
        }
        Ok(())
    }
}

impl Drop for Writer {
    /// Waits for what was handed over, but not for a disk that does not answer.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        let mut state = self.shared.lock();
        state.ending = true;
        self.shared.handed.notify_one();
        let ended = self
            .shared
            .done
            .wait_timeout_while(state, FAREWELL, |state| !state.ended);
        let (state, _) = ended.unwrap_or_else(PoisonError::into_inner);
        let has_ended = state.ended;
        drop(state);
        if has_ended {
            let _nothing_to_tell = thread.join();
        }
    }
}

impl Pending {
    /// Waits until the record is written, or refused, or `deadline` has passed.
    pub(super) fn wait(&self, deadline: Duration) -> Written {
        let waited = self
            .shared
            .done
            .wait_timeout_while(self.shared.lock(), deadline, |state| {
                state.done < self.number
            });
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let file = self.file.as_ref();
        if state.done < self.number {
            Written::Late
        } else if file.is_some_and(|file| file.failed_at.load(Ordering::Acquire) <= self.number) {
            Written::No
        } else {
            Written::Yes
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life.
    fn write(&self) {
        while let Some((job, number)) = self.next() {
            let outcome = job.run(number);
            let bytes = job.bytes();
            // It may hold the folder.
            drop(job);
            let mut state = self.lock();
            state.bytes -= bytes;
            state.done = number;
            state.busy_since = None;
            if let Err(error) = outcome {
                state.failure.get_or_insert(error);
            }
            drop(state);
            self.done.notify_all();
        }
        self.lock().ended = true;
        self.done.notify_all();
    }

    /// Waits for a job; `None`: there will be none.
    fn next(&self) -> Option<(Job, u64)> {
        let waited = self
            .handed
            .wait_while(self.lock(), |state| state.jobs.is_empty() && !state.ending);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let job = state.jobs.pop_front()?;
        state.busy_since = Some(Instant::now());
        Some((job, state.done + 1))
    }
}
