//! The segments of a spool directory: what earlier processes have left, and how a segment is written and removed.
//!
//! They are read in the order of their numbers. Nothing is removed that may hold an event but the remains of unfinished
//! segments, which hold nothing that is not in finished ones, too.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind};
use std::sync::Arc;

use watcher_types::PathSegment;

use super::handoff::Snapshot;
use super::key;
use super::queue::Limits;
use super::record::{self, Kind};
use super::segment::{self, SegmentContents};
use super::spool::SpoolError;
use super::storage::{
    AppendFile, SEGMENT, Storage, UNFINISHED, aside_name, parse_name, segment_name, unfinished_name,
};

/// Most managers whose losses are read one by one: more than any release has registered.
const LOSSES: usize = 1_024;

/// Bytes of a snapshot that are written at once.
const CHUNK: usize = 64 << 10;

/// A finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

/// The segment that is appended to.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) segment: Segment,
    pub(super) file: Arc<dyn AppendFile>,
    /// Written to since a sync of it began.
    pub(super) dirty: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct RecoveredSegments {
    /// The segments, by number.
    pub(super) segments: Vec<Segment>,
    /// A number that is higher than any in use.
    pub(super) next: u64,
    pub(super) left: RecoveredState,
    /// Bytes of no intact record, and segments of another version.
    pub(super) damage: (u64, usize),
}

/// What is still to be sent and reported.
#[derive(Debug, Default)]
pub(super) struct RecoveredState {
    /// The keys, each with its place in the order of their records.
    keys: HashMap<Box<[u8]>, u64>,
    key_bytes: usize,
    records: u64,
    /// Of managers that were named in this respect, whether they need a resync.
    pub(super) losses: HashMap<PathSegment, bool>,
    /// An earlier process had lost events of any manager; those to which a resync was reported since are in `losses`.
    pub(super) all_lost: bool,
    /// Something may be missing, of an unknown manager.
    pub(super) may_be_missing: bool,
    /// Events of other managers are left out; empty: none are.
    configured: HashSet<PathSegment>,
    /// Hashes of the keys that are left out, because their managers are not configured: enough to count them.
    pub(super) not_configured: HashSet<u64>,
    hasher: RandomState,
}

impl RecoveredState {
    /// The keys in the order in which they were put.
    pub(super) fn into_keys(self) -> Vec<Box<[u8]>> {
        let mut keys: Vec<_> = self.keys.into_iter().collect();
        keys.sort_unstable_by_key(|(_, order)| *order);
        keys.into_iter().map(|(key, _)| key).collect()
    }

    fn apply(&mut self, kind: Kind, payload: &[u8]) {
        self.records += 1;
        match kind {
            Kind::Put => match key::decode(payload) {
                None => self.may_be_missing = true,
                Some((manager, _)) if self.leaves_out(&manager) => {
                    if self.not_configured.len() < Limits::WATCHER.keys {
                        self.not_configured.insert(self.hasher.hash_one(payload));
                    }
                }
                Some(_) => self.put(payload),
            },
            Kind::Delivered => {
                if self.keys.remove(payload).is_some() {
                    self.key_bytes -= payload.len();
                } else if !self.not_configured.is_empty() {
                    self.not_configured.remove(&self.hasher.hash_one(payload));
                }
            }
            Kind::Resync if payload.is_empty() => {
                self.all_lost = true;
                self.losses.clear();
            }
            Kind::Resync => self.note(payload, true),
            Kind::ResyncReported => self.note(payload, false),
        }
    }

    fn leaves_out(&self, manager: &PathSegment) -> bool {
        !self.configured.is_empty() && !self.configured.contains(manager)
    }

    fn put(&mut self, payload: &[u8]) {
        if self.keys.contains_key(payload) {
            return;
        }
        // The memory of a start is bounded as that of a running process.
        let Limits { keys, memory } = Limits::WATCHER;
        if self.keys.len() >= keys || self.key_bytes + payload.len() > memory {
            self.may_be_missing = true;
            return;
        }
        self.key_bytes += payload.len();
        self.keys.insert(Box::from(payload), self.records);
    }

    fn note(&mut self, manager: &[u8], lost: bool) {
        let name = std::str::from_utf8(manager).ok();
        match name.and_then(|name| PathSegment::parse(name).ok()) {
            Some(name) if self.leaves_out(&name) => {}
            Some(name) if self.losses.len() < LOSSES || self.losses.contains_key(&name) => {
                self.losses.insert(name, lost);
            }
            // Marking every manager covers this one; a manager that knows of its loss is asked again.
            Some(_) => self.all_lost |= lost,
            None => self.may_be_missing = true,
        }
    }
}

/// Reads `folder`, and quarantines what is of another version. Events of managers that are not `configured` are left out, so
/// that they take no space; where none are configured, none are left out.
pub(super) fn read_all(
    folder: &dyn Storage,
    configured: &[PathSegment],
) -> Result<RecoveredSegments, SpoolError> {
    let names = folder
        .names()
        .map_err(|error| SpoolError::Io("list the spool directory", error))?;
    let mut files: Vec<_> = names.iter().filter_map(|name| parse_name(name)).collect();
    files.sort_unstable();
    let mut found = RecoveredSegments {
        next: files.last().map_or(1, |(last, _)| last + 1),
        left: RecoveredState {
            configured: configured.iter().cloned().collect(),
            ..RecoveredState::default()
        },
        ..RecoveredSegments::default()
    };
    for (number, suffix) in files {
        if suffix == SEGMENT {
            read_segment(folder, number, &mut found);
        } else if suffix == UNFINISHED
            && let Err(error) = folder.remove(&unfinished_name(number))
        {
            tracing::warn!(%error, number, "failed to delete unfinished segment");
        }
    }
    Ok(found)
}

fn read_segment(folder: &dyn Storage, number: u64, found: &mut RecoveredSegments) {
    let name = segment_name(number);
    let left = &mut found.left;
    let contents = match folder.read(&name) {
        Ok(mut file) => segment::read(&mut *file, &mut |kind, payload| left.apply(kind, payload)),
        Err(error) => {
            tracing::error!(%error, name, "failed to open segment, segment quarantined");
            left.may_be_missing = true;
            quarantine(folder, number, None);
            return;
        }
    };
    left.may_be_missing |= contents.may_be_missing();
    found.damage.0 += contents.bad_bytes;
    log(&name, &contents);
    if let Some(version) = contents.foreign_version {
        found.damage.1 += 1;
        quarantine(folder, number, Some(version));
        return;
    }
    found.segments.push(Segment {
        number,
        bytes: contents.bytes,
    });
}

fn log(name: &str, contents: &SegmentContents) {
    let (bytes, bad_bytes) = (contents.bytes, contents.bad_bytes);
    if let Some(version) = contents.foreign_version {
        tracing::error!(name, version, "segment of another version quarantined");
    } else if let Some(error) = &contents.error {
        tracing::error!(name, bytes, %error, "segment read in part");
    } else if bad_bytes > 0 {
        tracing::error!(
            name,
            bytes,
            bad_bytes,
            "segment damaged, intact records used"
        );
    } else if contents.incomplete {
        tracing::warn!(name, "segment incomplete since it was written");
    }
}

/// Renames a segment, so that it is not read again. Where that fails it stays, and is not touched either.
fn quarantine(folder: &dyn Storage, number: u64, version: Option<u16>) {
    let (from, to) = (segment_name(number), aside_name(number, version));
    if let Err(error) = folder.rename(&from, &to) {
        tracing::error!(%error, from, to, "failed to quarantine segment");
    }
}

/// Writes a segment under another name, and renames it. One with a snapshot is forced to the disk.
pub(super) fn write(
    storage: &dyn Storage,
    number: u64,
    snapshot: Option<&Snapshot>,
) -> Result<Active, SpoolError> {
    let (unfinished, finished) = (unfinished_name(number), segment_name(number));
    let written = write_unfinished(storage, &unfinished, snapshot).and_then(|(file, bytes)| {
        storage.rename(&unfinished, &finished)?;
        if snapshot.is_some() {
            storage.sync()?;
        }
        Ok(Active {
            segment: Segment { number, bytes },
            file,
            dirty: snapshot.is_none(),
        })
    });
    if written.is_err() {
        for name in [unfinished, finished] {
            if let Err(error) = storage.remove(&name)
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(%error, name, "failed to delete unfinished segment");
            }
        }
    }
    written.map_err(|error| SpoolError::Io("write a new segment", error))
}

fn write_unfinished(
    storage: &dyn Storage,
    name: &str,
    snapshot: Option<&Snapshot>,
) -> io::Result<(Arc<dyn AppendFile>, u64)> {
    let file: Arc<dyn AppendFile> = Arc::from(storage.create(name)?);
    let mut bytes = 0;
    let mut chunk = segment::header().to_vec();
    if let Some(snapshot) = snapshot {
        chunk.extend_from_slice(&snapshot.losses);
        for key in &snapshot.keys {
            record::write(&mut chunk, Kind::Put, key);
            if chunk.len() >= CHUNK {
                bytes += chunk.len() as u64;
                append(&*file, &chunk)?;
                chunk.clear();
            }
        }
    }
    bytes += chunk.len() as u64;
    append(&*file, &chunk)?;
    if snapshot.is_some() {
        file.sync()?;
    }
    Ok((file, bytes))
}

/// Removes segments in their order; those that are left.
pub(super) fn remove(storage: &dyn Storage, mut segments: Vec<Segment>) -> Vec<Segment> {
    let mut removed = 0;
    for Segment { number, .. } in &segments {
        match storage.remove(&segment_name(*number)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                // Those behind it must stay, too: they may say that something in it was delivered.
                tracing::warn!(%error, number, "failed to delete compacted segment");
                break;
            }
            _ => removed += 1,
        }
    }
    segments.drain(..removed);
    segments
}

/// One write, or an error: what a disk takes only in part it has no space for.
pub(super) fn append(file: &dyn AppendFile, bytes: &[u8]) -> io::Result<()> {
    match file.append(bytes)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(ErrorKind::StorageFull.into()),
    }
}
