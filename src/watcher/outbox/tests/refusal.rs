//! Tests of a disk that is full, read-only, missing or broken, and of another process in the directory.

use std::io::ErrorKind;

use rstest::rstest;

use super::disk::{Content, FakeDisk};
use super::fixture::{Fixture, Settings, settings};
use crate::outbox::{FsyncPolicy, Stored};

#[rstest]
#[case::absent(
    ErrorKind::NotFound,
    "failed to open the spool directory: entity not found"
)]
#[case::forbidden(
    ErrorKind::PermissionDenied,
    "failed to open the spool directory: permission denied"
)]
#[case::held(ErrorKind::WouldBlock, "spool directory is in use by another process")]
fn without_its_folder_everything_is_in_memory_until_it_is_there(
    #[case] closed: ErrorKind,
    #[case] unusable: &str,
) {
    let disk = FakeDisk::default();
    disk.content().closed = Some(closed);
    let mut fixture = Fixture::with(disk, settings());
    assert_eq!(fixture.recovered.unusable.as_deref(), Some(unusable));
    assert_eq!(fixture.put("a", 1), Stored::MemoryOnly);
    assert_eq!(fixture.put("a", 1), Stored::MemoryOnly);
    assert_eq!(fixture.put("a", 2), Stored::MemoryOnly);
    assert_eq!(fixture.deliver_all(), ["a/1", "a/2"]);
    assert!(!fixture.outbox.report(fixture.now).on_disk);
    fixture.disk.content().closed = None;
    fixture.keep_up_after(60);
    assert!(fixture.outbox.report(fixture.now).on_disk);
    assert_eq!(fixture.kill().items, 2);
}

#[tokio::test]
async fn events_that_another_process_spooled_later_are_queued() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    let (disk, now) = (fixture.disk.clone(), fixture.now);
    let late = Fixture::with(disk, settings());
    assert_eq!(late.recovered.items, 0);
    let _ = fixture.put("a", 2);
    drop(fixture);
    let minute = std::time::Duration::from_mins(1);
    assert!(late.outbox.keep_up(now + minute, minute));
    late.outbox.changed().await;
    assert_eq!(late.outbox.report(now).depth, 2);
}

#[test]
fn a_spool_at_its_bound_that_cannot_be_compacted_is_given_up() {
    let mut fixture = Fixture::new();
    fixture.disk.content().create_refusal = Some(ErrorKind::Other);
    let mut number = 0;
    while fixture.outbox.report(fixture.now).on_disk {
        number += 1;
        let _ = fixture.put("a", number);
        fixture.deliver_twice();
        assert!(number < 20_000);
    }
    assert!(fixture.disk.content().used() as u64 <= settings().max_bytes / 4 * 3);
    assert_eq!(fixture.put("b", 1), Stored::MemoryOnly);
    fixture.disk.content().create_refusal = None;
    fixture.keep_up_after(60);
    assert!(fixture.outbox.report(fixture.now).on_disk);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (1, false));
}

#[rstest]
#[case::read_only(|content: &mut Content| content.refusal = Some(ErrorKind::ReadOnlyFilesystem), "read-only filesystem or storage medium")]
#[case::full(|content: &mut Content| content.limit = Some(content.used() + 7), "no storage space")]
fn a_disk_that_refuses_later_is_used_again_when_it_takes(
    #[case] refuse: fn(&mut Content),
    #[case] reason: &str,
) {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    refuse(&mut fixture.disk.content());
    assert_eq!(fixture.put("a", 2), Stored::MemoryOnly);
    assert_eq!(fixture.put("a", 3), Stored::MemoryOnly);
    let failure = fixture.failure().unwrap();
    assert!(
        failure.starts_with("failed to write to a segment") && failure.ends_with(reason),
        "{failure}"
    );
    fixture.keep_up_after(60);
    assert!(!fixture.outbox.report(fixture.now).on_disk);
    assert_eq!(fixture.outbox.report(fixture.now).disk_failures, 2);
    fixture.disk.content().revive();
    fixture.keep_up_after(60);
    assert!(fixture.outbox.report(fixture.now).on_disk);
    assert_eq!(fixture.failure(), None);
    assert_eq!(fixture.put("a", 4), Stored::Spooled);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (4, false));
    assert_eq!(fixture.deliver_all(), ["a/1", "a/2", "a/3", "a/4"]);
}

#[test]
fn a_process_that_dies_while_its_disk_is_full_has_left_a_note() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    let used = fixture.disk.content().used();
    fixture.disk.content().limit = Some(used + 3);
    assert_eq!(fixture.put("a", 2), Stored::MemoryOnly);
    let recovered = fixture.kill();
    assert_eq!(
        (recovered.items, recovered.resync, recovered.torn_bytes),
        (1, true, 0)
    );
}

#[test]
fn a_disk_that_is_full_at_the_start_gives_what_it_has() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    let disk = fixture.disk.clone();
    drop(fixture);
    let used = disk.content().used();
    disk.content().limit = Some(used);
    let mut fixture = Fixture::with(disk, settings());
    assert_eq!(fixture.recovered.items, 1);
    assert!(fixture.recovered.unusable.is_some());
    // The directory is not read again at each retry. Otherwise delivered events would be sent again.
    fixture.drain();
    fixture.keep_up_after(60);
    assert_eq!(fixture.deliver_all(), [""; 0]);
    assert_eq!(fixture.put("a", 2), Stored::MemoryOnly);
    fixture.disk.content().limit = None;
    fixture.keep_up_after(60);
    assert_eq!(fixture.kill().items, 1);
    assert_eq!(fixture.deliver_all(), ["a/2"]);
}

#[test]
fn a_refusing_disk_is_tried_less_and_less() {
    let mut fixture = Fixture::new();
    fixture.disk.content().refusal = Some(ErrorKind::Other);
    let _ = fixture.put("a", 1);
    let mut tries = Vec::new();
    for second in 1..=200 {
        let before = fixture.outbox.report(fixture.now).disk_failures;
        fixture.keep_up_after(1);
        if fixture.outbox.report(fixture.now).disk_failures > before {
            tries.push(second);
        }
    }
    assert_eq!(tries, [1, 3, 7, 15, 31, 63, 123, 183]);
}

#[test]
fn what_could_not_be_forced_is_written_again() {
    let mut fixture = Fixture::with(
        FakeDisk::default(),
        Settings {
            fsync: FsyncPolicy::EachBatch(std::time::Duration::from_secs(1)),
            ..settings()
        },
    );
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    fixture.disk.content().sync_refusal = Some(ErrorKind::Other);
    fixture.keep_up_after(1);
    assert!(!fixture.outbox.report(fixture.now).on_disk);
    fixture.disk.content().sync_refusal = None;
    fixture.keep_up_after(60);
    assert!(fixture.outbox.report(fixture.now).on_disk);
    assert_eq!(fixture.kill().items, 1);
}

#[rstest]
#[case::no_space(|content: &mut Content| content.limit = Some(content.used() + 40))]
#[case::no_sync(|content: &mut Content| content.sync_refusal = Some(ErrorKind::Other))]
#[case::no_file(|content: &mut Content| content.create_refusal = Some(ErrorKind::Other))]
fn a_compaction_that_fails_costs_nothing(#[case] refuse: fn(&mut Content)) {
    let mut fixture = Fixture::new();
    for number in 0..100 {
        let _ = fixture.put("a", number);
        fixture.deliver_twice();
    }
    let _ = fixture.put("a", 0);
    let used = fixture.disk.content().used();
    refuse(&mut fixture.disk.content());
    fixture.compact();
    assert!(fixture.outbox.report(fixture.now).on_disk);
    assert!(fixture.disk.content().names().len() <= 2);
    fixture.disk.content().revive();
    fixture.disk.content().create_refusal = None;
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    fixture.compact();
    assert!(fixture.disk.content().used() < used / 10);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, false));
}

impl Fixture {
    fn keep_up_after(&mut self, seconds: u64) {
        self.pass(seconds);
        self.keep_up();
    }

    fn failure(&self) -> Option<String> {
        self.outbox.shared.lock().handoff.failure.clone()
    }
}
