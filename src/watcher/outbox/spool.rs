//! Whether the disk is used: how much of it, when it is given up, and when it is tried again.
//!
//! Invariant: the files never exceed `max_bytes` together, the time of a compaction included. Their shares: what is to be
//! told takes a quarter at most (the queue says no before); records are appended up to three quarters; the rest is for the
//! snapshot of a compaction. Compaction is wanted long before, as soon as most is dead; where it does not come in time the
//! disk is given up until it has: nobody who puts an event waits for it.

use std::sync::Arc;
use std::time::Duration;

use chassis::backoff::Backoff;
use chassis::telemetry::error_chain;

use super::FsyncPolicy;
use super::error::SpoolError;
use super::journal::{Compacted, Compaction, Fresh, Journal, Reserved, Snapshot, segment_bytes};
use super::moment::Moment;
use super::record::Kind;
use super::writer::{Pending, SegmentFile, Writer};

/// How long a disk is left alone that has refused.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Below so many dead bytes nothing is compacted: it is not worth an fsync.
const NEGLIGIBLE: u64 = 256 << 10;

/// Fewest `max_bytes`: room for a few of the largest events.
const FEWEST_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Spool {
    max_bytes: u64,
    fsync: FsyncPolicy,
    writer: Writer,
    /// `None`: the folder is not open.
    journal: Option<Journal>,
    /// Why it is not in use, as it was told.
    trouble: Option<String>,
    /// Failures in a row.
    in_a_row: u32,
    /// Failures ever.
    pub(super) failures: u64,
    retry_at: Moment,
}

impl Spool {
    pub(super) fn new(max_bytes: u64, fsync: FsyncPolicy) -> Self {
        Self {
            max_bytes: max_bytes.max(FEWEST_BYTES),
            fsync,
            writer: Writer::default(),
            journal: None,
            trouble: None,
            in_a_row: 0,
            failures: 0,
            retry_at: Moment::default(),
        }
    }

    /// Whether records are written.
    pub(super) fn in_use(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_open)
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::bytes)
    }

    /// Whether so much may be to be told.
    pub(super) fn has_room(&self, records: usize, payload_bytes: usize) -> bool {
        segment_bytes(records, payload_bytes) <= self.max_bytes / 4
    }

    /// Whether there is no room for the record before a compaction.
    fn is_full(&self, payload: &[u8]) -> bool {
        let more = segment_bytes(1, payload.len());
        self.in_use() && self.bytes() + more > self.max_bytes / 4 * 3
    }

    /// Hands a record over to the writer, if the disk is in use; gives it up if it does not keep up.
    pub(super) fn append(&mut self, kind: Kind, payload: &[u8], now: Moment) {
        self.check(now);
        // A lost `Delivered` costs a second delivery, no event.
        let lasting = self.fsync == FsyncPolicy::Always && kind != Kind::Delivered;
        if self.is_full(payload) {
            self.give_up(&SpoolError::Full, now);
        }
        let journal = self.journal.as_mut();
        let Some(job) = journal.and_then(|journal| journal.append(kind, payload, lasting)) else {
            return;
        };
        if let Err(error) = self.writer.hand_over(job) {
            self.give_up(&error, now);
        }
    }

    /// What is to be waited for before a record counts as written; `None`: the disk is not in use.
    pub(super) fn pending(&self) -> Option<Pending> {
        let file = self.journal.as_ref()?.file()?;
        Some(self.writer.pending(Some(file)))
    }

    /// All that the writer has to do.
    pub(super) fn handed_over(&self) -> Pending {
        self.writer.pending(None)
    }

    /// Gives the disk up if it has refused a record, or has not answered for long.
    pub(super) fn check(&mut self, now: Moment) {
        if let Some(error) = self.writer.trouble()
            && self.in_use()
        {
            self.give_up(&error, now);
        }
    }

    /// Stops using the disk for a while.
    pub(super) fn give_up(&mut self, error: &SpoolError, now: Moment) {
        if let Some(journal) = &mut self.journal {
            journal.close();
            if let Some(mark) = journal.mark_incomplete() {
                // Without the thread nothing writes it.
                let _given_up_already = self.writer.hand_over(mark);
            }
        }
        if error.folder_is_gone() {
            self.journal = None;
        }
        self.failures += 1;
        self.back_off(now);
        let text = error_chain(error);
        if self.trouble.as_deref() != Some(&*text) {
            tracing::error!(
                error = text,
                "failed to write spool segment, events are in memory only"
            );
        }
        self.trouble = Some(text);
    }

    /// Whether the disk is to be tried again; and whether its folder must be opened for that.
    pub(super) fn wants_retry(&self, now: Moment) -> Option<bool> {
        (!self.in_use() && self.retry_at <= now).then_some(self.journal.is_none())
    }

    /// Takes a folder that was opened and read.
    pub(super) fn adopt(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Whether most of the segments is dead, if so much is to be told.
    pub(super) fn wants_compaction(
        &self,
        records: usize,
        payload_bytes: usize,
        now: Moment,
    ) -> bool {
        let live = segment_bytes(records, payload_bytes);
        let dead = self.bytes().saturating_sub(live);
        let threshold = live.max(NEGLIGIBLE).min(self.max_bytes / 4);
        self.in_use() && dead > threshold && self.retry_at <= now
    }

    /// What a compaction needs to begin, and whether its files are to survive the machine; `None`: the folder is not open.
    pub(super) fn reserve(&mut self) -> Option<(Reserved, bool)> {
        let lasting = self.fsync != FsyncPolicy::Never;
        Some((self.journal.as_mut()?.reserve(), lasting))
    }

    /// From now on records go to `fresh`, behind `snapshot`, which is to be written. `None`: meanwhile the folder has gone.
    pub(super) fn switch(&mut self, fresh: Fresh, snapshot: Snapshot) -> Option<Compaction> {
        Some(self.journal.as_mut()?.switch(fresh, snapshot))
    }

    /// A compaction has ended. One that fails while the disk is in use costs nothing but room, and is tried later; after
    /// a time without the disk the snapshot is what makes it whole again.
    pub(super) fn end(&mut self, ended: Result<Compacted, SpoolError>, now: Moment) {
        match ended {
            Ok(compacted) => {
                if let Some(journal) = &mut self.journal {
                    journal.finish(&compacted);
                }
                if self.in_use() {
                    self.in_a_row = 0;
                    if self.trouble.take().is_some() {
                        tracing::info!("spool writable again");
                    }
                }
            }
            Err(error) if self.in_use() && self.trouble.is_none() => {
                tracing::warn!(error = error_chain(&error), "failed to compact spool");
                self.back_off(now);
            }
            Err(error) => self.give_up(&error, now),
        }
    }

    /// What is to be forced to the disk by a policy that does so in batches.
    pub(super) fn unforced(&self) -> Option<Arc<SegmentFile>> {
        matches!(self.fsync, FsyncPolicy::EachBatch(_))
            .then_some(self.journal.as_ref()?)?
            .take_dirty()
    }

    fn back_off(&mut self, now: Moment) {
        self.retry_at = now.after(RETRY.delay(self.in_a_row, u64::MAX));
        self.in_a_row = self.in_a_row.saturating_add(1);
    }
}
