//! Format of one record of a segment: marker, kind, length, CRC32C of all bytes after the marker, payload.
//!
//! ```text
//! 0         4      5        7        11
//! │ marker  │ kind │ length │ CRC32C │ payload … │      numbers are little-endian
//! ```
//!
//! For any input, [`Frame::read`] returns a record, the lack of more bytes, or an invalid record. The marker allows a
//! reader to find the next record after damage.

use watcher_types::BODY_BYTES;

/// Maximum size of a payload, in bytes. No body of an event may be larger, and a payload is shorter than the body.
pub(super) const PAYLOAD_BYTES: usize = BODY_BYTES;

/// Size of a record without its payload, in bytes.
pub(super) const FRAME_BYTES: usize = 11;

/// Start of each record. None of these bytes occurs in UTF-8, nor at the end of a length up to [`PAYLOAD_BYTES`]. Therefore
/// no key and no name of a manager contains the marker, and a marker after damage is the start of a record.
const MARKER: [u8; 4] = [0xFF, 0xC0, 0xFE, 0xC1];

/// Kind of a record, with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The key in the payload must be delivered.
    Put = 1,
    /// The key in the payload is settled.
    Delivered,
    /// Events for the manager in the payload were lost. An empty payload means any manager.
    Resync,
    /// A resync was reported to the manager in the payload.
    ResyncReported,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        let kinds = [
            Self::Put,
            Self::Delivered,
            Self::Resync,
            Self::ResyncReported,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Appends a record to `bytes`. A payload over [`PAYLOAD_BYTES`] is not written; keys and names of managers are shorter.
pub(super) fn write(bytes: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    let Some(length) = u16::try_from(payload.len())
        .ok()
        .filter(|_| payload.len() <= PAYLOAD_BYTES)
    else {
        return;
    };
    let [low, high] = length.to_le_bytes();
    let head = [kind as u8, low, high];
    bytes.extend_from_slice(&MARKER);
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&crc32c(&[&head, payload]).to_le_bytes());
    bytes.extend_from_slice(payload);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Record {
        kind: Kind,
        payload: &'a [u8],
    },
    /// The bytes may be the start of a record.
    Short,
    /// The bytes are not a record. `looked_at` is the number of bytes that were checked.
    Bad {
        looked_at: usize,
    },
}

impl<'a> Frame<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Self {
        let Some((head, behind)) = bytes.split_first_chunk::<FRAME_BYTES>() else {
            let seen = bytes.len().min(MARKER.len());
            return if bytes[..seen] == MARKER[..seen] {
                Self::Short
            } else {
                Self::Bad { looked_at: seen }
            };
        };
        let [m0, m1, m2, m3, code, low, high, crc @ ..] = *head;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let bad = Self::Bad {
            looked_at: FRAME_BYTES,
        };
        let Some(kind) = Kind::from_code(code) else {
            return bad;
        };
        if [m0, m1, m2, m3] != MARKER || length > PAYLOAD_BYTES {
            return bad;
        }
        let Some(payload) = behind.get(..length) else {
            return Self::Short;
        };
        if crc32c(&[&[code, low, high], payload]) == u32::from_le_bytes(crc) {
            Self::Record { kind, payload }
        } else {
            Self::Bad {
                looked_at: FRAME_BYTES + length,
            }
        }
    }
}

/// Returns where the next record may start in `bytes`, after the first byte.
pub(super) fn next_marker(bytes: &[u8]) -> usize {
    let behind = bytes.get(1..).unwrap_or_default();
    let found = behind.iter().position(|byte| *byte == MARKER[0]);
    found.map_or(bytes.len(), |place| place + 1)
}

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

static TABLE: [u32; 256] = table();

/// Returns the CRC32C (Castagnoli) of the concatenated `parts`. It detects each change of up to 32 adjacent bits.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for part in parts {
        for byte in *part {
            let [low, ..] = crc.to_le_bytes();
            crc = (crc >> 8) ^ TABLE[usize::from(low ^ byte)];
        }
    }
    !crc
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut value = 0_u32;
    while index < table.len() {
        let mut crc = value;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        value += 1;
    }
    table
}

#[cfg(test)]
mod tests;
