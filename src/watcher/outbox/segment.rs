//! One file of the spool: a header, then records.
//!
//! ```text
//! 0       8         10       14      15
//! │ magic │ version │ CRC32C │ whole │ 0 │ record │ record │ …
//! ```
//!
//! [`read`] never fails and never panics, whatever the file holds; it gives every record that is intact, in
//! their order, and says when something may be missing. The byte `whole` lies outside the checksum, so that it can be
//! overwritten where a full disk takes no more bytes: it says whether everything of its time is in the spool.

use std::io::{self, Read};

use super::record::{FRAME_BYTES, Frame, Kind, PAYLOAD_BYTES, crc32c, next_marker};

/// What precedes the records, in bytes.
pub(super) const HEADER_BYTES: usize = 16;

/// Where the byte `whole` lies.
pub(super) const WHOLE_AT: u64 = 14;

/// What stands there when something is missing. Any value but [`WHOLE`] says so.
pub(super) const NOT_WHOLE: u8 = 0;

const WHOLE: u8 = 0x57;
const MAGIC: [u8; 8] = *b"kymaspol";

/// The version that we write, and the only one that we read.
const VERSION: u16 = 1;

/// Read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// Bytes looked at in vain in one file before the rest of it is given up: damage costs little, malice is bounded.
const WASTE_LIMIT: usize = 256 << 20;

/// What was found in a file beside its records.
#[derive(Debug, Default)]
pub(super) struct SegmentContents {
    /// The file's length, as far as it was read.
    pub(super) bytes: u64,
    /// Bytes that belong to no intact record.
    pub(super) bad_bytes: u64,
    /// Another version than ours, which can be relied on; no record was read.
    pub(super) foreign_version: Option<u16>,
    /// Whether its writer could not write all that it should have.
    pub(super) incomplete: bool,
    /// Why it was not read to its end.
    pub(super) error: Option<io::Error>,
}

impl SegmentContents {
    /// Whether there may have been more in it than was found.
    pub(super) fn may_be_missing(&self) -> bool {
        self.bad_bytes > 0
            || self.incomplete
            || self.foreign_version.is_some()
            || self.error.is_some()
            || self.bytes < HEADER_BYTES as u64
    }
}

pub(super) fn header() -> [u8; HEADER_BYTES] {
    header_of(VERSION)
}

fn header_of(version: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let version = version.to_le_bytes();
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&version);
    header[10..14].copy_from_slice(&crc32c(&[&MAGIC, &version]).to_le_bytes());
    header[14] = WHOLE;
    header
}

/// Reads a segment, and hands each intact record to `each`, those behind damage included.
pub(super) fn read(file: &mut dyn Read, each: &mut dyn FnMut(Kind, &[u8])) -> SegmentContents {
    let mut reader = Reader {
        contents: SegmentContents::default(),
        pending: Vec::with_capacity(CHUNK + FRAME_BYTES + PAYLOAD_BYTES),
        wasted: 0,
        headed: false,
    };
    while reader.fill(file) {
        if reader.head(false) {
            reader.records(false, each);
        }
        if reader.contents.foreign_version.is_some() || reader.wasted > WASTE_LIMIT {
            return reader.contents;
        }
    }
    if reader.head(true) {
        reader.records(true, each);
    }
    reader.contents
}

struct Reader {
    contents: SegmentContents,
    /// What was read and is no record yet.
    pending: Vec<u8>,
    /// Bytes looked at in vain.
    wasted: usize,
    headed: bool,
}

impl Reader {
    /// Reads some more; `false`: there is no more.
    fn fill(&mut self, file: &mut dyn Read) -> bool {
        let kept = self.pending.len();
        let read = file.take(CHUNK as u64).read_to_end(&mut self.pending);
        self.contents.error = read.err();
        let bytes = self.pending.len() - kept;
        self.contents.bytes += bytes as u64;
        bytes > 0 && self.contents.error.is_none()
    }

    /// Judges the header, when it is there; whether records may be read.
    fn head(&mut self, at_end: bool) -> bool {
        if self.headed {
            return true;
        }
        let Some(header) = self.pending.first_chunk::<HEADER_BYTES>() else {
            self.headed = at_end;
            return at_end;
        };
        self.headed = true;
        let version = u16::from_le_bytes([header[8], header[9]]);
        let whole = header[14] == WHOLE;
        if header[..14] != header_of(version)[..14] {
            // Records are looked for all the same, from the first byte on.
            return true;
        }
        if version == VERSION {
            self.contents.incomplete = !whole;
            self.pending.drain(..HEADER_BYTES);
            return true;
        }
        self.contents.foreign_version = Some(version);
        false
    }

    /// Hands on the records that are complete.
    fn records(&mut self, at_end: bool, each: &mut dyn FnMut(Kind, &[u8])) {
        let mut place = 0;
        while let Some(rest) = self.pending.get(place..).filter(|rest| !rest.is_empty()) {
            match Frame::read(rest) {
                Frame::Record { kind, payload } => {
                    each(kind, payload);
                    place += FRAME_BYTES + payload.len();
                }
                Frame::Short if !at_end => break,
                bad => {
                    self.wasted += match bad {
                        Frame::Bad { looked_at } => looked_at,
                        _ => FRAME_BYTES,
                    };
                    let skipped = next_marker(rest);
                    self.contents.bad_bytes += skipped as u64;
                    place += skipped;
                }
            }
            if self.wasted > WASTE_LIMIT {
                break;
            }
        }
        self.pending.drain(..place);
    }
}

#[cfg(test)]
mod tests;
