//! Tests of syncs and compactions that are slow or fail: no operation waits for them, and no record is lost.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rstest::rstest;

use super::disk::{Content, FakeDisk, Operation};
use super::fixture::{Fixture, LONG, Settings, put_forced, settings};
use super::stuck::{STUCK, at_once, brief, deadline, freeze, on_disk, put, until};
use crate::outbox::queue::MonotonicTime;
use crate::outbox::{FsyncPolicy, Stored};

/// While a compaction is blocked at any operation, events are put, delivered and reported, and a kill at that moment loses
/// no event.
#[rstest]
fn a_compaction_holds_up_nothing_and_a_kill_in_it_loses_nothing(
    #[values(
        Operation::Create,
        Operation::Append,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncDirectory,
        Operation::Remove
    )]
    operation: Operation,
    #[values(false, true)] killed: bool,
) {
    // The appending thread creates and renames the next segment.
    let (stored, write_deadline) = match operation {
        Operation::Create | Operation::Append | Operation::Rename => {
            (Stored::MemoryOnly, deadline())
        }
        _ => (Stored::Spooled, LONG),
    };
    let mut fixture = Fixture::with(
        FakeDisk::default(),
        Settings {
            write_deadline,
            follow_up_delay: Duration::ZERO,
            ..settings()
        },
    );
    for number in 1..=3 {
        let _ = fixture.put("a", number);
    }
    fixture.keep_up();
    let frozen = freeze(&fixture.disk, operation);
    let shared = Arc::clone(&fixture.outbox.shared);
    let compacting = thread::spawn(move || shared.compact());
    frozen.holds();
    assert_eq!(put(&fixture, 4), stored);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    at_once(move || {
        let items = outbox.take(now, 2);
        for item in &items {
            outbox.delivered(item, now);
        }
    });
    // The event is put again after its delivery.
    assert_eq!(put(&fixture, 1), stored);
    assert!(on_disk(&fixture));
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    assert_eq!(at_once(move || outbox.report(now)).depth, 3);
    if killed {
        fixture.disk.content().life = Some(0);
        frozen.thaw();
        compacting.join().unwrap();
        fixture.kill();
        let mut items = fixture.deliver_all();
        items.sort();
        // Records that were not acknowledged, including deliveries, may be missing.
        match stored {
            Stored::Spooled => assert_eq!(items, ["a/1", "a/3", "a/4"]),
            _ => assert_eq!(items, ["a/1", "a/2", "a/3"]),
        }
    } else {
        frozen.thaw();
        compacting.join().unwrap();
        let recovered = fixture.kill();
        assert_eq!(
            (recovered.items, recovered.resync),
            (3, false),
            "{recovered:?}"
        );
        let mut items = fixture.deliver_all();
        items.sort();
        assert_eq!(items, ["a/1", "a/3", "a/4"]);
    }
}

/// Returns a fixture that syncs once a second.
fn synced(disk: FakeDisk) -> Fixture {
    let settings = Settings {
        fsync: FsyncPolicy::EachBatch(Duration::from_secs(1)),
        ..settings()
    };
    Fixture::with(disk, settings)
}

/// The next sync includes the records that were appended during a sync.
#[test]
fn a_sync_holds_up_no_put_and_the_next_one_forces_what_came_meanwhile() {
    let mut fixture = synced(FakeDisk::default());
    let _ = fixture.put("a", 0);
    let frozen = freeze(&fixture.disk, Operation::Sync);
    let tick = fixture.outbox.shared.tick(MonotonicTime::default());
    frozen.holds();
    for number in 1..=100 {
        assert_eq!(put(&fixture, number), Stored::Spooled, "{number}");
    }
    let shared = &fixture.outbox.shared;
    assert!(!shared.ticked(tick, Duration::ZERO));
    let next = shared.tick(MonotonicTime::default());
    frozen.thaw();
    assert!(shared.ticked(next, STUCK));
    let disk = fixture.disk.clone();
    disk.content().life = Some(0);
    drop(fixture);
    disk.content().lose_power(0);
    let recovered = synced(disk).recovered;
    assert_eq!((recovered.items, recovered.resync), (101, false));
}

/// A sync fails after many appends. All events are written again.
#[test]
fn a_sync_that_fails_late_writes_everything_again() {
    let mut fixture = synced(FakeDisk::default());
    let _ = fixture.put("a", 0);
    let frozen = freeze(&fixture.disk, Operation::Sync);
    let tick = fixture.outbox.shared.tick(MonotonicTime::default());
    frozen.holds();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    fixture.disk.content().sync_refusal = Some(std::io::ErrorKind::Other);
    frozen.thaw();
    assert!(fixture.outbox.shared.ticked(tick, STUCK));
    assert!(!on_disk(&fixture));
    fixture.disk.content().sync_refusal = None;
    fixture.pass(60);
    fixture.keep_up();
    assert!(on_disk(&fixture));
    assert_eq!(fixture.outbox.report(fixture.now).disk_failures, 1);
    fixture.disk.content().lose_power(0);
    assert_eq!(fixture.kill().items, 2);
}

#[test]
fn a_put_that_forces_each_record_waits_for_its_sync() {
    let mut fixture = Fixture::with(
        FakeDisk::default(),
        Settings {
            fsync: FsyncPolicy::Always,
            ..settings()
        },
    );
    assert_eq!(fixture.put("a", 0), Stored::Spooled);
    let frozen = freeze(&fixture.disk, Operation::Sync);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    let (sent, stored) = channel();
    thread::spawn(move || sent.send(put_forced(&outbox, "a", 1, now)));
    frozen.holds();
    assert!(stored.try_recv().is_err());
    frozen.thaw();
    assert_eq!(stored.recv_timeout(STUCK), Ok(Stored::Spooled));
}

/// The end of the process waits for the running sync, and for a sync of the later records.
#[test]
fn the_end_forces_what_came_during_a_sync() {
    let mut fixture = synced(FakeDisk::default());
    let _ = fixture.put("a", 0);
    let frozen = freeze(&fixture.disk, Operation::Sync);
    fixture.outbox.shared.tick(MonotonicTime::default());
    frozen.holds();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    let disk = fixture.disk.clone();
    frozen.thaw();
    drop(fixture);
    disk.content().lose_power(0);
    assert_eq!(synced(disk).recovered.items, 2);
}

/// The records from just before a failing compaction are in the earlier segments.
#[rstest]
#[case::create(|disk: &mut Content| disk.create_refusal = Some(std::io::ErrorKind::Other))]
#[case::sync(|disk: &mut Content| disk.sync_refusal = Some(std::io::ErrorKind::Other))]
fn a_compaction_that_fails_loses_no_record(#[case] fail: fn(&mut Content)) {
    let mut fixture = Fixture::with(FakeDisk::default(), brief());
    until(|| fixture.put("a", 1) == Stored::Coalesced);
    let frozen = freeze(&fixture.disk, Operation::Append);
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    frozen.holds();
    let shared = Arc::clone(&fixture.outbox.shared);
    let compacting = thread::spawn(move || shared.compact());
    fail(&mut fixture.disk.content());
    frozen.thaw();
    compacting.join().unwrap();
    until(|| fixture.put("a", 3) == Stored::Coalesced);
    fixture.disk.content().create_refusal = None;
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (3, false));
}

/// No operation waits for a directory that cannot be opened.
#[test]
fn a_directory_that_does_not_open_holds_up_nothing() {
    let mut fixture = Fixture::new();
    fixture.disk.content().refusal = Some(std::io::ErrorKind::NotFound);
    assert_eq!(fixture.put("a", 1), Stored::MemoryOnly);
    let frozen = freeze(&fixture.disk, Operation::Open);
    fixture.disk.content().refusal = None;
    fixture.pass(60);
    fixture
        .outbox
        .shared
        .tick(fixture.outbox.monotonic(fixture.now));
    frozen.holds();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    assert!(!on_disk(&fixture));
    frozen.thaw();
    until(|| on_disk(&fixture));
    assert_eq!(fixture.kill().items, 2);
}
