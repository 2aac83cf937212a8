//! Format of one file of the spool: a header, followed by records.
//!
//! ```text
//! 0       8         10       14      15
//! │ magic │ version │ CRC32C │ whole │ 0 │ record │ record │ …
//! ```
//!
//! [`read`] never fails and never panics, for any content of the file. It returns each intact record, in order, and whether
//! records may be missing. The byte `whole` is not part of the checksum, so that it can be overwritten when the disk is
//! full. It specifies whether the spool contains all records of its time.

use std::io::{self, Read};

use super::record::{FRAME_BYTES, Frame, Kind, PAYLOAD_BYTES, crc32c, next_marker};

/// Size of the header before the records, in bytes.
pub(super) const HEADER_BYTES: usize = 16;

/// Offset of the byte `whole`.
pub(super) const WHOLE_AT: u64 = 14;

/// Value of the byte `whole` if records are missing. Any value except [`WHOLE`] has this meaning.
pub(super) const NOT_WHOLE: u8 = 0;

const WHOLE: u8 = 0x57;
const MAGIC: [u8; 8] = *b"kymaspol";

/// The version that is written, and the only version that is read.
const VERSION: u16 = 1;

/// Number of bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Maximum number of bytes of invalid records in one file that are checked before the rest of the file is skipped. It
/// limits the cost of malicious files.
const WASTE_LIMIT: usize = 256 << 20;

/// Information about a file in addition to its records.
#[derive(Debug, Default)]
pub(super) struct SegmentContents {
    /// Number of bytes that were read.
    pub(super) bytes: u64,
    /// Number of bytes that belong to no intact record.
    pub(super) bad_bytes: u64,
    /// Version in a valid header that differs from [`VERSION`]. No record was read.
    pub(super) foreign_version: Option<u16>,
    /// Whether the writer could not write all records.
    pub(super) incomplete: bool,
    /// Error because of which the file was not read to its end.
    pub(super) error: Option<io::Error>,
}

impl SegmentContents {
    /// Returns whether the file may have contained more records.
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

/// Reads a segment, and passes each intact record to `each`, including records after damage.
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
    /// Bytes that were read and are not a complete record yet.
    pending: Vec<u8>,
    /// Number of checked bytes that are not a record.
    wasted: usize,
    headed: bool,
}

impl Reader {
    /// Reads more bytes; returns `false` at the end.
    fn fill(&mut self, file: &mut dyn Read) -> bool {
        let kept = self.pending.len();
        let read = file.take(CHUNK as u64).read_to_end(&mut self.pending);
        self.contents.error = read.err();
        let bytes = self.pending.len() - kept;
        self.contents.bytes += bytes as u64;
        bytes > 0 && self.contents.error.is_none()
    }

    /// Checks the header, if it is complete. Returns whether records may be read.
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
            // Records are nevertheless searched, from the first byte on.
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

    /// Passes on the complete records.
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
