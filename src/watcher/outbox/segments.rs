//! Segments of a spool directory: reading the segments of earlier processes, and writing and removing segments.
//!
//! Segments are read in the order of their numbers. No file that may contain an event is removed, except unfinished
//! segments, whose records are also in finished segments.

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

/// Maximum number of managers whose losses are read separately. No release has registered more managers.
const LOSSES: usize = 1_024;

/// Number of bytes of a snapshot that are written at once.
const CHUNK: usize = 64 << 10;

/// A finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

/// The segment to which records are appended.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) segment: Segment,
    pub(super) file: Arc<dyn AppendFile>,
    /// Whether records were written since the last sync started.
    pub(super) dirty: bool,
}

/// The content of a spool directory.
#[derive(Debug, Default)]
pub(super) struct RecoveredSegments {
    /// The segments, by number.
    pub(super) segments: Vec<Segment>,
    /// A number that is higher than any used number.
    pub(super) next: u64,
    pub(super) left: RecoveredState,
    /// Bytes that belong to no intact record, and number of segments of another version.
    pub(super) damage: (u64, usize),
}

/// The events and losses that earlier processes have not delivered or reported.
#[derive(Debug, Default)]
pub(super) struct RecoveredState {
    /// The keys, each with its position in the order of the records.
    keys: HashMap<Box<[u8]>, u64>,
    key_bytes: usize,
    records: u64,
    /// Whether a manager needs a resync, for the managers that records name.
    pub(super) losses: HashMap<PathSegment, bool>,
    /// Whether an earlier process had lost events of any manager. Managers to which a resync was reported since then are in
    /// `losses`.
    pub(super) all_lost: bool,
    /// Whether events of an unknown manager may be missing.
    pub(super) may_be_missing: bool,
    /// Managers whose events are read; empty means any manager.
    configured: HashSet<PathSegment>,
    /// Hashes of the keys that are skipped because their managers are not configured, for counting.
    pub(super) not_configured: HashSet<u64>,
    hasher: RandomState,
}

impl RecoveredState {
    /// Returns the keys in the order in which they were put.
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
        // The memory limits of a running process also apply to a start.
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
            // The mark for all managers includes this manager. A manager to which its loss was reported gets the request again.
            Some(_) => self.all_lost |= lost,
            None => self.may_be_missing = true,
        }
    }
}

/// Reads `folder`, and quarantines segments of another version. Skips events of managers that are not `configured`, so that
/// they require no space. If no managers are configured, no events are skipped.
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

/// Renames a segment, so that it is not read again. If this fails, the segment stays unchanged.
fn quarantine(folder: &dyn Storage, number: u64, version: Option<u16>) {
    let (from, to) = (segment_name(number), aside_name(number, version));
    if let Err(error) = folder.rename(&from, &to) {
        tracing::error!(%error, from, to, "failed to quarantine segment");
    }
}

/// Writes a segment under a temporary name, and renames it. A segment with a snapshot is synced to the disk.
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

/// Removes segments in order. Returns the remaining segments.
pub(super) fn remove(storage: &dyn Storage, mut segments: Vec<Segment>) -> Vec<Segment> {
    let mut removed = 0;
    for Segment { number, .. } in &segments {
        match storage.remove(&segment_name(*number)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                // The following segments must also stay, because they may contain the record that an event in this segment
                // was delivered.
                tracing::warn!(%error, number, "failed to delete compacted segment");
                break;
            }
            _ => removed += 1,
        }
    }
    segments.drain(..removed);
    segments
}

/// Appends `bytes` with one write. A partial write is an error, because the disk has no space.
pub(super) fn append(file: &dyn AppendFile, bytes: &[u8]) -> io::Result<()> {
    match file.append(bytes)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(ErrorKind::StorageFull.into()),
    }
}
