//! One record of a segment: marker, kind, length, CRC32C of all that follows the marker, payload.
//!
//! ```text
//! 0         4      5        7        11
//! │ marker  │ kind │ length │ CRC32C │ payload … │      numbers are little-endian
//! ```
//!
//! Whatever bytes it is given, [`Frame::read`] finds a record, the lack of more bytes, or nothing. The marker
//! lets a reader find its way again behind damage.

use watcher_types::BODY_BYTES;

/// Largest payload, in bytes: no body of an event may be larger, and a payload is shorter than the body.
pub(super) const PAYLOAD_BYTES: usize = BODY_BYTES;

/// What a record takes beside its payload, in bytes.
pub(super) const FRAME_BYTES: usize = 11;

/// None of these bytes occurs in UTF-8, nor at the end of a length up to [`PAYLOAD_BYTES`], so that no key and no name of
/// a manager holds it: what follows it behind damage was a record of its own.
const MARKER: [u8; 4] = [0xFF, 0xC0, 0xFE, 0xC1];

/// What a record says, with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The key in the payload is to be delivered.
    Put = 1,
    /// The key in the payload is done with.
    Delivered,
    /// Events for the manager in the payload were lost; empty: for any manager.
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
    /// The beginning of what may be one.
    Short,
    /// No record. So many bytes were looked at to find out.
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

/// Where the next record may begin in `bytes`, after the first of them.
pub(super) fn next_marker(bytes: &[u8]) -> usize {
    let behind = bytes.get(1..).unwrap_or_default();
    let found = behind.iter().position(|byte| *byte == MARKER[0]);
    found.map_or(bytes.len(), |place| place + 1)
}

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

static TABLE: [u32; 256] = table();

/// The CRC32C (Castagnoli) of `parts`, one after the other. It finds every change of up to 32 neighbouring bits.
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
