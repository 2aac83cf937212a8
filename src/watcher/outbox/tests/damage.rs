//! Tests of segments that are truncated or changed at any position, or that another release has written.

use std::collections::BTreeSet;

use rstest::rstest;

use super::disk::FakeDisk;
use super::fixture::{Fixture, event, manager, settings};
use crate::outbox::record::{self, FRAME_BYTES, Kind};
use crate::outbox::segment::{HEADER_BYTES, WHOLE_AT, header};
use crate::outbox::storage::{aside_name, segment_name, unfinished_name};
use crate::outbox::{Outbox, Recovered, key};

/// Records of a short process. `Delivered` of a number removes the event that was put before.
const LIFE: [(Kind, u32); 9] = [
    (Kind::Put, 1),
    (Kind::Put, 2),
    (Kind::Delivered, 1),
    (Kind::Put, 3),
    (Kind::Delivered, 3),
    (Kind::Put, 1),
    (Kind::Put, 4),
    (Kind::Delivered, 2),
    (Kind::Put, 5),
];

/// Returns the segment of [`LIFE`], and the end of each record.
fn segment() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = header().to_vec();
    let mut ends = Vec::new();
    for (kind, number) in LIFE {
        record::write(&mut bytes, kind, &key_of(number));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn key_of(number: u32) -> Vec<u8> {
    let mut key = Vec::new();
    assert!(key::encode(&mut key, &manager("a"), &event(number)));
    key
}

/// Returns the pending events of `LIFE` without some of its records.
fn left(is_read: impl Fn(usize) -> bool) -> BTreeSet<u32> {
    let mut left = BTreeSet::new();
    for (_, (kind, number)) in LIFE.iter().enumerate().filter(|(index, _)| is_read(*index)) {
        match kind {
            Kind::Put => left.insert(*number),
            _ => left.remove(number),
        };
    }
    left
}

fn recover(bytes: &[u8]) -> (Recovered, BTreeSet<u32>, Outbox) {
    let disk = FakeDisk::with(&segment_name(1), bytes);
    let fixture = Fixture::with(disk, settings());
    let items = fixture.outbox.take(fixture.now, usize::MAX);
    let numbers = items
        .iter()
        .map(|item| item.event.watched.name.parse().unwrap());
    (fixture.recovered, numbers.collect(), fixture.outbox)
}

#[test]
fn a_segment_that_is_cut_anywhere_gives_what_was_before() {
    let (bytes, ends) = segment();
    for length in 0..=bytes.len() {
        let (recovered, found, outbox) = recover(&bytes[..length]);
        assert_eq!(found, left(|index| ends[index] <= length), "{length}");
        let whole = length == HEADER_BYTES || ends.contains(&length);
        assert_eq!(recovered.resync, !whole, "{length}");
        assert_eq!(recovered.torn_bytes == 0, whole || length == 0, "{length}");
        assert_eq!(recovered.unusable, None);
        assert!(outbox.report(std::time::Instant::now()).on_disk);
    }
}

#[test]
fn a_bit_that_is_changed_anywhere_costs_at_most_its_record() {
    let (bytes, ends) = segment();
    for bit in 0..bytes.len() * 8 {
        let (byte, mask) = (bit / 8, 1 << (bit % 8));
        let mut changed = bytes.clone();
        changed[byte] ^= mask;
        let hit = ends
            .iter()
            .position(|end| byte < *end)
            .filter(|_| byte >= HEADER_BYTES);
        let (recovered, found, _) = recover(&changed);
        assert_eq!(found, left(|index| Some(index) != hit), "{bit}");
        let unused = byte == HEADER_BYTES - 1;
        assert_eq!(recovered.resync, !unused, "{bit}");
        assert_eq!(recovered.newer_version, 0, "{bit}");
    }
}

#[test]
fn damage_is_reported_to_every_manager_across_restarts_until_acknowledged() {
    let (mut bytes, _) = segment();
    bytes[HEADER_BYTES + FRAME_BYTES] ^= 1;
    let disk = FakeDisk::with(&segment_name(1), &bytes);
    let mut fixture = Fixture::with(disk, settings());
    fixture.drain();
    assert!(fixture.kill().resync);
    for name in ["a", "never-met"] {
        let mark = fixture
            .outbox
            .manager_report(&manager(name), fixture.now)
            .resync
            .unwrap();
        fixture
            .outbox
            .resync_reported(&manager(name), mark, fixture.now);
        assert_eq!(
            fixture
                .outbox
                .manager_report(&manager(name), fixture.now)
                .resync,
            None
        );
    }
    let recovered = fixture.kill();
    assert!(!recovered.resync);
    // No resync was reported to the new manager yet.
    assert!(
        fixture
            .outbox
            .manager_report(&manager("new"), fixture.now)
            .resync
            .is_some()
    );
}

#[rstest]
#[case::newer(2, &aside_name(7, Some(2)))]
#[case::older_than_any(0, &aside_name(7, Some(0)))]
fn a_segment_of_another_release_is_kept_aside(#[case] version: u16, #[case] name: &str) {
    let mut bytes = header().to_vec();
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let checksum = crate::outbox::record::crc32c(&[&bytes[..10]]);
    bytes[10..14].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend(b"of a format that is not known yet");
    let (own, _) = segment();
    let disk = FakeDisk::with(&segment_name(7), &bytes);
    disk.content().insert(&segment_name(3), &own);
    let mut fixture = Fixture::with(disk, settings());
    assert_eq!(fixture.recovered.newer_version, 1);
    assert!(fixture.recovered.resync);
    assert_eq!(fixture.recovered.items, left(|_| true).len());
    assert_eq!(fixture.disk.content().bytes(name), bytes);
    fixture.drain();
    fixture.kill();
    assert_eq!(fixture.recovered.newer_version, 0);
    assert_eq!(fixture.disk.content().bytes(name), bytes);
}

#[test]
fn a_record_that_is_intact_and_makes_no_sense_is_passed_over() {
    let (mut bytes, _) = segment();
    record::write(&mut bytes, Kind::Put, b"no key");
    record::write(&mut bytes, Kind::Resync, b"no/manager");
    record::write(&mut bytes, Kind::Delivered, b"what was never put");
    record::write(&mut bytes, Kind::Put, &key_of(9));
    let (recovered, found, _) = recover(&bytes);
    assert!(recovered.resync);
    assert!(found.contains(&9));
}

#[test]
fn a_segment_that_was_not_whole_is_followed_by_a_resync() {
    let (mut bytes, _) = segment();
    bytes[usize::try_from(WHOLE_AT).unwrap()] = 0;
    let (recovered, found, _) = recover(&bytes);
    assert!(recovered.resync);
    assert_eq!(found, left(|_| true));
}

#[test]
fn what_is_no_segment_is_left_alone() {
    let disk = FakeDisk::with("README", b"hello");
    disk.content()
        .insert(&unfinished_name(4), b"half a snapshot");
    let fixture = Fixture::with(disk, settings());
    assert_eq!(fixture.recovered, Recovered::default());
    assert_eq!(
        fixture.disk.content().names(),
        [segment_name(5), "README".to_owned()]
    );
}
