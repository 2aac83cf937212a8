//! A disk that takes its time: whatever the upkeep forces to it, a put does not wait for that; and one that does not
//! answer, for which a put waits until its deadline, and nothing else does.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;

use super::disk::{Brake, FakeDisk};
use super::fixture::{Fixture, event, manager, settings};
use crate::outbox::{FsyncPolicy, Limits, Options, Settings, Stored};

/// So long nothing takes here that is not stuck.
const STUCK: Duration = Duration::from_secs(10);

#[rstest]
#[case::a_batch_and_a_compaction(FsyncPolicy::EachBatch(Duration::from_secs(1)), 5)]
#[case::a_compaction(FsyncPolicy::Never, 2)]
fn a_put_waits_for_nothing_that_the_upkeep_forces(
    #[case] fsync: FsyncPolicy,
    #[case] expected: u32,
) {
    let settings = Settings {
        fsync,
        ..settings()
    };
    let mut fixture = Fixture::with(FakeDisk::default(), settings);
    for number in 0..3_000 {
        let _ = fixture.put("a", number);
        fixture.deliver_twice();
    }
    let _ = fixture.put("a", 0);
    let used = fixture.disk.content().used();
    let (asked, asking) = channel();
    let (go, going) = channel();
    let going = Mutex::new(going);
    fixture.disk.content().brake = Some(Arc::new(Brake { asked, go: going }));
    let (outbox, disk, now) = (fixture.outbox.clone(), fixture.disk.clone(), fixture.now);
    let upkeep = thread::spawn(move || {
        let _ = outbox.keep_up(now);
        // The last that asks.
        disk.content().brake = None;
    });
    let mut syncs = 0;
    loop {
        match asking.recv_timeout(STUCK) {
            Ok(()) => syncs += 1,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("the upkeep is stuck"),
        }
        let (outbox, now) = (fixture.outbox.clone(), fixture.now);
        let (put, stored) = channel();
        let putting =
            thread::spawn(move || put.send(outbox.put(&manager("a"), &event(syncs), now)));
        assert_eq!(stored.recv_timeout(STUCK), Ok(Stored::Spooled), "{syncs}");
        putting.join().unwrap().unwrap();
        go.send(()).unwrap();
    }
    upkeep.join().unwrap();
    assert_eq!(syncs, expected);
    assert!(fixture.disk.content().used() < used / 10);
    let recovered = fixture.kill();
    assert_eq!(
        (recovered.items, recovered.resync),
        (1 + syncs as usize, false)
    );
}

/// Stops every append until `go` is told, or dropped.
fn freeze(disk: &FakeDisk) -> std::sync::mpsc::Sender<()> {
    let (asked, _) = channel();
    let (go, going) = channel();
    let going = Mutex::new(going);
    disk.content().append_brake = Some(Arc::new(Brake { asked, go: going }));
    go
}

fn thaw(disk: &FakeDisk, go: std::sync::mpsc::Sender<()>) {
    disk.content().append_brake = None;
    drop(go);
}

/// Far longer than any deadline, and far shorter than the disk is frozen.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What `ask` gives, which is not to wait for the disk.
fn at_once<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (sent, given) = channel();
    thread::spawn(move || sent.send(ask()));
    given.recv_timeout(AT_ONCE).expect("it waits for the disk")
}

/// The product's own.
fn deadline() -> Duration {
    Options::new(PathBuf::new()).write_deadline
}

fn frozen() -> (Fixture, std::sync::mpsc::Sender<()>) {
    let settings = Settings {
        write_deadline: deadline(),
        ..settings()
    };
    let mut fixture = Fixture::with(FakeDisk::default(), settings);
    let _ = fixture.put("a", 1);
    until(|| {
        fixture.outbox.report(fixture.now).on_disk && fixture.put("a", 1) == Stored::Coalesced
    });
    let go = freeze(&fixture.disk);
    (fixture, go)
}

/// Asks until it holds.
fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + STUCK;
    while !holds() {
        assert!(Instant::now() < end, "never");
        thread::sleep(Duration::from_millis(5));
    }
}

fn put(fixture: &Fixture, number: u32) -> Stored {
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    at_once(move || outbox.put(&manager("a"), &event(number), now))
}

fn on_disk(fixture: &Fixture) -> bool {
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    at_once(move || outbox.report(now)).on_disk
}

/// Of many puts most come back by their deadline; a busy machine may delay any of them.
#[test]
fn a_put_on_a_frozen_disk_comes_back_by_its_deadline() {
    let (fixture, go) = frozen();
    let mut waits: Vec<Duration> = (0..20)
        .map(|number| {
            let begun = Instant::now();
            let stored = fixture
                .outbox
                .put(&manager("a"), &event(number + 2), fixture.now);
            assert_eq!(stored, Stored::MemoryOnly);
            begun.elapsed()
        })
        .collect();
    waits.sort();
    assert!(waits[10] < Duration::from_millis(50), "{waits:?}");
    thaw(&fixture.disk, go);
}

#[test]
fn a_put_on_a_frozen_disk_is_kept_in_memory_and_nothing_waits_for_the_disk() {
    let (fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    assert_eq!(at_once(move || outbox.report(now)).depth, 2);
    assert_eq!(put(&fixture, 3), Stored::MemoryOnly);
    // Whoever asks for an object that is not written either gets no other promise.
    assert_eq!(put(&fixture, 3), Stored::MemoryOnly);
    let outbox = fixture.outbox.clone();
    let taken = at_once(move || {
        let items = outbox.take(now, 9);
        for item in &items {
            outbox.delivered(item, now);
        }
        items.len()
    });
    assert_eq!(taken, 3);
    // After a while it counts as given up, and a put does not wait at all.
    until(|| !on_disk(&fixture));
    assert_eq!(put(&fixture, 4), Stored::MemoryOnly);
    let trouble = fixture
        .outbox
        .store
        .lock()
        .spool
        .trouble()
        .map(str::to_owned);
    assert_eq!(trouble.as_deref(), Some("write to the disk timed out"));
    thaw(&fixture.disk, go);
}

/// A hiccup: what was handed over is written when the disk answers, and nothing is given up.
#[test]
fn what_a_slow_disk_has_not_acknowledged_is_written_when_it_answers() {
    let (mut fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    thaw(&fixture.disk, go);
    until(|| fixture.put("a", 2) == Stored::Coalesced);
    assert!(on_disk(&fixture));
    assert_eq!(fixture.outbox.report(fixture.now).disk_failures, 0);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, false));
}

#[test]
fn a_spool_that_was_given_up_is_whole_again_after_the_next_upkeep() {
    let (mut fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    until(|| !on_disk(&fixture));
    assert_eq!(put(&fixture, 3), Stored::MemoryOnly);
    thaw(&fixture.disk, go);
    fixture.pass(60);
    let _ = fixture.outbox.keep_up(fixture.now);
    assert!(on_disk(&fixture));
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (3, false));
    assert_eq!(fixture.deliver_all(), ["a/1", "a/2", "a/3"]);
}

/// Before that upkeep the spool says that something is missing.
#[test]
fn a_process_that_dies_after_its_disk_was_frozen_has_left_a_note() {
    let (mut fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    until(|| !on_disk(&fixture));
    assert_eq!(put(&fixture, 3), Stored::MemoryOnly);
    thaw(&fixture.disk, go);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, true));
    assert!(fixture.lost("a"));
}

/// The upkeep of a disk that does not answer ends, so that a shutdown does.
#[test]
fn the_upkeep_does_not_wait_for_a_frozen_append() {
    let (fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    let (done, ended) = channel();
    let upkeep = thread::spawn(move || done.send(outbox.keep_up(now)));
    assert!(ended.recv_timeout(STUCK).is_ok());
    upkeep.join().unwrap().unwrap();
    assert!(!on_disk(&fixture));
    thaw(&fixture.disk, go);
}

/// A container that is restarted into the same disk answers reviews all the same.
#[test]
fn a_start_on_a_frozen_disk_goes_on_in_memory_and_finds_the_spool_later() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    let disk = fixture.disk.clone();
    drop(fixture);
    let go = freeze(&disk);
    let begun = Instant::now();
    let mut fixture = Fixture::with(disk, settings());
    assert!(begun.elapsed() < STUCK);
    let unusable = fixture.recovered.unusable.as_deref();
    assert_eq!(unusable, Some("write to the disk timed out"));
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    thaw(&fixture.disk, go);
    until(|| on_disk(&fixture));
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, false));
}

/// Deliveries go on while the disk is frozen; their records wait within a bound.
#[test]
fn records_that_wait_for_a_frozen_disk_are_bounded() {
    let mut fixture = Fixture::with(
        FakeDisk::default(),
        Settings {
            max_bytes: 256 << 20,
            limits: Limits {
                keys: 100_000,
                memory: 256 << 20,
            },
            ..settings()
        },
    );
    for number in 0..40_000 {
        let _ = fixture.put("a", number);
    }
    let items = fixture
        .outbox
        .take(fixture.now + Duration::from_secs(5), usize::MAX);
    let go = freeze(&fixture.disk);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now + Duration::from_secs(5));
    let begun = Instant::now();
    for item in &items {
        outbox.delivered(item, now);
    }
    assert!(begun.elapsed() < STUCK);
    assert!(!outbox.report(now).on_disk);
    assert_eq!(outbox.report(now).depth, 0);
    thaw(&fixture.disk, go);
}
