//! The segments on the disk: the one that is written, those before it, and how they are replaced by a smaller one.
//!
//! Compaction never leaves a moment in which a kill loses something. Of the segments `1 … n`, of which `n` is written:
//!
//! 1. `n+2` is created, empty but for its header, and forced to the disk; records still go to `n`;
//! 2. from one record to the next they go to `n+2`; what is to be told at this moment is the *snapshot*;
//! 3. the snapshot is written as `n+1` under another name, forced to the disk, and renamed;
//! 4. `1 … n` are removed, the oldest first.
//!
//! Whichever of the files exist, reading them in order gives the same: before the renaming because nothing is gone (and
//! `n+2` says nothing while `n` is written), after it because `n+1` repeats what `1 … n`, or their rest, say. The first
//! step, the third and the fourth wait for the disk and need nothing of the journal, so that nobody need wait for them;
//! the second takes no longer than a record. Deliberately absent: what is to be told (the queue), and
//! when to compact or to give up (the spool).

use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::error::SpoolError;
use super::folder::{Appended, Folder};
use super::names;
use super::record::{self, FRAME_BYTES, Kind};
use super::recovery::Segment;
use super::segment::{self, HEADER_BYTES};
use super::writer::{Job, SegmentFile, append_all};

/// Bytes of a snapshot that are written at once.
const CHUNK: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Journal {
    folder: Arc<dyn Folder>,
    older: Vec<Segment>,
    next: u64,
    active: Option<Active>,
}

/// The segment that is written.
#[derive(Debug)]
struct Active {
    number: u64,
    file: Arc<SegmentFile>,
    /// With what was handed over to be written.
    bytes: u64,
}

/// The numbers of a compaction: of its snapshot, and behind it of the segment that is written next.
#[derive(Debug)]
pub(super) struct Reserved {
    folder: Arc<dyn Folder>,
    number: u64,
}

/// A segment that holds nothing yet.
#[derive(Debug)]
pub(super) struct Fresh {
    reserved: Reserved,
    file: Arc<dyn Appended>,
}

/// All that is to be told at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) keys: Vec<Arc<[u8]>>,
    /// Records of the losses.
    pub(super) losses: Vec<u8>,
}

/// A compaction under way.
#[derive(Debug)]
pub(super) struct Compaction {
    folder: Arc<dyn Folder>,
    number: u64,
    replaced: Vec<Segment>,
    snapshot: Snapshot,
}

/// What a compaction has done.
#[derive(Debug)]
pub(super) struct Compacted {
    written: Option<Segment>,
    removed: Vec<Segment>,
}

impl Journal {
    pub(super) fn new(folder: Arc<dyn Folder>, older: Vec<Segment>, next: u64) -> Self {
        Self {
            folder,
            older,
            next,
            active: None,
        }
    }

    /// Whether records are taken.
    pub(super) fn is_open(&self) -> bool {
        self.active.is_some()
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        let older: u64 = self.older.iter().map(|segment| segment.bytes).sum();
        older + self.active.as_ref().map_or(0, |active| active.bytes)
    }

    /// A record at the end of the segment that is written, to be handed over to the writer. `None`: none is.
    pub(super) fn append(&mut self, kind: Kind, payload: &[u8], lasting: bool) -> Option<Job> {
        let active = self.active.as_mut()?;
        let mut frame = Vec::with_capacity(FRAME_BYTES + payload.len());
        record::write(&mut frame, kind, payload);
        active.bytes += frame.len() as u64;
        Some(Job::Append {
            file: Arc::clone(&active.file),
            frame,
            lasting,
        })
    }

    /// The segment that is written.
    pub(super) fn file(&self) -> Option<&Arc<SegmentFile>> {
        self.active.as_ref().map(|active| &active.file)
    }

    /// What is to be forced to the disk, if anything was written. It is taken to be so from now on.
    pub(super) fn take_dirty(&self) -> Option<Arc<SegmentFile>> {
        let file = self.file().filter(|file| file.take_dirty())?;
        Some(Arc::clone(file))
    }

    /// What a compaction needs for its first step. The numbers are used up, even if nothing comes of it.
    pub(super) fn reserve(&mut self) -> Reserved {
        let number = self.next;
        self.next = number + 2;
        Reserved {
            folder: Arc::clone(&self.folder),
            number,
        }
    }

    /// The second step of a compaction.
    pub(super) fn switch(&mut self, fresh: Fresh, snapshot: Snapshot) -> Compaction {
        let Fresh {
            reserved: Reserved { folder, number },
            file,
        } = fresh;
        self.close();
        self.active = Some(Active {
            number: number + 1,
            file: Arc::new(SegmentFile::new(file, HEADER_BYTES as u64)),
            bytes: HEADER_BYTES as u64,
        });
        Compaction {
            folder,
            number,
            replaced: self.older.clone(),
            snapshot,
        }
    }

    /// A compaction has ended.
    pub(super) fn finish(&mut self, compacted: &Compacted) {
        let Compacted { written, removed } = compacted;
        self.older.retain(|segment| !removed.contains(segment));
        self.older.extend(*written);
        self.older.sort_unstable_by_key(|segment| segment.number);
    }

    /// Takes no more records.
    pub(super) fn close(&mut self) {
        let closed = self.active.take();
        self.older.extend(closed.map(|active| Segment {
            number: active.number,
            bytes: active.bytes,
        }));
    }

    /// Says in the last segment that something of its time is missing.
    pub(super) fn mark_incomplete(&self) -> Option<Job> {
        let last = self.older.last()?;
        Some(Job::MarkIncomplete {
            folder: Arc::clone(&self.folder),
            segment: names::segment(last.number),
        })
    }
}

impl Reserved {
    /// The first step of a compaction: slow. With `lasting` the new segment's name survives the machine.
    pub(super) fn create(self, lasting: bool) -> Result<Fresh, SpoolError> {
        let name = names::segment(self.number + 1);
        let file = self.folder.create(&name).map_err(SpoolError::Create)?;
        let ready = append_all(&*file, &segment::header()).and_then(|()| {
            if lasting {
                file.sync()?;
                self.folder.sync()?;
            }
            Ok(())
        });
        if let Err(error) = ready {
            remove(&*self.folder, &name);
            return Err(SpoolError::Create(error));
        }
        Ok(Fresh {
            reserved: self,
            file,
        })
    }
}

impl Compaction {
    /// The third step and the fourth: slow.
    pub(super) fn run(&self) -> Result<Compacted, SpoolError> {
        let written = if self.snapshot.keys.is_empty() && self.snapshot.losses.is_empty() {
            None
        } else {
            let unfinished = names::unfinished(self.number);
            let written = self.write(&unfinished);
            if written.is_err() {
                remove(&*self.folder, &unfinished);
            }
            Some(written.map_err(SpoolError::Compact)?)
        };
        let mut removed = Vec::new();
        for segment in &self.replaced {
            match self.folder.remove(&names::segment(segment.number)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    // Those behind it must stay, too: they may say that something in it was delivered.
                    tracing::warn!(%error, number = segment.number, "failed to delete compacted segment");
                    break;
                }
                _ => removed.push(*segment),
            }
        }
        Ok(Compacted { written, removed })
    }

    fn write(&self, unfinished: &str) -> io::Result<Segment> {
        let file = self.folder.create(unfinished)?;
        let mut chunk = Vec::with_capacity(CHUNK + FRAME_BYTES + record::PAYLOAD_BYTES);
        let mut bytes = 0;
        chunk.extend_from_slice(&segment::header());
        chunk.extend_from_slice(&self.snapshot.losses);
        for key in &self.snapshot.keys {
            record::write(&mut chunk, Kind::Put, key);
            if chunk.len() >= CHUNK {
                bytes += chunk.len() as u64;
                append_all(&*file, &chunk)?;
                chunk.clear();
            }
        }
        bytes += chunk.len() as u64;
        append_all(&*file, &chunk)?;
        file.sync()?;
        self.folder
            .rename(unfinished, &names::segment(self.number))?;
        self.folder.sync()?;
        Ok(Segment {
            number: self.number,
            bytes,
        })
    }
}

/// Bytes of a segment with so many records and bytes of payload.
pub(super) fn segment_bytes(records: usize, payload_bytes: usize) -> u64 {
    (HEADER_BYTES + records * FRAME_BYTES + payload_bytes) as u64
}

fn remove(folder: &dyn Folder, name: &str) {
    if let Err(error) = folder.remove(name) {
        tracing::warn!(%error, name, "failed to delete unfinished file");
    }
}
