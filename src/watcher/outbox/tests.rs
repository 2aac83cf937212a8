use rstest::rstest;

use self::disk::FakeDisk;
use self::world::{World, manager, settings};
use super::*;

mod damage;
mod disk;
mod killed;
mod limited;
mod managers;
mod model;
mod refusal;
mod stuck;
mod world;

#[test]
fn what_was_put_is_delivered_then_confirmed_then_gone() {
    let mut world = World::new();
    assert_eq!(world.put("a", 1), Stored::Spooled);
    assert_eq!(world.put("a", 1), Stored::Coalesced);
    assert_eq!(world.put("b", 1), Stored::Spooled);
    assert_eq!(world.deliver_all(), ["a/1", "b/1"]);
    assert_eq!(world.deliver_all(), [""; 0]);
    assert_eq!(world.outbox.report(world.now).depth, 2);
    world.pass(5);
    assert_eq!(world.outbox.next_due(), Some(world.now));
    assert_eq!(world.deliver_all(), ["a/1", "b/1"]);
    assert_eq!(world.outbox.next_due(), None);
    assert_eq!(world.outbox.report(world.now).depth, 0);
}

#[test]
fn a_killed_process_loses_nothing() {
    let mut world = World::new();
    let _ = world.put("a", 1);
    let _ = world.put("b", 2);
    let _ = world.put("a", 3);
    let items = world.outbox.take(world.now, 2);
    world.outbox.delivered(&items[0], world.now);
    let recovered = world.kill();
    assert_eq!(
        recovered,
        Recovered {
            items: 3,
            ..Recovered::default()
        }
    );
    assert_eq!(world.deliver_all(), ["a/1", "b/2", "a/3"]);
}

#[test]
fn what_is_delivered_does_not_come_back() {
    let mut world = World::new();
    let _ = world.put("a", 1);
    world.deliver_twice();
    let _ = world.put("a", 2);
    assert_eq!(world.kill().items, 1);
    assert_eq!(world.deliver_all(), ["a/2"]);
}

#[test]
fn a_confirmation_outlives_the_process() {
    let mut world = World::new();
    let _ = world.put("a", 1);
    assert_eq!(world.deliver_all(), ["a/1"]);
    assert_eq!(world.kill().items, 1);
    assert_eq!(world.deliver_all(), ["a/1"]);
    world.pass(5);
    assert_eq!(world.deliver_all(), ["a/1"]);
    assert_eq!(world.kill().items, 0);
}

#[test]
fn numbers_begin_anew_with_each_life() {
    let mut world = World::new();
    let _ = world.put("a", 1);
    let [item] = world.outbox.take(world.now, 9).try_into().unwrap();
    assert_eq!((item.sequence, item.attempt), (1, 0));
    world.outbox.failed(&item, world.now);
    let [item] = world.outbox.take(world.now, 9).try_into().unwrap();
    assert_eq!((item.sequence, item.attempt), (1, 1));
    world.kill();
    let [item] = world.outbox.take(world.now, 9).try_into().unwrap();
    assert_eq!((item.sequence, item.attempt), (1, 0));
}

/// Over kills, too: the mark is written before the event is struck out.
#[test]
fn a_rejected_event_is_dropped_and_its_manager_is_marked() {
    let mut world = World::new();
    for number in 0..3 {
        let _ = world.put("a", number);
        let _ = world.put("b", number);
    }
    let items = world.outbox.take(world.now, usize::MAX);
    world.outbox.rejected(&items[0], world.now);
    assert!(world.lost("a") && !world.lost("b"));
    let recovered = world.kill();
    assert_eq!((recovered.items, recovered.resync), (5, true));
    world.outbox.all_rejected(&manager("b"), world.now);
    assert!(world.lost("b"));
    assert_eq!(world.outbox.report(world.now).dropped.rejected, 3);
    assert_eq!(world.kill().items, 2);
    assert!(world.lost("a") && world.lost("b"));
    assert_eq!(world.deliver_all(), ["a/1", "a/2"]);
}

#[test]
fn a_full_outbox_marks_its_manager_until_that_knows() {
    let mut world = World::with(
        FakeDisk::default(),
        Settings {
            limits: Limits {
                keys: 1,
                ..Limits::WATCHER
            },
            ..settings()
        },
    );
    assert_eq!(world.put("a", 1), Stored::Spooled);
    assert_eq!(world.put("b", 1), Stored::Full);
    assert_eq!(world.put("a", 1), Stored::Coalesced);
    assert_eq!(
        world.outbox.manager_report(&manager("a"), world.now).resync,
        None
    );
    assert!(world.kill().resync);
    let mark = world
        .outbox
        .manager_report(&manager("b"), world.now)
        .resync
        .unwrap();
    assert!(world.outbox.report(world.now).resync_needed);
    world.outbox.resync_told(&manager("b"), mark, world.now);
    assert!(!world.outbox.report(world.now).resync_needed);
    assert!(!world.kill().resync);
}

#[test]
fn an_event_that_no_listener_would_take_is_not_kept() {
    let mut world = World::new();
    assert_eq!(world.put(&"x".repeat(120), 1), Stored::Spooled);
    let mut event = world::event(1);
    event.watched.name = "x".repeat(api::event::BODY_BYTES);
    assert_eq!(
        world.outbox.put(&manager("a"), &event, world.now),
        Stored::Full
    );
    assert!(world.outbox.report(world.now).resync_needed);
    assert_eq!(world.kill().items, 1);
}

/// The disk's share is bounded through a day of churn, whether the upkeep comes or not.
#[rstest]
#[case::kept_up(true)]
#[case::neglected(false)]
fn segments_are_compacted(#[case] upkeep: bool) {
    let mut world = World::new();
    let _ = world.put("stays", 0);
    let mut most = 0;
    for round in 0..12_000 {
        let _ = world.put("a", round);
        world.deliver_twice();
        if upkeep && round % 500 == 0 {
            let _ = world.outbox.keep_up(world.now);
        }
        most = most.max(world.disk.content().used());
    }
    let max_bytes = usize::try_from(settings().max_bytes).unwrap();
    assert!(most <= max_bytes / 4 * 3, "{most}");
    // Nobody who puts waits for a compaction: without one the disk is given up, until the upkeep comes.
    assert_eq!(world.outbox.report(world.now).on_disk, upkeep);
    let _ = world.outbox.keep_up(world.now);
    assert!(world.outbox.report(world.now).on_disk);
    assert_eq!(
        world.outbox.report(world.now).spool_bytes,
        world.disk.content().used() as u64
    );
    let recovered = world.kill();
    assert_eq!((recovered.items, recovered.resync), (0, false));
}

#[test]
fn the_disks_share_of_what_is_to_be_told_is_bounded() {
    let mut world = World::new();
    let outcomes: Vec<_> = (0..5_000).map(|number| world.put("a", number)).collect();
    let kept = outcomes
        .iter()
        .filter(|stored| **stored == Stored::Spooled)
        .count();
    assert!((500..4_000).contains(&kept), "{kept}");
    assert!(
        outcomes[kept..]
            .iter()
            .all(|stored| *stored == Stored::Full)
    );
    assert!(world.disk.content().used() as u64 <= settings().max_bytes / 4 + 1_000);
    let recovered = world.kill();
    assert_eq!((recovered.items, recovered.resync), (kept, true));
}

#[tokio::test]
async fn a_put_wakes_the_waiter_even_if_it_comes_first() {
    let mut world = World::new();
    let _ = world.put("a", 1);
    world.outbox.changed().await;
    let waiter = world.outbox.clone();
    let waiting = tokio::spawn(async move { waiter.changed().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let _ = world.put("a", 1);
    waiting.await.unwrap();
}

/// On a real disk, with the upkeep as it runs in the watcher.
#[tokio::test]
async fn a_real_folder_is_kept_up_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options {
        fsync: FsyncPolicy::EachBatch(Duration::from_millis(1)),
        write_deadline: Duration::from_secs(30),
        ..Options::new(folder.path().to_owned())
    };
    let now = Instant::now();
    let (outbox, recovered) = Outbox::open(options(), now);
    assert_eq!(recovered, Recovered::default());
    let cancel = CancellationToken::new();
    let upkeep = tokio::spawn(outbox.clone().run(cancel.clone()));
    for number in 0..100 {
        assert_eq!(
            outbox.put(&manager("a"), &world::event(number), now),
            Stored::Spooled
        );
    }
    let (second, recovered) = Outbox::open(options(), now);
    assert_eq!(
        recovered.unusable.as_deref(),
        Some("spool directory is in use by another process")
    );
    assert_eq!(
        second.put(&manager("a"), &world::event(1), now),
        Stored::MemoryOnly
    );
    drop(second);
    cancel.cancel();
    upkeep.await.unwrap();
    assert!(outbox.report(now).on_disk);
    drop(outbox);
    let (outbox, recovered) = Outbox::open(options(), now);
    assert_eq!((recovered.items, recovered.unusable), (100, None));
    assert_eq!(outbox.take(now, 1_000).len(), 100);
}
