//! What requests and the spool thread share: the queue under one lock, and the records that wait for the disk. The lock is
//! never held while the disk works. Beyond [`BACKLOG`] the records are dropped, and a snapshot of the queue is written instead.

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
use super::{FsyncPolicy, Options, Stored};

/// Most bytes of records that wait to be written.
const BACKLOG: usize = 1 << 20;

/// Slots of the queue that a snapshot copies under one lock: a tenth of a millisecond.
const SLICE: usize = 2_048;

/// How long the disk may work before events count as in memory only, and how long [`Shared::forced`] waits for it.
const STALLED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Opening,
    Running,
    /// The thread ends when it has written what was handed over.
    Ending,
    Ended,
}

/// When a snapshot is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compaction {
    /// When most of the segments is dead.
    #[default]
    IfWorthwhile,
    /// At once, which tests want.
    Now,
    /// Records were dropped because the disk was too slow.
    Needed,
}

/// The records that wait for the disk, and what is known of the disk.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    /// Whether records are taken; otherwise the next snapshot holds what they would have said.
    accepting: bool,
    frames: Vec<u8>,
    /// Records that were handed over, and those of them that are on the disk.
    handed: u64,
    done: u64,
    compaction: Compaction,
    ticks: u64,
    /// Those of them for which the work has begun, and those for which all is done.
    ticks_begun: u64,
    ticks_done: u64,
    /// The latest time that a caller has named.
    now: MonotonicTime,
    /// Since when the thread works.
    busy_since: Option<Instant>,
    /// Whether the last job that was started runs.
    job_runs: bool,
    phase: Phase,
    /// Whether events survive the end of the process: the disk has not been given up, and has answered within [`STALLED`].
    writable: bool,
    pub(super) bytes: u64,
    /// How often the disk became unwritable.
    pub(super) failures: u64,
    /// Why the spool is not writable, if it is not.
    pub(super) failure: Option<String>,
    /// Bytes of no intact record, and segments of another version, that were found.
    pub(super) damage: (u64, usize),
}

#[derive(Debug)]
pub(super) struct Work {
    pub(super) frames: Vec<u8>,
    pub(super) compaction: Compaction,
    /// Whether a sync or another try of the disk may be due.
    pub(super) tick: bool,
    pub(super) job_ended: bool,
    pub(super) now: MonotonicTime,
    /// The number of the last record.
    pub(super) number: u64,
    ticks: u64,
}

/// All that was to be sent at one moment, and the records of before that are not written yet. What changes while the keys are
/// copied is in it or not; the records of that come behind it, and the last record of a key decides.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) keys: Vec<Arc<[u8]>>,
    /// Records of the losses.
    pub(super) losses: Vec<u8>,
    pub(super) frames: Vec<u8>,
    /// The number of the last of them.
    pub(super) number: u64,
    /// Whether records of before were dropped, so that only this snapshot has what they said.
    pub(super) is_only_copy: bool,
}

impl Handoff {
    /// Hands a record over, if records are taken.
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

    /// Whether events survive the end of the process.
    pub(super) fn is_writable(&mut self) -> bool {
        if self.writable && self.is_busy_for(STALLED) {
            self.fail(&SpoolError::Stalled);
        }
        self.writable
    }

    /// Whether the thread has worked for so long.
    fn is_busy_for(&self, time: Duration) -> bool {
        self.busy_since.is_some_and(|since| since.elapsed() >= time)
    }

    /// Drops what waits, and takes nothing more.
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

/// The state, and how requests and the thread wake each other.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// How long a put blocks its thread for the disk.
    write_deadline: Duration,
    /// There is something to do for the thread.
    work: Condvar,
    /// The thread has done something.
    progress: Condvar,
    /// As `progress`, for tasks that wait until their records are on the disk.
    acknowledged: Notify,
    /// Events were put, or found on the disk.
    pub(super) changed: Notify,
}

impl Shared {
    pub(super) fn new(options: &Options, limits: Limits) -> Self {
        Self {
            state: Mutex::new(State::new(options, limits)),
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

    /// Changes the state, and wakes the thread for the records of that.
    pub(super) fn change<R>(&self, now: MonotonicTime, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock_at(now);
        let result = change(&mut state);
        drop(state);
        self.work.notify_one();
        result
    }

    /// Keeps an event, and waits until it is on the disk, for the write deadline. Returns the number of the record that is not
    /// on the disk by then, for [`Self::forced`].
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

    /// Waits until the records up to `number` are written; not at all where the disk takes long already.
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

    /// Waits until the records up to `number` are on the disk, for a second at most; whether they are. Blocks no thread.
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
        let _elapsed = timeout(STALLED, waiting).await;
        let handoff = &mut self.lock().handoff;
        handoff.is_writable();
        handoff.done >= number
    }

    /// Has the thread do what is due at `now`. What to wait for with [`Self::ticked`].
    pub(super) fn tick(&self, now: MonotonicTime) -> u64 {
        self.change(now, |state| {
            state.queue.shrink();
            state.handoff.is_writable();
            state.handoff.ticks += 1;
            state.handoff.ticks
        })
    }

    /// Waits until the thread has done what was due; whether it has.
    pub(super) fn ticked(&self, tick: u64, limit: Duration) -> bool {
        self.wait(limit, |handoff| handoff.ticks_done >= tick)
    }

    /// Waits until the directory was read, or could not be.
    pub(super) fn opened(&self, limit: Duration) {
        if !self.wait(limit, |handoff| handoff.phase > Phase::Opening) {
            self.lock().handoff.fail(&SpoolError::Stalled);
        }
    }

    /// Lets the thread end when it has written what was handed over; whether it has ended in time.
    pub(super) fn end(&self, limit: Duration) -> bool {
        self.change(MonotonicTime::default(), |state| {
            state.handoff.phase = Phase::Ending;
        });
        self.wait(limit, |handoff| handoff.phase == Phase::Ended)
    }

    /// Has the thread write a snapshot.
    #[cfg(test)]
    pub(super) fn compact(&self) {
        self.lock().handoff.compaction = Compaction::Now;
        let tick = self.tick(MonotonicTime::default());
        assert!(self.ticked(tick, Duration::from_secs(30)));
    }

    fn wait(&self, limit: Duration, done: impl Fn(&Handoff) -> bool) -> bool {
        let waits = |state: &mut State| !done(&state.handoff);
        let waited = self.progress.wait_timeout_while(self.lock(), limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        done(&state.handoff)
    }
}

/// The thread's side.
impl Shared {
    /// Waits for work; `None`: there will be none. `has_job`: the thread has started a job and does not know its result.
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

    /// The records up to this number are on the disk.
    pub(super) fn acknowledge(&self, number: u64) {
        let handoff = &mut self.lock().handoff;
        handoff.done = handoff.done.max(number);
        self.progress.notify_all();
        self.acknowledged.notify_waiters();
    }

    /// A job begins, or has ended.
    pub(super) fn set_job_runs(&self, runs: bool) {
        self.lock().handoff.job_runs = runs;
        self.work.notify_one();
    }

    /// The thread has done its work, but for its job, and the segments have so many bytes.
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
        // A disk that was given up takes a snapshot before it takes records.
        if handoff.accepting {
            handoff.works_again();
        }
        self.progress.notify_all();
    }

    /// The thread has ended, or could not be started.
    pub(super) fn ended(&self) {
        self.lock().handoff.phase = Phase::Ended;
        self.progress.notify_all();
    }

    /// The disk takes nothing for a while.
    pub(super) fn give_up(&self, error: &SpoolError) {
        let handoff = &mut self.lock().handoff;
        handoff.refuse();
        handoff.fail(error);
        self.progress.notify_all();
        self.acknowledged.notify_waiters();
    }

    /// Takes over what earlier processes have left.
    pub(super) fn recover(&self, left: RecoveredState, damage: (u64, usize)) {
        let mut state = self.lock();
        let now = state.handoff.now;
        state.handoff.damage = damage;
        state.recover(left, now);
        drop(state);
        self.changed.notify_one();
    }

    /// All that is to be sent now. From now on records are taken again. The lock is given back between slices, so that
    /// reviews wait for none of them long.
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
        // After the keys: the loss of an event that was dropped meanwhile is among them.
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

    /// Bytes of a segment that holds what is to be sent now.
    pub(super) fn live_bytes(&self) -> u64 {
        let queue = &self.lock().queue;
        super::spool::segment_bytes(queue.len(), queue.key_bytes())
    }
}
