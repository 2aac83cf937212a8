//! A file of the spool is read to its end, independent of the size of the reads. Intact records are found, and damage is
//! reported.

use std::io::{self, Read};

use crate::outbox::key;
use crate::outbox::record::{FRAME_BYTES, Kind, write};
use crate::outbox::segment::{HEADER_BYTES, header, read};

/// Checks the property, which holds for all bytes. The bytes are used as a file, and as a recipe for a file, because a
/// checksum cannot be guessed.
pub(crate) fn check(data: &[u8]) {
    same_in_steps(data);
    let (file, records) = cook(data);
    same_in_steps(&file);
    let found = records_of(&file, usize::MAX).0;
    assert_eq!(found, records);
}

type Records = Vec<(Kind, Vec<u8>)>;

fn same_in_steps(file: &[u8]) {
    let (records, bad_bytes, foreign) = records_of(file, usize::MAX);
    let step = usize::from(file.first().copied().unwrap_or(1)) + 1;
    assert_eq!(records_of(file, step).0, records);
    for (kind, payload) in &records {
        if *kind == Kind::Put
            && let Some((manager, event)) = key::decode(payload)
        {
            let mut again = Vec::new();
            assert!(key::encode(&mut again, &manager, &event));
            assert_eq!(&again, payload);
            assert_eq!(key::manager(payload), Some(manager));
        }
    }
    if !foreign {
        let framed = |(_, payload): &(Kind, Vec<u8>)| FRAME_BYTES + payload.len();
        let good: usize = records.iter().map(framed).sum();
        let rest = file.len() as u64 - bad_bytes - good as u64;
        assert!(rest == 0 || rest == HEADER_BYTES as u64, "{rest} bytes");
    }
}

/// Returns the records, the number of bytes that belong to no record, and whether the file is of another version.
fn records_of(file: &[u8], step: usize) -> (Records, u64, bool) {
    let mut records = Vec::new();
    let mut file = Stepping { file, step };
    let contents = read(&mut file, &mut |kind, payload| {
        records.push((kind, payload.to_vec()));
    });
    let foreign = contents.foreign_version.is_some();
    (records, contents.bad_bytes, foreign)
}

struct Stepping<'a> {
    file: &'a [u8],
    step: usize,
}

impl Read for Stepping<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.step.min(buffer.len()).min(self.file.len());
        let (now, later) = self.file.split_at(length);
        buffer[..length].copy_from_slice(now);
        self.file = later;
        Ok(length)
    }
}

/// Creates a file from `recipe`, which contains a kind and a length for each piece: intact records and, between them, other
/// bytes. The other bytes contain no byte that starts a marker, so they cannot look like the start of a record.
fn cook(recipe: &[u8]) -> (Vec<u8>, Records) {
    let (mut file, mut records) = (header().to_vec(), Records::new());
    let mut rest = recipe;
    while let [what, length, behind @ ..] = rest {
        let (piece, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = behind;
        let kinds = [
            Kind::Put,
            Kind::Delivered,
            Kind::Resync,
            Kind::ResyncReported,
        ];
        if let Some(kind) = kinds.get(usize::from(*what)) {
            // A marker in a payload would make a record after damage ambiguous.
            let payload: Vec<u8> = piece.iter().map(|byte| byte & 0x7F).collect();
            write(&mut file, *kind, &payload);
            records.push((*kind, payload));
        } else {
            file.extend(piece.iter().map(|byte| byte & 0x7F));
        }
    }
    (file, records)
}
