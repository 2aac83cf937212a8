//! What former lives have left on the disk.
//!
//! Reads the segments in the order of their numbers. Invariant: nothing is removed that may hold an event but the
//! remains of unfinished segments, which hold nothing that is not in finished ones, too.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use api::event::PathSegment;

use super::error::SpoolError;
use super::folder::Folder;
use super::key;
use super::names::{self, Named};
use super::queue::Limits;
use super::record::Kind;
use super::segment::{self, Findings};

/// Most managers whose losses are read one by one: more than any release has registered.
const LOSSES: usize = 1_024;

/// A finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The segments, by number.
    pub(super) segments: Vec<Segment>,
    /// A number that is higher than any in use.
    pub(super) next: u64,
    pub(super) left: Left,
    pub(super) bad_bytes: u64,
    /// Segments of another version.
    pub(super) foreign: usize,
}

/// What is still to be told.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The keys, each with its place in the order of their records.
    keys: HashMap<Box<[u8]>, u64>,
    key_bytes: usize,
    records: u64,
    /// Of managers that were named in this respect, whether they need a resync.
    pub(super) losses: HashMap<PathSegment, bool>,
    /// A former life had lost something of anybody; who was told since is in `losses`.
    pub(super) everyone: bool,
    /// Something may be missing, and nobody knows of which manager.
    pub(super) may_be_missing: bool,
    /// Events of other managers are left out; empty: none are.
    configured: HashSet<PathSegment>,
    /// Hashes of the keys that are left out: enough to count them.
    not_configured: HashSet<u64>,
    hasher: RandomState,
}

impl Left {
    /// The keys in the order in which they were put.
    pub(super) fn into_keys(self) -> Vec<Box<[u8]>> {
        let mut keys: Vec<_> = self.keys.into_iter().collect();
        keys.sort_unstable_by_key(|(_, order)| *order);
        keys.into_iter().map(|(key, _)| key).collect()
    }

    fn new(configured: &[PathSegment]) -> Self {
        Self {
            configured: configured.iter().cloned().collect(),
            ..Self::default()
        }
    }

    /// Events that were left out, because their managers are not configured.
    pub(super) fn not_configured(&self) -> u64 {
        self.not_configured.len() as u64
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
                self.everyone = true;
                self.losses.clear();
            }
            Kind::Resync => self.note(payload, true),
            Kind::ResyncTold => self.note(payload, false),
        }
    }

    fn leaves_out(&self, manager: &PathSegment) -> bool {
        !self.configured.is_empty() && !self.configured.contains(manager)
    }

    fn put(&mut self, payload: &[u8]) {
        if self.keys.contains_key(payload) {
            return;
        }
        // The memory of a start is bounded as that of a life.
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
            Some(_) => self.everyone |= lost,
            None => self.may_be_missing = true,
        }
    }
}

/// Reads `folder`, and puts aside what is not ours to read. Events of managers that are not `configured` are left out, so
/// that they take no room; where none are configured, none are left out.
pub(super) fn read(
    folder: &Arc<dyn Folder>,
    configured: &[PathSegment],
) -> Result<Found, SpoolError> {
    let names = folder.names().map_err(SpoolError::List)?;
    let mut files: Vec<_> = names.iter().filter_map(|name| Named::of(name)).collect();
    files.sort_unstable_by_key(|file| file.number());
    let mut found = Found {
        next: files.last().map_or(1, |last| last.number() + 1),
        left: Left::new(configured),
        ..Found::default()
    };
    for file in files {
        match file {
            Named::Segment(number) => one(folder, number, &mut found),
            Named::Unfinished(number) => {
                if let Err(error) = folder.remove(&names::unfinished(number)) {
                    tracing::warn!(%error, number, "failed to delete unfinished segment");
                }
            }
            Named::Aside(_) => {}
        }
    }
    Ok(found)
}

fn one(folder: &Arc<dyn Folder>, number: u64, found: &mut Found) {
    let name = names::segment(number);
    let left = &mut found.left;
    let findings = match folder.read(&name) {
        Ok(mut file) => segment::read(&mut *file, &mut |kind, payload| left.apply(kind, payload)),
        Err(error) => {
            tracing::error!(%error, name, "failed to open segment, segment quarantined");
            left.may_be_missing = true;
            keep_aside(folder, number, None);
            return;
        }
    };
    left.may_be_missing |= findings.may_be_missing();
    found.bad_bytes += findings.bad_bytes;
    tell(&name, &findings);
    if let Some(version) = findings.foreign_version {
        found.foreign += 1;
        keep_aside(folder, number, Some(version));
        return;
    }
    found.segments.push(Segment {
        number,
        bytes: findings.bytes,
    });
}

fn tell(name: &str, findings: &Findings) {
    let Findings {
        bytes,
        bad_bytes,
        foreign_version,
        incomplete,
        error,
    } = findings;
    if let Some(version) = foreign_version {
        tracing::error!(name, version, "segment of another version quarantined");
    } else if let Some(error) = error {
        tracing::error!(name, bytes, %error, "segment read in part");
    } else if *bad_bytes > 0 {
        tracing::error!(
            name,
            bytes,
            bad_bytes,
            "segment damaged, intact records used"
        );
    } else if *incomplete {
        tracing::warn!(name, "segment incomplete since it was written");
    }
}

/// Renames a segment, so that nobody takes it for ours. Where that fails it stays, and is not touched either.
fn keep_aside(folder: &Arc<dyn Folder>, number: u64, version: Option<u16>) {
    let (from, to) = (names::segment(number), names::aside(number, version));
    if let Err(error) = folder.rename(&from, &to) {
        tracing::error!(%error, from, to, "failed to quarantine segment");
    }
}
