use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::outbox::record::write;

#[path = "../../../../fuzz/properties/spool.rs"]
mod property;

/// Returns the records that are read from `bytes`, with at most `step` bytes per read.
fn read_by(bytes: &[u8], step: usize) -> (Vec<(Kind, Vec<u8>)>, SegmentContents) {
    let mut records = Vec::new();
    let mut file = Stepping { bytes, step };
    let contents = read(&mut file, &mut |kind, payload| {
        records.push((kind, payload.to_vec()));
    });
    (records, contents)
}

struct Stepping<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Read for Stepping<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.step.min(buffer.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(length);
        buffer[..length].copy_from_slice(now);
        self.bytes = later;
        Ok(length)
    }
}

fn put(bytes: &mut Vec<u8>, payload: &[u8]) {
    write(bytes, Kind::Put, payload);
}

#[rstest]
#[case::at_once(usize::MAX)]
#[case::in_small_steps(101)]
#[case::oddly(4_099)]
fn records_come_back_in_their_order(#[case] step: usize) {
    let mut bytes = header().to_vec();
    let mut expected = Vec::new();
    for number in 0..2_000_u16 {
        let payload = number.to_le_bytes().repeat(usize::from(number % 97));
        let kind = [
            Kind::Put,
            Kind::Delivered,
            Kind::Resync,
            Kind::ResyncReported,
        ][usize::from(number % 4)];
        write(&mut bytes, kind, &payload);
        expected.push((kind, payload));
    }
    let (records, contents) = read_by(&bytes, step);
    assert_eq!(records, expected);
    assert_eq!(
        (contents.bytes, contents.bad_bytes),
        (bytes.len() as u64, 0)
    );
    assert!(!contents.may_be_missing());
}

#[test]
fn the_largest_payload_is_read_and_a_larger_one_never_written() {
    let mut bytes = header().to_vec();
    put(&mut bytes, &vec![7; PAYLOAD_BYTES]);
    let length = bytes.len();
    put(&mut bytes, &vec![7; PAYLOAD_BYTES + 1]);
    put(&mut bytes, &vec![7; 70_000]);
    assert_eq!(bytes.len(), length);
    assert_eq!(read_by(&bytes, 9).0, [(Kind::Put, vec![7; PAYLOAD_BYTES])]);
}

#[rstest]
#[case::nothing(vec![], 0)]
#[case::part_of_the_header(header()[..15].to_vec(), 15)]
#[case::zeroes(vec![0; 300_000], 300_000)]
#[case::only_beginnings_of_markers(vec![0xFF; 100_000], 100_000)]
#[case::a_marker_at_the_end([&header()[..], &[0xFF, 0xC0, 0xFE, 0xC1]].concat(), 4)]
fn a_file_without_records_is_known_to_lack_some(#[case] bytes: Vec<u8>, #[case] bad: u64) {
    let (records, contents) = read_by(&bytes, usize::MAX);
    assert_eq!(records, []);
    assert!(contents.may_be_missing());
    assert_eq!(contents.bad_bytes, bad);
}

#[test]
fn an_empty_segment_lacks_nothing() {
    assert!(!read_by(&header(), 3).1.may_be_missing());
}

#[rstest]
#[case::newer(2)]
#[case::much_newer(u16::MAX)]
#[case::none(0)]
fn another_version_is_not_read(#[case] version: u16) {
    let mut bytes = header_of(version).to_vec();
    put(&mut bytes, b"of another time");
    let (records, contents) = read_by(&bytes, usize::MAX);
    assert_eq!(records, []);
    assert_eq!(contents.foreign_version, Some(version));
}

#[test]
fn one_that_was_not_whole_says_so() {
    let mut bytes = header().to_vec();
    put(&mut bytes, b"a");
    bytes[usize::try_from(WHOLE_AT).unwrap()] = NOT_WHOLE;
    let (records, contents) = read_by(&bytes, usize::MAX);
    assert_eq!(records.len(), 1);
    assert!(contents.incomplete && contents.may_be_missing());
}

#[test]
fn what_was_read_before_an_error_counts() {
    struct Failing<'a>(Stepping<'a>);
    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("bad sector")),
                read => Ok(read),
            }
        }
    }
    let mut bytes = header().to_vec();
    put(&mut bytes, b"a");
    let mut records = 0;
    let mut file = Failing(Stepping {
        bytes: &bytes,
        step: 5,
    });
    let contents = read(&mut file, &mut |_, _| records += 1);
    assert_eq!(records, 1);
    assert!(contents.error.is_some() && contents.may_be_missing());
}

/// Generates any file: random bytes, records, damaged records, and bytes that look like records.
fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let junk = prop::collection::vec(any::<u8>(), 0..40);
    let marker = Just(vec![0xFF, 0xC0, 0xFE, 0xC1]);
    let record = prop::collection::vec(0_u8..0xC0, 0..40).prop_map(|payload| {
        let mut bytes = Vec::new();
        put(&mut bytes, &payload);
        bytes
    });
    let cut = (record.clone(), 0_usize..51).prop_map(|(mut bytes, length)| {
        bytes.truncate(length);
        bytes
    });
    prop::collection::vec(
        prop_oneof![junk, marker, record, cut, Just(header().to_vec())],
        0..12,
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(pieces in pieces(), headed: bool, step in 1_usize..64) {
        let mut bytes = if headed { header().to_vec() } else { Vec::new() };
        bytes.extend(pieces.concat());
        let (records, contents) = read_by(&bytes, step);
        let (at_once, _) = read_by(&bytes, usize::MAX);
        prop_assert_eq!(&records, &at_once);
        if contents.foreign_version.is_none() {
            let used: usize = records.iter().map(|(_, payload)| FRAME_BYTES + payload.len()).sum();
            let headers = bytes.len() as u64 - contents.bad_bytes - used as u64;
            prop_assert!(headers == 0 || headers == HEADER_BYTES as u64);
        }
    }

    #[test]
    fn every_record_between_junk_is_found(
        parts in prop::collection::vec((prop::collection::vec(0_u8..0xC0, 0..40), prop::collection::vec(0_u8..=0xFE, 0..30)), 1..10),
        step in 1_usize..64,
    ) {
        let mut bytes = header().to_vec();
        for (payload, junk) in &parts {
            put(&mut bytes, payload);
            bytes.extend(junk);
        }
        let (records, contents) = read_by(&bytes, step);
        let found: Vec<_> = records.into_iter().map(|(_, payload)| payload).collect();
        let expected: Vec<_> = parts.iter().map(|(payload, _)| payload.clone()).collect();
        prop_assert_eq!(found, expected);
        let junk: usize = parts.iter().map(|(_, junk)| junk.len()).sum();
        prop_assert_eq!(contents.bad_bytes, junk as u64);
    }
}

/// Checks the seeds of fuzzing, and inputs that fuzzing has found, against the same property.
#[rstest]
fn a_file_is_read_to_its_end(
    #[files("../../fuzz/seeds/spool/*")]
    #[mode = bytes]
    file: &[u8],
) {
    property::check(file);
}
