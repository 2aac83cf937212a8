//! State that requests and the spool thread share: the queue under one lock, and the records that wait for the disk. The
//! lock is never held during disk operations. Beyond [`BACKLOG`] the records are dropped, and a snapshot of the queue is
//! written instead.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;
use watcher_types::{PathSegment, WatchEvent};

use super::queue::{Limits, MonotonicTime};
use super::record::{self, FRAME_BYTES, Kind};
use super::segments::RecoveredState;
use super::spool::SpoolError;
use super::state::State;
use super::types::TimeLimits;
use super::{FsyncPolicy, Options, Stored};

/// Maximum number of bytes of records that wait to be written.
const BACKLOG: usize = 1 << 20;

/// Number of slots of the queue that a snapshot copies under one lock. This takes a tenth of a millisecond.
const SLICE: usize = 2_048;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Opening,
    Running,
    /// The thread ends after it has written the pending records.
    Ending,
    Ended,
}

/// When a snapshot is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compaction {
    /// When most bytes of the segments are obsolete.
    #[default]
    IfWorthwhile,
    /// At once, for tests.
    Now,
    /// At once, because records were dropped when the disk was too slow.
    Needed,
}

/// The records that wait for the disk, and the state of the disk.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    pub(super) time_limits: TimeLimits,
    /// Whether records are accepted. Otherwise the next snapshot contains their effect.
    accepting: bool,
    frames: Vec<u8>,
    /// Number of records that were handed over, and number of these records that are on the disk.
    handed: u64,
    done: u64,
    compaction: Compaction,
    ticks: u64,
    /// Ticks whose work has started, and ticks whose work is complete.
    ticks_begun: u64,
    ticks_done: u64,
    /// The latest time that a caller has passed.
    now: MonotonicTime,
    /// Start of the current work of the thread.
    busy_since: Option<Instant>,
    /// Whether the last job that was started still runs.
    job_runs: bool,
    phase: Phase,
    /// Whether events survive the end of the process: the disk has not failed, and has responded within [`TimeLimits::stalled`].
    writable: bool,
    pub(super) bytes: u64,
    /// Number of times that the disk became unwritable.
    pub(super) failures: u64,
    /// Reason why the spool is not writable; `None` if it is writable.
    pub(super) failure: Option<String>,
    /// Bytes that belong to no intact record, and number of segments of another version.
    pub(super) damage: (u64, usize),
}

#[derive(Debug)]
pub(super) struct Work {
    pub(super) frames: Vec<u8>,
    pub(super) compaction: Compaction,
    /// Whether a sync or a retry of the disk may be due.
    pub(super) tick: bool,
    pub(super) job_ended: bool,
    pub(super) now: MonotonicTime,
    /// Number of the last record.
    pub(super) number: u64,
    ticks: u64,
}

/// All events that must be sent at one moment, and the earlier records that are not written yet. Changes during the copy of
/// the keys may or may not be included. Their records follow the snapshot, and the last record of a key is decisive.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) keys: Vec<Arc<[u8]>>,
    /// Records of the losses.
    pub(super) losses: Vec<u8>,
    pub(super) frames: Vec<u8>,
    /// Number of the last record in `frames`.
    pub(super) number: u64,
    /// Whether earlier records were dropped, so that only this snapshot contains their effect.
    pub(super) is_only_copy: bool,
}

impl Handoff {
    pub(super) fn new(time_limits: TimeLimits) -> Self {
        Self {
            time_limits,
            ..Self::default()
        }
    }

    /// Hands over a record, if records are accepted.
    pub(super) fn record(&mut self, kind: Kind, payload: &[u8]) {
        if !self.accepting {
            return;
        }
        if self.frames.len() + FRAME_BYTES + payload.len() > BACKLOG {
            self.compaction = Compaction::Needed;
            self.refuse();
            return;
        }
        record::write(&mut self.frames, kind, payload);
        self.handed += 1;
    }

    /// Returns whether events survive the end of the process.
    pub(super) fn is_writable(&mut self) -> bool {
        if self.writable && self.is_busy_for(self.time_limits.stalled) {
            self.fail(&SpoolError::Stalled);
        }
        self.writable
    }

    /// Returns whether the current work of the thread has taken at least `time`.
    fn is_busy_for(&self, time: Duration) -> bool {
        self.busy_since.is_some_and(|since| since.elapsed() >= time)
    }

    /// Drops the pending records, and accepts no further records.
    fn refuse(&mut self) {
        self.accepting = false;
        self.frames = Vec::new();
    }

    fn fail(&mut self, error: &SpoolError) {
        self.writable = false;
        self.failures += 1;
        let text = component_base::telemetry::error_chain(error);
        if self.failure.as_deref() != Some(&*text) {
            tracing::error!(
                error = text,
                "failed to write spool segment, events are in memory only"
            );
        }
        self.failure = Some(text);
    }

    fn works_again(&mut self) {
        self.writable = true;
        if self.failure.take().is_some() {
            tracing::info!("spool writable again");
        }
    }
}

/// The state, and the signals between requests and the thread.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Maximum time that a put blocks its thread for the disk.
    write_deadline: Duration,
    /// Signals work for the thread.
    work: Condvar,
    /// Signals progress of the thread.
    progress: Condvar,
    /// Signals progress to tasks that wait until their records are on the disk.
    acknowledged: Notify,
    /// Signals that events were put, or found on the disk.
    pub(super) changed: Notify,
}

impl Shared {
    pub(super) fn new(options: &Options, limits: Limits, time_limits: TimeLimits) -> Self {
        Self {
            state: Mutex::new(State::new(options, limits, time_limits)),
            write_deadline: match options.fsync {
                FsyncPolicy::Always => Duration::ZERO,
                FsyncPolicy::Never | FsyncPolicy::EachBatch(_) => options.write_deadline,
            },
            work: Condvar::new(),
            progress: Condvar::new(),
            acknowledged: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_at(&self, now: MonotonicTime) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.handoff.now = state.handoff.now.max(now);
        state
    }

    /// Changes the state, and wakes the thread for the resulting records.
    pub(super) fn change<R>(&self, now: MonotonicTime, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock_at(now);
        let result = change(&mut state);
        drop(state);
        self.work.notify_one();
        result
    }

    /// Stores an event, and waits until it is on the disk, for at most the write deadline. Returns the number of the record
    /// if it is not on the disk by then, for [`Self::forced`].
    pub(super) fn put(
        &self,
        manager: &PathSegment,
        event: &WatchEvent,
        now: MonotonicTime,
    ) -> (Stored, Option<u64>) {
        let mut state = self.lock_at(now);
        let stored = state.put(manager, event, now);
        self.work.notify_one();
        let number = state.handoff.handed;
        let kept = matches!(stored, Stored::Spooled | Stored::Coalesced);
        let unwritten = kept && !self.is_written(state, number);
        self.changed.notify_one();
        (stored, unwritten.then_some(number))
    }

    /// Waits until the records up to `number` are written. Does not wait if the current disk operation already takes longer
    /// than the deadline.
    fn is_written(&self, state: MutexGuard<'_, State>, number: u64) -> bool {
        let handoff = &state.handoff;
        if !handoff.accepting || !handoff.writable {
            return false;
        }
        let deadline = if handoff.is_busy_for(self.write_deadline) {
            Duration::ZERO
        } else {
            self.write_deadline
        };
        let waits = |state: &mut State| state.handoff.done < number && state.handoff.accepting;
        let waited = self.progress.wait_timeout_while(state, deadline, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.handoff.is_writable();
        state.handoff.done >= number
    }

    /// Waits until the records up to `number` are on the disk, without blocking a thread. Returns whether they are on the disk
    /// within [`TimeLimits::stalled`].
    pub(super) async fn forced(&self, number: u64) -> bool {
        let waiting = async {
            loop {
                let acknowledged = self.acknowledged.notified();
                let waits = |handoff: &mut Handoff| {
                    handoff.done < number && handoff.accepting && handoff.is_writable()
                };
                if !waits(&mut self.lock().handoff) {
                    return;
                }
                acknowledged.await;
            }
        };
        let limit = self.lock().handoff.time_limits.stalled;
        let _elapsed = timeout(limit, waiting).await;
        let handoff = &mut self.lock().handoff;
        handoff.is_writable();
        handoff.done >= number
    }

    /// Triggers the work of the thread that is due at `now`. Returns the tick to wait for with [`Self::ticked`].
    pub(super) fn tick(&self, now: MonotonicTime) -> u64 {
        self.change(now, |state| {
            state.queue.shrink();
            state.handoff.is_writable();
            state.handoff.ticks += 1;
            state.handoff.ticks
        })
    }

    /// Waits until the work of the tick is complete. Returns whether it is complete.
    pub(super) fn ticked(&self, tick: u64, limit: Duration) -> bool {
        self.wait(limit, |handoff| handoff.ticks_done >= tick)
    }

    /// Waits until the directory was read, or could not be read.
    pub(super) fn opened(&self) {
        let limit = self.lock().handoff.time_limits.open;
        if !self.wait(limit, |handoff| handoff.phase > Phase::Opening) {
            self.lock().handoff.fail(&SpoolError::Stalled);
        }
    }

    /// Lets the thread end after it has written the pending records. Returns whether it has ended in time.
    pub(super) fn end(&self) -> bool {
        let limit = self.change(MonotonicTime::default(), |state| {
            state.handoff.phase = Phase::Ending;
            state.handoff.time_limits.shutdown
        });
        self.wait(limit, |handoff| handoff.phase == Phase::Ended)
    }

    /// Makes the thread write a snapshot.
    #[cfg(test)]
    pub(super) fn compact(&self) {
        self.lock().handoff.compaction = Compaction::Now;
        let tick = self.tick(MonotonicTime::default());
        assert!(self.ticked(tick, Duration::from_mins(2)));
    }

    fn wait(&self, limit: Duration, done: impl Fn(&Handoff) -> bool) -> bool {
        let waits = |state: &mut State| !done(&state.handoff);
        let waited = self.progress.wait_timeout_while(self.lock(), limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        done(&state.handoff)
    }
}

/// Methods for the spool thread.
impl Shared {
    /// Waits for work; returns `None` at the end. `has_job` specifies that the thread has started a job whose result it has
    /// not read.
    pub(super) fn next_work(&self, has_job: bool) -> Option<Work> {
        let idle = |state: &mut State| {
            let handoff = &state.handoff;
            let is_calm = handoff.ticks == handoff.ticks_begun && handoff.phase == Phase::Running;
            handoff.frames.is_empty()
                && handoff.compaction != Compaction::Needed
                && if has_job { handoff.job_runs } else { is_calm }
        };
        let waited = self.work.wait_while(self.lock(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let handoff = &mut state.handoff;
        let left = !handoff.frames.is_empty() || handoff.compaction == Compaction::Needed;
        if handoff.phase == Phase::Ending && !left && !has_job {
            return None;
        }
        handoff.busy_since = Some(Instant::now());
        let job_ended = has_job && !handoff.job_runs;
        let due = handoff.ticks > handoff.ticks_begun || handoff.phase == Phase::Opening;
        Some(Work {
            frames: std::mem::take(&mut handoff.frames),
            compaction: std::mem::take(&mut handoff.compaction),
            tick: due && (job_ended || !has_job),
            job_ended,
            now: handoff.now,
            number: handoff.handed,
            ticks: handoff.ticks,
        })
    }

    /// Records that the records up to this number are on the disk.
    pub(super) fn acknowledge(&self, number: u64) {
        let handoff = &mut self.lock().handoff;
        handoff.done = handoff.done.max(number);
        self.progress.notify_all();
        self.acknowledged.notify_waiters();
    }

    /// Records that a job starts or has ended.
    pub(super) fn set_job_runs(&self, runs: bool) {
        self.lock().handoff.job_runs = runs;
        self.work.notify_one();
    }

    /// Records that the thread has done its work, except its job, and the number of bytes of the segments.
    pub(super) fn finish(&self, work: &Work, bytes: u64, has_job: bool) {
        let handoff = &mut self.lock().handoff;
        handoff.busy_since = None;
        if work.tick {
            handoff.ticks_begun = work.ticks;
        }
        if !has_job {
            handoff.ticks_done = handoff.ticks_begun;
        }
        handoff.bytes = bytes;
        handoff.phase = handoff.phase.max(Phase::Running);
        // After a failure, the disk gets a snapshot before it gets further records.
        if handoff.accepting {
            handoff.works_again();
        }
        self.progress.notify_all();
    }

    /// Records that the thread has ended, or could not be started.
    pub(super) fn ended(&self) {
        self.lock().handoff.phase = Phase::Ended;
        self.progress.notify_all();
    }

    /// Records that the disk is unavailable until a retry.
    pub(super) fn give_up(&self, error: &SpoolError) {
        let handoff = &mut self.lock().handoff;
        handoff.refuse();
        handoff.fail(error);
        self.progress.notify_all();
        self.acknowledged.notify_waiters();
    }

    /// Adds the events and losses of earlier processes.
    pub(super) fn recover(&self, left: RecoveredState, damage: (u64, usize)) {
        let mut state = self.lock();
        let now = state.handoff.now;
        state.handoff.damage = damage;
        state.recover(left, now);
        drop(state);
        self.changed.notify_one();
    }

    /// Returns all events that must be sent now. From now on records are accepted again. Releases the lock between slices,
    /// so that reviews wait only briefly.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut state = self.lock();
        let handoff = &mut state.handoff;
        let is_only_copy = !std::mem::replace(&mut handoff.accepting, true);
        handoff.compaction = Compaction::IfWorthwhile;
        let (frames, number) = (std::mem::take(&mut handoff.frames), handoff.handed);
        drop(state);
        let mut keys = Vec::new();
        for from in (0..).step_by(SLICE) {
            let Some(slice) = self.lock().queue.keys(from, SLICE) else {
                break;
            };
            keys.extend(slice);
        }
        // After the keys, so that the losses include events that were dropped during the copy.
        let losses = self.lock().losses();
        keys.sort_unstable_by_key(|(order, _)| *order);
        Snapshot {
            keys: keys.into_iter().map(|(_, key)| key).collect(),
            losses,
            frames,
            number,
            is_only_copy,
        }
    }

    /// Returns the size of a segment that contains the events that must be sent now.
    pub(super) fn live_bytes(&self) -> u64 {
        super::spool::segment_bytes(self.lock().queue.usage())
    }
}
