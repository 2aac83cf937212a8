//! Tests of a disk that does not respond. A put waits for it until its deadline, and nothing else waits.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;
use tokio::runtime::Builder;

use super::disk::{Brake, FakeDisk, Operation};
use super::fixture::{Fixture, LONG, LONG_LIMITS, Settings, event, manager, settings};
use crate::outbox::{Limits, Options, Stored, TimeLimits};

/// Time limit of operations that are not blocked.
pub(super) const STUCK: Duration = Duration::from_mins(1);

/// Blocks each `operation` until the brake is released.
pub(super) fn freeze(disk: &FakeDisk, operation: Operation) -> Frozen {
    let (asked, asking) = channel();
    let (go, going) = channel();
    let brake = Brake {
        asked,
        go: Mutex::new(going),
    };
    disk.content().brake = Some((operation, Arc::new(brake)));
    let disk = disk.clone();
    Frozen { disk, asking, go }
}

pub(super) struct Frozen {
    disk: FakeDisk,
    asking: Receiver<()>,
    go: Sender<()>,
}

impl Frozen {
    /// Waits until an operation is blocked.
    pub(super) fn holds(&self) {
        self.asking.recv_timeout(STUCK).unwrap();
    }

    pub(super) fn thaw(self) {
        self.disk.content().brake = None;
        drop(self.go);
    }
}

/// Much longer than any deadline of the product, and much shorter than the time for which the disk is blocked.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Returns the result of `ask`, which must not wait for the disk.
pub(super) fn at_once<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (sent, given) = channel();
    thread::spawn(move || sent.send(ask()));
    given.recv_timeout(AT_ONCE).expect("it waits for the disk")
}

/// Returns the default deadline of the product.
pub(super) fn deadline() -> Duration {
    Options::new(PathBuf::new()).write_deadline
}

/// Returns the settings with the default deadline of the product.
pub(super) fn brief() -> Settings {
    Settings {
        write_deadline: deadline(),
        ..settings()
    }
}

fn frozen() -> (Fixture, Frozen) {
    frozen_with(brief())
}

fn frozen_with(settings: Settings) -> (Fixture, Frozen) {
    let mut fixture = Fixture::with(FakeDisk::default(), settings);
    let _ = fixture.put("a", 1);
    until(|| {
        fixture.outbox.report(fixture.now).on_disk && fixture.put("a", 1) == Stored::Coalesced
    });
    let go = freeze(&fixture.disk, Operation::Append);
    (fixture, go)
}

/// Waits until the condition is true. The tests are not async, because a put blocks its thread.
pub(super) fn until(mut holds: impl FnMut() -> bool) {
    let runtime = Builder::new_current_thread().enable_time().build();
    let holds = || std::future::ready(holds());
    let waited = testkit::until::until("the condition is true", STUCK, holds);
    runtime.unwrap().block_on(waited).unwrap();
}

pub(super) fn put(fixture: &Fixture, number: u32) -> Stored {
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    at_once(move || outbox.put(&manager("a"), &event(number), now))
}

pub(super) fn on_disk(fixture: &Fixture) -> bool {
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    at_once(move || outbox.report(now)).on_disk
}

/// Most puts return by their deadline. A busy machine may delay any of them.
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
    // Only the first put waits. After that the disk is known to be slow.
    assert!(waits[10] < deadline(), "{waits:?}");
    go.thaw();
}

#[test]
fn a_put_on_a_frozen_disk_is_kept_in_memory_and_nothing_waits_for_the_disk() {
    let (fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    assert_eq!(at_once(move || outbox.report(now)).depth, 2);
    assert_eq!(put(&fixture, 3), Stored::MemoryOnly);
    // A second review of an object whose record is not written gets the same response.
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
    // After a while the disk counts as failed, and a put does not wait at all.
    fixture.set_stalled(TimeLimits::default().stalled);
    until(|| !on_disk(&fixture));
    assert_eq!(put(&fixture, 4), Stored::MemoryOnly);
    let failure = fixture.outbox.shared.lock().handoff.failure.clone();
    assert_eq!(failure.as_deref(), Some("write to the disk timed out"));
    go.thaw();
}

/// A short delay: the pending records are written when the disk responds, and the disk does not count as failed.
#[test]
fn what_a_slow_disk_has_not_acknowledged_is_written_when_it_answers() {
    let (mut fixture, go) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    go.thaw();
    until(|| fixture.put("a", 2) == Stored::Coalesced);
    assert!(on_disk(&fixture));
    assert_eq!(fixture.outbox.report(fixture.now).disk_failures, 0);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, false));
}

/// A delay after which the disk counts as failed: the pending records are written when the disk responds, and the spool is complete.
#[test]
fn a_spool_whose_disk_was_frozen_is_whole_when_it_answers() {
    let (mut fixture, frozen) = frozen();
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    fixture.set_stalled(Duration::ZERO);
    until(|| !on_disk(&fixture));
    assert_eq!(put(&fixture, 3), Stored::MemoryOnly);
    fixture.set_stalled(LONG);
    frozen.thaw();
    until(|| on_disk(&fixture));
    assert_eq!(fixture.outbox.report(fixture.now).disk_failures, 1);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (3, false));
    assert_eq!(fixture.deliver_all(), ["a/1", "a/2", "a/3"]);
}

/// The pending records exceed the limit. They are dropped, and a snapshot contains their effect.
#[rstest]
#[case::snapshot(None, 12_001, false)]
#[case::no_snapshot(Some(std::io::ErrorKind::Other), 2, true)]
fn a_spool_that_lacks_records_is_replaced_or_says_so(
    #[case] refusal: Option<std::io::ErrorKind>,
    #[case] items: usize,
    #[case] resync: bool,
) {
    let (mut fixture, frozen) = frozen_with(Settings {
        max_bytes: 16 << 20,
        ..brief()
    });
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    frozen.holds();
    let long = "x".repeat(100);
    fixture.outbox.took(&manager(&long), fixture.now);
    for number in 3..=12_001 {
        assert_eq!(fixture.put(&long, number), Stored::MemoryOnly);
    }
    fixture.disk.content().create_refusal = refusal;
    frozen.thaw();
    fixture.keep_up();
    assert_eq!(on_disk(&fixture), refusal.is_none());
    fixture.disk.content().create_refusal = None;
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (items, resync));
}

/// Many events in the segment are delivered during the delay, so a compaction follows at once. It must not hide that
/// records were dropped.
#[test]
fn a_spool_that_lacks_records_says_so_also_if_a_compaction_is_due() {
    let settings = Settings {
        max_bytes: 16 << 20,
        follow_up_delay: Duration::ZERO,
        ..brief()
    };
    let mut fixture = Fixture::with(FakeDisk::default(), settings);
    let long = "x".repeat(100);
    for number in 0..4_000 {
        let _ = fixture.put(&long, number);
    }
    until(|| fixture.outbox.report(fixture.now).on_disk && put(&fixture, 1) == Stored::Coalesced);
    let frozen = freeze(&fixture.disk, Operation::Append);
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    frozen.holds();
    for number in 5_000..15_000 {
        for item in fixture.outbox.take(fixture.now, 9) {
            fixture.outbox.delivered(&item, fixture.now);
        }
        let _ = fixture.put(&long, number);
    }
    fixture.disk.content().create_refusal = Some(std::io::ErrorKind::Other);
    frozen.thaw();
    fixture.keep_up();
    fixture.disk.content().create_refusal = None;
    let recovered = fixture.kill();
    assert!(recovered.resync, "{recovered:?}");
}

/// The process is killed before that snapshot is written.
#[test]
fn a_spool_that_lacks_records_says_so_before_it_is_replaced() {
    let (mut fixture, frozen) = frozen_with(Settings {
        max_bytes: 16 << 20,
        ..brief()
    });
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    frozen.holds();
    let long = "x".repeat(100);
    fixture.outbox.took(&manager(&long), fixture.now);
    for number in 3..=12_001 {
        assert_eq!(fixture.put(&long, number), Stored::MemoryOnly);
    }
    let creating = freeze(&fixture.disk, Operation::Create);
    drop(frozen);
    creating.holds();
    fixture.disk.content().life = Some(0);
    creating.thaw();
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, true));
}

/// The end of the process does not wait for a disk that does not respond.
#[test]
fn the_end_does_not_wait_for_a_frozen_disk() {
    let time_limits = TimeLimits {
        shutdown: TimeLimits::default().shutdown,
        ..LONG_LIMITS
    };
    let (fixture, frozen) = frozen_with(Settings {
        time_limits,
        ..brief()
    });
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now);
    assert!(!at_once(move || outbox.keep_up(now, deadline())));
    let (done, ended) = channel();
    let disk = fixture.disk.clone();
    thread::spawn(move || {
        drop(fixture);
        done.send(())
    });
    assert!(ended.recv_timeout(STUCK).is_ok());
    drop((disk, frozen));
}

/// The limit in the documentation: one put in a hundred may take longer. A busy machine may delay more of them, but not in
/// each round.
#[test]
fn of_many_puts_on_a_frozen_disk_99_percent_take_at_most_5_milliseconds() {
    let round = || {
        let (mut fixture, frozen) = frozen();
        let mut waits: Vec<Duration> = (0..2_000)
            .map(|number| {
                let begun = Instant::now();
                let _ = fixture.put("a", number + 2);
                begun.elapsed()
            })
            .collect();
        waits.sort();
        frozen.thaw();
        waits[1_980]
    };
    let rounds: Vec<_> = (0..5).map(|_| round()).collect();
    let fastest = rounds.iter().min();
    assert!(fastest <= Some(&Duration::from_millis(5)), "{rounds:?}");
}

/// A container that is restarted with a blocked disk still responds to reviews.
#[test]
fn a_start_on_a_frozen_disk_goes_on_in_memory_and_finds_the_spool_later() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    let disk = fixture.disk.clone();
    drop(fixture);
    let go = freeze(&disk, Operation::Append);
    let begun = Instant::now();
    let time_limits = TimeLimits {
        open: TimeLimits::default().open,
        ..LONG_LIMITS
    };
    let mut fixture = Fixture::with(
        disk,
        Settings {
            time_limits,
            ..settings()
        },
    );
    assert!(begun.elapsed() < STUCK);
    let unusable = fixture.recovered.unusable.as_deref();
    assert_eq!(unusable, Some("write to the disk timed out"));
    assert_eq!(put(&fixture, 2), Stored::MemoryOnly);
    go.thaw();
    until(|| on_disk(&fixture));
    fixture.settings.time_limits = LONG_LIMITS;
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (2, false));
}

/// Deliveries continue while the disk is blocked. The number of their pending records is limited.
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
    fixture.outbox.took(&manager("a"), fixture.now);
    for number in 0..40_000 {
        let _ = fixture.put("a", number);
    }
    let items = fixture
        .outbox
        .take(fixture.now + Duration::from_secs(5), usize::MAX);
    let go = freeze(&fixture.disk, Operation::Append);
    let (outbox, now) = (fixture.outbox.clone(), fixture.now + Duration::from_secs(5));
    let begun = Instant::now();
    for item in &items {
        outbox.delivered(item, now);
    }
    assert!(begun.elapsed() < STUCK);
    assert_eq!(outbox.report(now).depth, 0);
    go.thaw();
    fixture.keep_up();
    assert_eq!(fixture.kill().items, 0);
}
