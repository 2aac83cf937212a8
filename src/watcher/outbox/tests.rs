use self::disk::FakeDisk;
use self::fixture::{Fixture, Settings, manager, settings};
use super::*;

mod damage;
mod disk;
mod fixture;
mod killed;
mod limited;
mod managers;
mod model;
mod probes;
mod refusal;
mod stuck;
mod syncs;

#[test]
fn what_was_put_is_delivered_then_confirmed_then_gone() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    assert_eq!(fixture.put("a", 1), Stored::Coalesced);
    assert_eq!(fixture.put("b", 1), Stored::Spooled);
    assert_eq!(fixture.deliver_all(), ["a/1", "b/1"]);
    assert_eq!(fixture.deliver_all(), [""; 0]);
    assert_eq!(fixture.outbox.report(fixture.now).depth, 2);
    fixture.pass(5);
    assert_eq!(fixture.outbox.next_due(), Some(fixture.now));
    assert_eq!(fixture.deliver_all(), ["a/1", "b/1"]);
    assert_eq!(fixture.outbox.next_due(), None);
    assert_eq!(fixture.outbox.report(fixture.now).depth, 0);
}

#[test]
fn a_killed_process_loses_nothing() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    let _ = fixture.put("b", 2);
    let _ = fixture.put("a", 3);
    let items = fixture.outbox.take(fixture.now, 2);
    fixture.outbox.delivered(&items[0], fixture.now);
    let recovered = fixture.kill();
    assert_eq!(
        recovered,
        Recovered {
            items: 3,
            ..Recovered::default()
        }
    );
    assert_eq!(fixture.deliver_all(), ["a/1", "b/2", "a/3"]);
}

#[test]
fn what_is_delivered_does_not_come_back() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    fixture.deliver_twice();
    let _ = fixture.put("a", 2);
    assert_eq!(fixture.kill().items, 1);
    assert_eq!(fixture.deliver_all(), ["a/2"]);
}

#[test]
fn a_confirmation_outlives_the_process() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    assert_eq!(fixture.deliver_all(), ["a/1"]);
    assert_eq!(fixture.kill().items, 1);
    assert_eq!(fixture.deliver_all(), ["a/1"]);
    fixture.pass(5);
    assert_eq!(fixture.deliver_all(), ["a/1"]);
    assert_eq!(fixture.kill().items, 0);
}

#[test]
fn numbers_begin_anew_with_each_life() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    let [item] = fixture.outbox.take(fixture.now, 9).try_into().unwrap();
    assert_eq!((item.sequence, item.attempt), (1, 0));
    fixture.outbox.failed(&item, fixture.now);
    let [item] = fixture.outbox.take(fixture.now, 9).try_into().unwrap();
    assert_eq!((item.sequence, item.attempt), (1, 1));
    fixture.kill();
    let [item] = fixture.outbox.take(fixture.now, 9).try_into().unwrap();
    assert_eq!((item.sequence, item.attempt), (1, 0));
}

/// Also after a kill, because the mark is written before the event is removed.
#[test]
fn a_rejected_event_is_dropped_and_its_manager_is_marked() {
    let mut fixture = Fixture::new();
    for number in 0..3 {
        let _ = fixture.put("a", number);
        let _ = fixture.put("b", number);
    }
    let items = fixture.outbox.take(fixture.now, usize::MAX);
    fixture
        .outbox
        .settle(&items[0], Settlement::Drop, fixture.now);
    assert!(fixture.lost("a") && !fixture.lost("b"));
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (5, true));
    let of_b = fixture.outbox.take(fixture.now, usize::MAX);
    let of_b = of_b.iter().find(|item| item.manager == manager("b"));
    fixture
        .outbox
        .settle(of_b.unwrap(), Settlement::DropAll, fixture.now);
    assert!(fixture.lost("b"));
    assert_eq!(fixture.outbox.report(fixture.now).dropped.rejected, 3);
    assert_eq!(fixture.kill().items, 2);
    assert!(fixture.lost("a") && fixture.lost("b"));
    assert_eq!(fixture.deliver_all(), ["a/1", "a/2"]);
}

#[test]
fn a_full_outbox_marks_its_manager_until_that_knows() {
    let mut fixture = Fixture::with(
        FakeDisk::default(),
        Settings {
            limits: Limits {
                keys: 1,
                ..Limits::WATCHER
            },
            ..settings()
        },
    );
    assert_eq!(fixture.put("a", 1), Stored::Spooled);
    assert_eq!(fixture.put("b", 1), Stored::Full);
    assert_eq!(fixture.put("a", 1), Stored::Coalesced);
    assert_eq!(
        fixture
            .outbox
            .manager_report(&manager("a"), fixture.now)
            .resync,
        None
    );
    assert!(fixture.kill().resync);
    let mark = fixture
        .outbox
        .manager_report(&manager("b"), fixture.now)
        .resync
        .unwrap();
    assert!(fixture.outbox.report(fixture.now).resync_needed);
    fixture
        .outbox
        .resync_reported(&manager("b"), mark, fixture.now);
    assert!(!fixture.outbox.report(fixture.now).resync_needed);
    assert!(!fixture.kill().resync);
}

#[test]
fn an_event_that_no_listener_would_take_is_not_kept() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.put(&"x".repeat(120), 1), Stored::Spooled);
    let mut event = fixture::event(1);
    event.watched.name = "x".repeat(watcher_types::BODY_BYTES);
    assert_eq!(
        fixture.outbox.put(&manager("a"), &event, fixture.now),
        Stored::Full
    );
    assert!(fixture.outbox.report(fixture.now).resync_needed);
    assert_eq!(fixture.kill().items, 1);
}

/// The disk usage stays limited during a day of changes.
#[test]
fn segments_are_compacted() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("stays", 0);
    let mut most = 0;
    for round in 0..12_000 {
        let _ = fixture.put("a", round);
        fixture.deliver_twice();
        most = most.max(fixture.disk.content().used());
    }
    let max_bytes = usize::try_from(settings().max_bytes).unwrap();
    assert!(most <= max_bytes / 4 * 3, "{most}");
    fixture.keep_up();
    let report = fixture.outbox.report(fixture.now);
    assert_eq!((report.on_disk, report.disk_failures), (true, 0));
    assert_eq!(report.spool_bytes, fixture.disk.content().used() as u64);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (0, false));
}

#[test]
fn the_spooled_bytes_are_bounded() {
    let mut fixture = Fixture::new();
    fixture.outbox.took(&manager("a"), fixture.now);
    let outcomes: Vec<_> = (0..5_000).map(|number| fixture.put("a", number)).collect();
    let kept = outcomes
        .iter()
        .filter(|stored| **stored == Stored::Spooled)
        .count();
    assert!((2_000..4_000).contains(&kept), "{kept}");
    assert!(
        outcomes[kept..]
            .iter()
            .all(|stored| *stored == Stored::Full)
    );
    assert!(fixture.disk.content().used() as u64 <= settings().max_bytes / 4 + 1_000);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (kept, true));
}

#[tokio::test]
async fn a_put_wakes_the_waiter_even_if_it_comes_first() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    fixture.outbox.changed().await;
    let waiter = fixture.outbox.clone();
    let waiting = tokio::spawn(async move { waiter.changed().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let _ = fixture.put("a", 1);
    waiting.await.unwrap();
}

/// Uses a real disk, and the task that runs in the watcher.
#[tokio::test]
async fn a_real_folder_is_kept_up_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options {
        fsync: FsyncPolicy::EachBatch(Duration::from_millis(1)),
        ..Options::new(folder.path().to_owned())
    };
    let now = Instant::now();
    let (outbox, recovered) = Outbox::open_patiently(options(), now);
    assert_eq!(recovered, Recovered::default());
    let cancel = CancellationToken::new();
    let running = tokio::spawn(outbox.clone().run(cancel.clone()));
    for number in 0..100 {
        assert_eq!(
            outbox.put(&manager("a"), &fixture::event(number), now),
            Stored::Spooled
        );
    }
    let (second, recovered) = Outbox::open_patiently(options(), now);
    assert_eq!(
        recovered.unusable.as_deref(),
        Some("spool directory is in use by another process")
    );
    assert_eq!(
        second.put(&manager("a"), &fixture::event(1), now),
        Stored::MemoryOnly
    );
    drop(second);
    cancel.cancel();
    running.await.unwrap();
    assert!(outbox.report(now).on_disk);
    drop(outbox);
    let (outbox, recovered) = Outbox::open_patiently(options(), now);
    assert_eq!((recovered.items, recovered.unusable), (100, None));
    assert_eq!(outbox.take(now, 1_000).len(), 100);
}
